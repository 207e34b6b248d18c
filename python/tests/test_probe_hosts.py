"""Probes between two hosts: network namespaces, their links shaped to 1 Gbit/s. Needs root."""

import json
import secrets
import subprocess

import pytest
from hosts import BYTES_PER_S, NoHostsError, address, bridged, command_on, on
from processes import PATIENCE_S, environment


@pytest.fixture(scope="module")
def hosts():
    """Their names."""
    try:
        with bridged(2) as names:
            yield names
    except NoHostsError as why:
        pytest.skip(str(why))


def test_the_network_between_hosts_and_the_disk_that_they_share(hosts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BRAMBLING_TOKEN", secrets.token_hex(32))
    shared = tmp_path / "shared"
    shared.mkdir()
    listens = [f"{address(at)}:7078" for at in range(2)]
    with (
        on(hosts[0], tmp_path, "probe", "--listen", listens[0], "--dir", str(shared)) as one,
        on(hosts[1], tmp_path, "probe", "--listen", listens[1], "--dir", str(shared)) as other,
    ):
        assert [line.split()[2].rstrip(";") for line in (one, other)] == listens
        done = subprocess.run(
            command_on(hosts[0], "-m", "brambling", "probe", "--hosts", ",".join(listens), "--json"),
            env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    network = json.loads(done.stdout)["network"]
    assert (network["hosts"], len(network["congestion"])) == (listens, 2)
    assert all(network["congestion"])
    ends = [(it["from"], it["to"]) for it in network["pairs"]]
    assert ends == [(it["from"], it["to"]) for it in network["all_to_all"]] == [(0, 1), (1, 0)]
    for flow in network["pairs"] + network["all_to_all"]:
        # The frames' heads take 5 %; nothing goes around the link.
        assert 0.7 * BYTES_PER_S < flow["bytes_per_s"]["median"] < 1.02 * BYTES_PER_S, flow
    assert [(it["host"], it["dir"]) for it in network["disks_at_once"]] == [(0, str(shared)), (1, str(shared))]
    assert list(shared.iterdir()) == []
