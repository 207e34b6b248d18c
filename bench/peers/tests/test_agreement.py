import numpy as np
import pytest

from peers.agreement import compare
from peers.workloads import Measure, Tolerance

OURS = np.array([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("theirs", "measure", "most", "found", "holds"),
    [
        ([1.0, 2.0, 4.0], Measure.LARGEST, 0.0, 0.0, True),
        ([1.5, 2.0, 3.75], Measure.LARGEST, 0.5, 0.5, True),
        ([1.5, 2.0, 3.75], Measure.LARGEST, 0.4, 0.5, False),
        ([1.5, 2.0, 3.75], Measure.SUM, 0.75, 0.75, True),
        ([1.5, 2.0, 3.75], Measure.SUM, 0.7, 0.75, False),
        ([1.0, 2.0, 5.0], Measure.RELATIVE, 0.25, 0.25, True),
        ([1.0, 2.0, 5.0], Measure.RELATIVE, 0.2, 0.25, False),
        ([1.0, 2.0], Measure.LARGEST, 9.0, np.inf, False),
        ([1.0, 2.0, np.nan], Measure.SUM, 9.0, np.nan, False),
        # Integers without a sign would wrap around.
        (np.array([2, 1, 4], np.uint32), Measure.LARGEST, 1.0, 1.0, True),
    ],
)
def test_of_one_array(theirs, measure, most, found, holds):
    [agreement] = compare({"x": np.array(theirs)}, {"x": OURS.astype(np.array(theirs).dtype)}, {"x": Tolerance(measure, most)})
    assert agreement.found == pytest.approx(found, nan_ok=True)
    assert agreement.holds is holds


def test_what_is_missing_does_not_agree():
    [agreement] = compare({"y": OURS}, {"x": OURS, "y": OURS}, {"x": Tolerance(Measure.SUM, 1e9)})
    assert not agreement.holds
    assert str(agreement) == "x: sum of differences inf, allowed 1e+09"
