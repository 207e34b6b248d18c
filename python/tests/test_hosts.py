"""A cluster on four hosts: network namespaces on a bridge, their links shaped to 1 Gbit/s. Needs root."""

import contextlib
import pickle
import re
import subprocess
from pathlib import Path

import pytest
from hosts import NoHostsError, address, bridged, command_on, on
from processes import PATIENCE_S, environment
from test_cluster import fitted_and_ranked
from test_travel import bits, heat

HOSTS = 4


@pytest.fixture(scope="module")
def hosts():
    """Their names."""
    try:
        with bridged(HOSTS) as names:
            yield names
    except NoHostsError as why:
        pytest.skip(str(why))


def found():
    """What models, analyses of graphs and the heat equation give, as bits."""
    result = heat().run()
    return {"heat": {name: bits(result[name]) for name in result}, **{name: bits(it) for name, it in fitted_and_ranked().items()}}


CLIENT = """
import pickle, sys
sys.path.insert(0, sys.argv[2])
import brambling as br
from test_hosts import found
with br.connect(sys.argv[1]):
    pickle.dump(found(), open(sys.argv[3], "wb"))
"""


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_same_bits_on_any_number_of_workers(hosts, tmp_path, workers):
    with contextlib.ExitStack() as stack:
        bind = f"{address(0)}:7077"
        assert bind in stack.enter_context(on(hosts[0], tmp_path, "controller", "--bind", bind))
        for at in range(workers):
            line = stack.enter_context(
                on(hosts[at % HOSTS], tmp_path, "worker", "--controller", bind, "--threads", "1", "--memory", "512MB"))
            assert re.search(rf"worker w{at + 1} at {re.escape(address(at % HOSTS))}:\d+", line)
        there = tmp_path / "found"
        client = subprocess.run(
            command_on(hosts[-1], "-c", CLIENT, bind, str(Path(__file__).parent), str(there)),
            env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S)
        assert client.returncode == 0, client.stderr
        assert pickle.loads(there.read_bytes()) == found()
