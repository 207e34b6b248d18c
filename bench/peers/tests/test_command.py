"""The command as it is called, with systems that are none."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peers.command import main
from peers.tests.fakes import workload
from peers.tests.test_process import is_alive

PEERS = Path(__file__).resolve().parents[1]


class Entered:
    """An environment that is there, without what others need."""

    def __init__(self, folder):
        self.folder = folder

    def is_entered(self):
        return True

    def missing(self):
        return {}


def test_an_object_a_line(tmp_path, capsys):
    arguments = ["--size", "small", "--rounds", "1", "--threads", "1", "--json"]
    assert main(arguments, (workload("Talks"), workload("Dies")), Entered(tmp_path)) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    states = [system["state"] for system in first["systems"] + second["systems"]]
    assert states == ["measured", "measured", "measured", "failed"]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_result_that_disagrees_is_a_failure(tmp_path, capsys):
    arguments = ["--size", "small", "--rounds", "1", "--of", "add"]
    assert main(arguments, (workload("Wrong"), workload("Talks")), Entered(tmp_path)) == 1
    assert "disagrees: sum: largest difference" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--of", "sorting"], "there is no workload 'sorting'; there are adding"),
        (["--of", ""], "there is no workload ''"),
        (["--rounds", "0"], "'0' is no number of 1 or more"),
        (["--deadline", "soon"], "'soon' is no number of 1 or more"),
        (["--size", "huge"], "invalid choice: 'huge'"),
    ],
)
def test_a_wrong_command_line(arguments, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments, (workload("Talks"),), Entered(tmp_path))
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_help_and_list_need_no_environment():
    """By an interpreter that sees no package, so not even NumPy."""
    for option, says in (("--help", "make peers OF=kmeans"), ("--list", "networkx; not medium: ")):
        done = subprocess.run([sys.executable, "-I", "-S", PEERS, option], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert says in done.stdout


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path, ending):
    script = """
import signal
import sys
from pathlib import Path
from peers.command import main
from peers.tests.fakes import workload
from peers.tests.test_command import Entered
# A shell's background jobs begin with it ignored, and what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["--size", "small"], (workload("Talks", "Hangs"),), Entered(Path(sys.argv[1]))))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while "Hangs loads" not in process.stderr.readline():
        pass
    while not (child := list((tmp_path / "data").glob("*/child"))):
        assert process.poll() is None
    process.send_signal(ending)
    assert process.communicate(timeout=60)[1].endswith("interrupted\n")
    assert process.returncode == 130
    assert not is_alive(child[0].read_text())
    assert list((tmp_path / "scratch").iterdir()) == []
