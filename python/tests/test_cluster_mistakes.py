"""What a new user of clusters does wrong: each answer names the cause and the way out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE_S, command, doubled, environment, running

import brambling as br


def complaint(state, *arguments, **variables):
    """What a command says that fails with exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "brambling", *arguments], env={**environment(state), **variables}, text=True,
        capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr


def test_who_cannot_take_part_is_told_why_and_the_way_out(tmp_path, shared):
    other = {"BRAMBLING_TOKEN": "ab" * 32}
    for arguments in (("status",), ("worker", "--threads", "1")):
        text = complaint(tmp_path, *arguments, "--controller", shared, **other)
        assert "another token" in text and shared in text
        text = complaint(tmp_path, *arguments, "--controller", shared)
        assert "--token-file" in text and "BRAMBLING_TOKEN" in text
        text = complaint(tmp_path, *arguments, "--controller", shared, BRAMBLING_TOKEN="abc")
        assert "64 hexadecimal digits" in text and "BRAMBLING_TOKEN" in text
        text = complaint(tmp_path, *arguments, "--controller", "127.0.0.1:1", **other)
        assert "no controller at 127.0.0.1:1" in text and "brambling cluster" in text
        text = complaint(tmp_path, *arguments, "--controller", "nowhere.invalid:1", **other)
        assert "nowhere.invalid:1" in text and "HOST:PORT" in text
    text = complaint(tmp_path, "controller", "--bind", shared)
    assert shared in text and "--bind" in text
    text = complaint(tmp_path, "worker", "--controller", shared, "--memory", "much", **other)
    assert "much" in text and "8GB" in text
    assert "no cluster of this account" in complaint(tmp_path, "status")


def test_a_port_in_use_is_told_with_another_way(tmp_path, shared):
    for arguments in (("controller",), ("cluster", "--workers", "1", "--threads", "1")):
        text = complaint(tmp_path, *arguments, "--bind", shared)
        assert f"cannot listen at {shared}" in text and "--bind" in text


def test_a_program_too_large_for_its_workers_says_where_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address), br.connect(address):
        with running(tmp_path, "worker", "--controller", address, "--threads", "1", "--memory", "8MB"):
            p = br.Program("large")
            x = p.dataset("x", value=0, partitions=4)
            p.keep(p.map(lambda x: np.ones(1_000_000) + x, x))
            with pytest.raises(br.OutOfMemory) as caught:
                p.run()
            text = str(caught.value)
            assert "on worker w1" in text and "memory" in text and "of 8388608 in use" in text, text
            assert "BRAMBLING_MEMORY" in text or "--memory" in text, text
            # The worker is there for smaller ones.
            assert doubled().run()["x"] == [42] * 4


def toolbox(folder, version):
    """A package of this version, for a process to have installed."""
    package = folder / version / "site-packages/toolbox"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = {version!r}\ndef kernel(x):\n    return x + 1\n")
    return str(package.parent)


def test_workers_with_other_versions_of_a_package_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old, new = toolbox(tmp_path, "1.5"), toolbox(tmp_path, "2.0")
    script = ("import sys, brambling as br, toolbox; p = br.Program('p'); x = p.dataset('x', value=1, partitions=4); "
              "p.keep(p.map(toolbox.kernel, x)); br.connect(sys.argv[1]); print(p.run()['kernel'])")

    def ran(path):
        return subprocess.run(
            [sys.executable, "-c", script, address], env={**environment(tmp_path), "PYTHONPATH": path}, text=True,
            capture_output=True, timeout=PATIENCE_S)

    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        worker = ("worker", "--controller", address, "--threads", "1")
        monkeypatch.setenv("PYTHONPATH", old)
        with running(tmp_path, *worker):
            assert ran(old).stdout == "[2, 2, 2, 2]\n", ran(old).stderr
            monkeypatch.setenv("PYTHONPATH", new)
            with running(tmp_path, *worker):
                done = ran(old)
                assert done.returncode == 1
                assert re.search(r"on worker w2: .*the program was built with toolbox 1.5, and here is toolbox 2.0; install the same "
                                 "version on every machine", done.stderr, re.DOTALL)
            monkeypatch.delenv("PYTHONPATH")
