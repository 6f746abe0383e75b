"""Clients that leave: work nobody waits for must not be done."""
import subprocess
import sys
import time

import pytest

import fcgi
from harness import HERE, Held, cpu_seconds, free_port, wait_taken, wait_until


def mark(server, name, ms=0):
    return server.params("/mark.php?dir=%s&id=%s&ms=%d" % (server.site.data, name, ms))


def marks(server):
    path = server.site.data / "marks"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("kind", ["unix", "tcp", "tcp-reset"])
def test_client_that_leaves_while_queued_costs_no_worker(h2fpm, kind):
    listen = None if kind == "unix" else "127.0.0.1:%d" % free_port()
    server = h2fpm(listen=listen, pool={"pm.max_children": 1})
    held = Held(server)
    leaving = []
    for i in range(10):
        conn = server.connect()
        conn.send(fcgi.request(mark(server, "left%d" % i), keep=bool(i % 2)))
        leaving.append(conn)
    assert leaving[-1].quiet(0.3)  # in the queue
    for conn in leaving:
        conn.reset() if kind == "tcp-reset" else conn.close()
    stays = server.connect()
    stays.send(fcgi.request(mark(server, "stays")))
    assert stays.quiet(0.3)
    held.finish()
    assert stays.read_response().body == b"marked"
    assert marks(server) == ["stays"]


def test_client_that_leaves_nginx_while_queued_costs_no_worker(h2fpm, nginx):
    server = h2fpm(pool={"pm.max_children": 1})
    front = nginx(server)
    held = Held(server)
    uri = "/mark.php?dir=%s&id=left" % server.site.data
    clients = [subprocess.Popen(["curl", "-sk", "--http2", "-o", "/dev/null", front.url + uri]) for _ in range(5)]
    wait_until(lambda: len(server.connections()) == 6, what="all are at the pool")
    time.sleep(0.1)  # no condition shows from outside that they are queued
    for client in clients:
        client.kill()
        client.wait()
    wait_until(lambda: len(server.connections()) == 1, what="all have left")
    held.finish()
    assert server.get("/mark.php?dir=%s&id=after" % server.site.data).body == b"marked"
    assert marks(server) == ["after"]


def ticks(server):
    path = server.site.data / "ticks"
    return len(path.read_text().split()) if path.exists() else 0


def start_ticker(server, ignore):
    conn = server.start_get("/ticker.php?dir=%s&ignore=%d&max=100" % (server.site.data, ignore))
    wait_until(lambda: ticks(server) >= 3, what="the script runs")
    return conn


def test_client_that_leaves_while_running_ends_the_script_at_its_next_output(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    pids = server.wait_workers(1)
    start_ticker(server, 0).close()
    assert server.get("/hello.php").status == 200
    assert ticks(server) < 100 and not (server.site.data / "finished").exists()
    assert server.workers() == pids, "the worker was killed"


def test_ignore_user_abort_is_honoured(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    pids = server.wait_workers(1)
    start_ticker(server, 1).close()
    assert server.get("/hello.php", timeout=30).status == 200
    assert ticks(server) == 100 and (server.site.data / "finished").exists()
    assert server.workers() == pids


def test_abort_record_while_running_ends_the_script_too(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    conn = start_ticker(server, 0)
    conn.send(fcgi.record(fcgi.ABORT, 1))
    conn.read_response()
    assert conn.request(server.params()).body == b"Hello, world\n"
    assert ticks(server) < 100


def test_script_without_output_runs_on_and_the_worker_serves_again(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    held.conn.close()
    waiting = server.start_get("/pid.php")
    wait_taken(waiting)
    assert waiting.quiet(0.1)
    held.release()
    assert int(waiting.read_response().text) == held.pid


def test_clients_that_leave_in_turn_do_not_wear_the_workers_out(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    for i in range(60):
        conn = server.start_get("/slow.php?ms=%d" % (i % 7 * 5))
        if i % 3:
            conn.quiet(0.005)
        conn.close()
    for _ in range(20):
        assert server.get("/hello.php").body == b"Hello, world\n"
    assert len(server.workers()) == 2


CROWD = """
import sys
sys.path.insert(0, sys.argv[1])
import fcgi
conns = []
for i in range(300):
    conn = fcgi.Conn(sys.argv[2])
    conn.send(bytes.fromhex(sys.argv[3]))
    conns.append(conn)
print("queued", flush=True)
sys.stdin.read()
"""


def test_crowd_that_is_killed_delays_the_next_visitor_by_no_more_than_a_request(h2fpm):
    """300 requests of 50 ms for two workers are 7.5 s of work."""
    server = h2fpm(pool={"pm.max_children": 2})
    request = fcgi.request(mark(server, "crowd", ms=50))
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD, str(HERE), server.address, request.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert crowd.stdout.readline() == b"queued\n"
    wait_until(lambda: marks(server), what="the crowd is served")
    crowd.kill()
    crowd.wait()
    crowd.stdin.close()
    crowd.stdout.close()
    began = time.monotonic()
    assert server.get("/hello.php").status == 200
    waited = time.monotonic() - began
    assert waited < 2, "the next visitor waited %.2f s" % waited
    served = len(marks(server))
    assert server.get("/hello.php").status == 200
    assert served < 150 and len(marks(server)) <= served + 2, "%d of the crowd were run" % served


def test_idle_broker_rests_after_a_crowd_left(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    conns = [server.start_get("/hello.php") for _ in range(100)]
    wait_taken(*conns)
    for conn in conns:
        conn.close()
    wait_until(lambda: len(server.connections()) == 1, what="all have left")
    before = cpu_seconds(server.pool_pid)
    time.sleep(1)
    assert cpu_seconds(server.pool_pid) - before < 0.2, "busy over connections that are gone"
    held.finish()
