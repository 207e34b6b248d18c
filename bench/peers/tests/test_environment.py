"""Environments whose commands are played by a list of those that fail."""

import pytest

from peers import environment
from peers.environment import Environment, Unusable


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes an environment in which what `broken` names cannot be installed; returns it with the commands that ran."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("# peers\nnumpy==2.4\n\npyspark==4.3\n")
    (tmp_path / "python" / "brambling").mkdir(parents=True)
    (tmp_path / "python" / "brambling" / "_native.abi3.so").touch()
    monkeypatch.setattr(environment, "ROOT", tmp_path)

    def made(broken=()):
        ran = []

        def run(command):
            ran.append(" ".join(command[command.index("-m") + 1 :]))
            if "venv" in command:
                (tmp_path / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)
                return (1, "Error: no disk\n") if "venv" in broken else (0, "")
            asked = [line for line in ("numpy==2.4", "pyspark==4.3") if line in command] or ["numpy==2.4", "pyspark==4.3"]
            failing = [line for line in asked if line.partition("==")[0] in broken]
            return (1, f"Looking for it\nERROR: no version of {failing[0]}\n[notice] something\n") if failing else (0, "")

        it = Environment(tmp_path / "venv", requirements, tmp_path / "build", run)
        said = []
        it.make(said.append)
        return it, ran, said

    return made


def test_all_is_installed_at_once_and_only_once(made, tmp_path):
    it, ran, said = made()
    assert [command.split()[0] for command in ran] == ["venv", "pip"]
    assert it.missing() == {}
    assert (tmp_path / "venv/lib/python3.11/site-packages/brambling.pth").read_text() == f"{tmp_path / 'python'}\n"
    again, ran, said = made()
    assert (ran, said) == ([], [])


def test_one_that_cannot_be_installed_is_named_and_tried_again(made):
    it, ran, said = made(broken=["pyspark"])
    assert it.missing() == {"pyspark": "ERROR: no version of pyspark==4.3"}
    assert said[-1] == "pyspark cannot be installed: ERROR: no version of pyspark==4.3"
    # One by one, where the whole failed.
    assert [command.rpartition(" ")[2] for command in ran[2:]] == ["numpy==2.4", "pyspark==4.3"]
    it, ran, _ = made()
    assert it.missing() == {}
    assert [command.split()[0] for command in ran] == ["pip"]


def test_other_requirements_make_another_environment(made, tmp_path):
    made()
    (tmp_path / "requirements.txt").write_text("numpy==2.4\n")
    _, ran, _ = made()
    assert ran[0].startswith("venv --clear")


@pytest.mark.parametrize(
    ("broken", "says"),
    [(["venv"], "cannot be made: Error: no disk"), (["numpy"], "has no numpy")],
)
def test_without_an_environment_or_numpy_nothing_runs(made, broken, says):
    with pytest.raises(Unusable, match=says):
        made(broken)


def test_without_brambling_nothing_runs(made, tmp_path):
    (tmp_path / "python" / "brambling" / "_native.abi3.so").unlink()
    with pytest.raises(Unusable, match="`make install` builds it"):
        made()


def test_every_peer_is_pinned():
    lines = [line for line in environment.REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines), lines
    names = {line.partition("==")[0] for line in lines}
    assert names >= {"scikit-learn", "scipy", "networkx", "networkit", "pyspark", "polars", "numba", "cloudpickle", "numpy"}
