"""
For all tests: Ctrl-C is heard.

A shell makes what it starts in the background ignore it, and pytest would hand that on to the tests of Ctrl-C, which would wait
for ever.
"""

import signal

import pytest
from processes import running

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster of two workers for tests that leave it as it was."""
    state = tmp_path_factory.mktemp("state")
    with running(state, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0") as (_, address):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(state))
            yield address
