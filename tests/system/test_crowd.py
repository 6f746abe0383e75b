"""A crowd of clients on multiplexed connections: nothing may be lost, doubled,
mixed up or cut short; tests/peers/crowd.c checks every byte."""
import json
import subprocess

import pytest
from harness import free_port


def crowd(peers, server, *options):
    command = [peers["crowd"], "-a", "%s:%d" % server.address if isinstance(server.address, tuple) else server.address,
               "-s", server.site.www / "crowd.php", *options]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("how", ["unix", "tcp"])
def test_nothing_is_lost_or_mixed_up(h2fpm, peers, how):
    server = h2fpm(listen="127.0.0.1:%d" % free_port() if how == "tcp" else None, pool={"pm.max_children": 4})
    did = crowd(peers, server, "-c", 4, "-m", 32, "-n", 2000, "-A", 5, "-B", 10, "-z", 30000)
    assert did["answered"] + did["aborted"] == 2000 and did["aborted"] > 0


def test_aborts_by_the_half(h2fpm, peers):
    server = h2fpm(pool={"pm.max_children": 2})
    did = crowd(peers, server, "-c", 2, "-m", 100, "-n", 4000, "-A", 50, "-B", 5, "-S", 7)
    assert did["aborted"] > 500


def test_memory_of_connections_full_of_bodies(h2fpm, peers):
    """More bodies and answers than a connection may hold in memory."""
    server = h2fpm(pool={"pm.max_children": 4, "mpxs.buffer_size": "1M"})
    assert crowd(peers, server, "-c", 2, "-m", 64, "-n", 600, "-B", 60, "-z", 200000)["answered"] == 600


def test_workers_that_serve_few_requests(h2fpm, peers):
    server = h2fpm(pool={"pm.max_children": 4, "pm.max_requests": 20})
    assert crowd(peers, server, "-c", 4, "-m", 16, "-n", 1000)["answered"] == 1000
