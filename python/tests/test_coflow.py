"""`br.coflow`: what the simulator says, as Python has it."""

import signal

import numpy as np
import pytest

import brambling as br

TWO = "3 2\n1 0 1 0 1 2:250\n2 0 1 1 1 2:125\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace"
    path.write_text(TWO)
    return path


def test_times_and_summaries(trace):
    found = br.coflow.simulate(trace, policy=["fair", "ours"])
    assert list(found) == ["fair", "receiver-driven"]
    fair = found["fair"]
    np.testing.assert_array_equal(fair.coflow, [1, 2])
    np.testing.assert_allclose(fair.cct_s, [3, 2])
    np.testing.assert_allclose(fair.isolated_s, [2, 1])
    np.testing.assert_allclose(fair.bytes, [250e6, 125e6])
    assert (fair.average_s, fair.p50_s) == (2.5, 2.0)
    assert fair.category["II"].coflows == 2
    assert fair.bin["long-narrow"].slowdown == pytest.approx((1.5 + 2) / 2)
    assert found["receiver-driven"].messages > 0


def test_numbers_are_bytes_and_seconds(trace):
    of = lambda **given: br.coflow.simulate(trace, policy="stream", relay="rtt", **given)["stream"].cct_s  # noqa: E731
    np.testing.assert_array_equal(of(threshold="10MB", rtt="1ms"), of(threshold=10e6, rtt=1e-3))


def test_all_policies_are_asked_for_unless_told():
    assert len(br.coflow.simulate(generate=3)) == 7


def test_graphs_and_waves():
    graph = br.coflow.simulate(generate=3, policy="fair", dag="tao")["fair"]
    waves = br.coflow.simulate(generate=3, policy="fair", waves=4)["fair"]
    assert graph.bytes.sum() == pytest.approx(6 * waves.bytes.sum())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policy": "srtf"}, r'policy = srtf: there is no policy "srtf"; there are fair,.*or all'),
        ({"fabric": "torus"}, r'fabric = torus: there is no fabric "torus"; give big-switch, or fattree:K'),
        ({"sizes_off": 2}, r"sizes_off = 2: give a number from 0 to 1"),
        ({"rule": "newest"}, r"rule = newest: \[possible values: recommended, fixed, current\]"),
        ({"dag": "tao", "waves": 2}, r"a coflow that becomes a graph has no waves; leave out"),
        ({"generate": -3}, r"generate = -3: -3 is not in 1\.\."),
        ({"gbps": -1}, r"gbps = -1: give a number above 0"),
        ({"load": 1e-308}, r"load = 1e-308: give a number from 0.000001"),
        ({"threshold": 0}, r"threshold = 0B: give a size above 0"),
        ({"resolution": "100ns"}, r"resolution = 100ns: give a time of at least 10us"),
        ({"generate": None}, r"give either a trace, or generate"),
    ],
)
def test_slips(given, told):
    with pytest.raises(br.BuildError, match=told) as caught:
        br.coflow.simulate(**{"generate": 3} | given)
    assert "For more information" not in str(caught.value)


def test_a_trace_that_is_none(tmp_path):
    path = tmp_path / "trace"
    path.write_text("3 1\n1 0 1 0 1 7:250\n")
    with pytest.raises(br.BuildError, match=r"trace: line 2 of the trace .*port 7"):
        br.coflow.simulate(path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gbps": True}, r"gbps is True; give text or a number"),
        ({"threshold": True}, r"threshold is True; give text or a number"),
        ({"rtt": None}, r"rtt is None; give text or a number"),
        ({"policy": 5}, r"policy is 5; give a name such as"),
        ({"policy": ["fair", 3]}, r"policy is \['fair', 3\]; give a name"),
        ({"trace": 5, "generate": None}, r"trace is 5; give the path of a file"),
    ],
)
def test_values_that_are_of_another_kind(given, told):
    with pytest.raises(br.BuildTypeError, match=told):
        br.coflow.simulate(**{"generate": 3} | given)


def test_what_a_handler_raises_is_raised():
    class StoppedError(Exception):
        pass

    def handler(number, frame):
        raise StoppedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(StoppedError):
            br.coflow.simulate(generate=20000, policy="fair")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
