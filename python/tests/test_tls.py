"""Clusters that use TLS: processes with certificates that the command makes, and what is said to those without."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE_S, doubled, environment, eventually, running

import brambling as br

CLUSTER = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")


def ran(state, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "brambling", *arguments], env={**environment(state), **variables}, text=True,
        capture_output=True, timeout=PATIENCE_S)


def said(state, *arguments, **variables):
    done = ran(state, *arguments, **variables)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def complaint(state, *arguments, **variables):
    done = ran(state, *arguments, **variables)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of two clusters."""
    folder = tmp_path_factory.mktemp("certs")
    for name in ("ours", "others"):
        said(folder, "certs", "--dir", str(folder / name))
    return folder


@pytest.fixture(scope="module")
def secure(tmp_path_factory, certs):
    """A cluster that uses TLS, which processes of this account find."""
    state = tmp_path_factory.mktemp("state")
    with running(state, *CLUSTER, "--tls", os.path.relpath(certs / "ours")) as (_, address):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(state))
            yield state, address


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_certificates_are_readable_for_this_account_alone_and_not_overwritten(tmp_path):
    folder = tmp_path / "here"
    text = said(tmp_path, "certs", "--dir", str(folder), "--host", "10.0.0.7", "--host", "localhost")
    assert f"--tls {folder}" in text
    assert mode(folder) == 0o700 and mode(folder / "key.pem") == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    key = (folder / "key.pem").read_text()
    assert key not in text
    assert "not overwritten; give a new folder" in complaint(tmp_path, "certs", "--dir", str(folder))
    assert (folder / "key.pem").read_text() == key


def test_programs_run_and_the_file_of_the_cluster_tells_where_the_certificates_are(secure, certs):
    state, address = secure
    (file,) = (state / "brambling/clusters").iterdir()
    assert mode(file) == 0o600
    # Absolute, whatever was given.
    assert f'tls = "{certs / "ours"}"' in file.read_text()
    for given in ({}, {"address": address}, {"address": address, "tls": certs / "ours"}, {"address": address, "token_file": file}):
        with br.connect(**given) as cluster:
            assert doubled().run()["x"] == [42] * 4
            assert len(cluster.status()["workers"]) == 2


def test_commands_and_scripts_that_are_submitted_take_part(secure, tmp_path, certs):
    state, address = secure
    script = tmp_path / "train.py"
    script.write_text("import brambling as br\np = br.Program('p')\nx = p.dataset('x', value=21, partitions=4)\n"
                      "p.update(x, lambda x: 2 * x)\nprint(p.run()[x])\n")
    file = tmp_path / "copy.toml"
    (told,) = (state / "brambling/clusters").iterdir()
    # As on another machine, where the file names a folder that is not there.
    file.write_text(told.read_text().replace("ours", "elsewhere"))
    elsewhere = ("--controller", address, "--token-file", str(file))
    assert "elsewhere/ca.pem" in complaint(tmp_path, "status", *elsewhere)
    for at in ((), (*elsewhere, "--tls", str(certs / "ours"))):
        job = said(state, "submit", *at, str(script)).strip()
        assert said(state, "logs", job, "--follow", *at) == "[42, 42, 42, 42]\n"
        assert job in said(state, "jobs", *at) and job in said(state, "top", "--once", *at)
    assert "w2" in said(tmp_path, "status", *elsewhere, BRAMBLING_TLS=str(certs / "ours"))


def test_a_worker_comes_with_the_certificates_and_is_drained(secure, certs):
    state, address = secure
    with running(state, "worker", "--controller", address, "--threads", "1", "--tls", str(certs / "ours")) as (process, _):
        with br.connect(address) as cluster:
            name = cluster.status()["workers"][-1]["id"]
            assert said(state, "drain", name).startswith(f"worker {name}")
            assert process.wait(PATIENCE_S) == 0
            eventually(lambda: len(cluster.status()["workers"]) == 2)


def test_who_has_other_certificates_or_none_is_told_why_and_the_way_out(secure, certs, tmp_path):
    state, address = secure
    (told,) = (state / "brambling/clusters").iterdir()
    token = re.search('token = "(.*)"', told.read_text())[1]
    for arguments in (("status",), ("worker", "--threads", "1")):
        at = (*arguments, "--controller", address)
        text = complaint(tmp_path, *at, BRAMBLING_TOKEN=token)
        assert "the cluster uses TLS" in text and "--tls DIR or in BRAMBLING_TLS" in text
        text = complaint(tmp_path, *at, "--tls", str(certs / "others"), BRAMBLING_TOKEN=token)
        assert "is not of this process's authority" in text and "`brambling certs`" in text
        text = complaint(tmp_path, *at, "--tls", "nowhere", BRAMBLING_TOKEN=token)
        assert "nowhere/ca.pem: No such file" in text and "`brambling certs`" in text
        text = complaint(tmp_path, *at, "--tls", str(certs / "ours"), BRAMBLING_TOKEN="ab" * 32)
        assert "another token" in text
    with pytest.raises(br.ClusterError, match="is not of this process's authority"):
        br.connect(address, tls=certs / "others")
    # The cluster is as it was.
    with br.connect(address):
        assert doubled().run()["x"] == [42] * 4


def test_a_cluster_without_tls_says_so(tmp_path, certs, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address):
        (file,) = Path(tmp_path / "brambling/clusters").iterdir()
        assert "tls" not in file.read_text()
        for arguments in (("status",), ("worker", "--threads", "1")):
            text = complaint(tmp_path, *arguments, "--controller", address, "--tls", str(certs / "ours"))
            assert "the cluster does not use TLS" in text and "unset BRAMBLING_TLS" in text
