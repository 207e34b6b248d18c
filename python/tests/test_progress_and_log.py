"""What a long run shows and what a run logs: to those who look, and to nobody else."""

import os
import subprocess
import sys

import pytest
from processes import in_a_terminal

import brambling as br
from brambling import _progress

# Each turn takes its time until the run has been shown.
LONG = """
import time
import brambling as br
from brambling import _progress

shown = []
plain = _progress.Progress.show
def show(self, *how):
    plain(self, *how)
    shown.append(how)
_progress.Progress.show = show

def wait(x):
    # The calling thread shows between stages, so each of them ends soon.
    if not shown:
        time.sleep(0.05)
    return x + 1

p = br.Program("long work")
x = p.dataset("x", value=0)
LOOP
    p.update(x, wait)
found = p.run()[x]
assert shown, "it was never asked to show"
print("shown", shown[0][1])
"""
COUNTED = LONG.replace("LOOP", "with p.loop(100):")
ENDLESS = LONG.replace("LOOP", "with p.loop(while_=lambda x: not shown and x < 1000, on=x):")


def script_in_a_terminal(script, **settings):
    return in_a_terminal(("-c", script), os.environ | settings)



def test_a_terminal_is_told_how_far_a_counted_loop_is_and_is_left_clean():
    out, told = script_in_a_terminal(COUNTED)
    # A hundred turns, and what is freed at the end.
    assert out.startswith("shown 10")
    first, last = told.split("\r")[1], told.split("\r")[-1]
    assert first.startswith("long work  [") and " % " in first and " left" in first
    assert last == "\x1b[K"


def test_where_a_signal_decides_the_end_tasks_are_counted():
    out, told = script_in_a_terminal(ENDLESS)
    assert out == "shown None\n"
    assert " tasks  0:0" in told.split("\r")[1]


def test_the_setting_silences_it():
    _, told = script_in_a_terminal(ENDLESS, BRAMBLING_PROGRESS="false")
    assert told == ""


def test_a_file_is_told_nothing():
    done = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_notebook_is_told_in_its_cell(monkeypatch):
    written = []

    class Handle:
        def update(self, data, raw):
            assert raw
            written.append(data["text/plain"])

    display = type(sys)("IPython.display")
    display.display = lambda data, raw, display_id: Handle()
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", type(sys)("ipykernel.zmqshell"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    progress = _progress.Progress("notebook")
    progress.show(1, 2, 3.0)
    progress.close()
    progress.show(2, 2, 4.0)
    assert written == ["notebook  [############------------]  50 %  0:03, 0:03 left", ""]


def test_the_line_of_a_run_that_has_done_more_than_it_said():
    assert _progress.text("a", 12, 10, 4_000).endswith("100 %  1:06:40, 0:00 left")
    assert _progress.text("a", 0, 10, 2).endswith("0 %  0:02")


# ---- the log

SHORT = """
import brambling as br
p = br.Program("short")
x = p.dataset("x", value=1)
p.update(x, lambda x: x + 1)
p.run(threads=1)
"""


def logged(script, **settings):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | settings)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_nothing_is_logged_unless_asked_for():
    assert logged(SHORT) == ""
    assert logged(SHORT, BRAMBLING_LOG="off") == ""
    assert logged(SHORT, BRAMBLING_LOG="warning") == ""


def test_the_log_tells_what_began_and_what_ended():
    began, ended = logged(SHORT, BRAMBLING_LOG="info").splitlines()
    assert began.endswith("INFO    brambling: program 'short' begins, threads=1")
    assert "INFO    brambling: ended: 1 task in " in ended and ended.endswith(" s on 1 thread, 0.0 MB at most")
    assert "updates x" in logged(SHORT, BRAMBLING_LOG="debug")


def test_a_program_that_logs_hears_us_once():
    own = "import logging; logging.basicConfig(level=logging.INFO)\n" + SHORT
    assert logged(own).count("program 'short' begins") == 1
    assert logged(own, BRAMBLING_LOG="info").count("program 'short' begins") == 1


def test_a_level_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("BRAMBLING_LOG", "loud")
    p = br.Program("loud")
    p.dataset("x", value=1)
    with pytest.raises(br.SettingsError, match='BRAMBLING_LOG = "loud" is not usable: give off, error, warning, info'):
        p.run()
