"""Many streams, many connections, few descriptors. Scaled down: the figures
at full size are the benches'."""
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import fcgi
from harness import Held, check_peak_memory, cpu_seconds, free_port, limit_files, pattern, wait_until


@pytest.mark.parametrize("clients,streams", [(4, 16), (8, 128)])
@pytest.mark.parametrize("keepalive", [2, 64])
def test_h2load_is_all_200(h2fpm, nginx, clients, streams, keepalive):
    front = nginx(h2fpm(pool={"pm.max_children": 4, "listen.backlog": 4096}), keepalive=keepalive)
    found = front.h2load("/hello.php", 2000, clients, streams)
    assert (found["2xx"], found["failed"], found["errored"]) == (2000, 0, 0), found


def test_h2load_over_tcp_is_all_200(h2fpm, nginx):
    listen = "127.0.0.1:%d" % free_port()
    front = nginx(h2fpm(listen=listen, pool={"pm.max_children": 4, "listen.backlog": 4096}), keepalive=32)
    assert front.h2load("/hello.php", 2000, 8, 64)["2xx"] == 2000


def test_each_of_many_parallel_answers_is_the_one_asked_for(h2fpm):
    server = h2fpm(pool={"pm.max_children": 4})
    sizes = [1000 * (1 + i % 60) for i in range(200)]

    def fetch(i):
        got = server.get("/download.php?bytes=%d&seed=s%d" % (sizes[i], i))
        return got.body == pattern(sizes[i], "s%d" % i)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(fetch, range(200)))


def test_ab_with_keep_alive_fails_nothing(h2fpm, nginx):
    front = nginx(h2fpm(pool={"pm.max_children": 4}))
    ab = shutil.which("ab") or "/usr/bin/ab"
    done = subprocess.run(
        [ab, "-q", "-n", "1000", "-c", "10", "-k", front.url.replace("localhost", "127.0.0.1") + "/hello.php"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(r"Complete requests:\s+1000\b", done.stdout), done.stdout
    assert re.search(r"Failed requests:\s+0\b", done.stdout), done.stdout
    assert "Non-2xx" not in done.stdout, done.stdout


def test_thousand_idle_connections_cost_little_and_hinder_none(h2fpm):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3000:
        pytest.skip("too few descriptors")
    server = h2fpm(pool={"pm.max_children": 1, "listen.backlog": 4096})
    params = server.params("/hello.php")
    conns = []
    for _ in range(1000):
        conns.append(server.connect())
        assert conns[-1].request(params).status == 200
    assert server.get("/hello.php").status == 200
    check_peak_memory(server.pool_pid, 20 * 1024)
    before = cpu_seconds(server.pool_pid)
    time.sleep(1)
    assert cpu_seconds(server.pool_pid) - before < 0.1
    assert conns[0].request(params).status == 200 and conns[-1].request(params).status == 200
    for conn in conns:
        conn.close()


def test_soft_descriptor_limit_is_raised_to_the_hard_one(h2fpm):
    def low_soft():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024))

    server = h2fpm(preexec=low_soft)
    conns = [server.connect() for _ in range(200)]
    for conn in conns:
        assert conn.request(server.params()).status == 200
    for conn in conns:
        conn.close()


def test_connections_past_the_descriptor_limit_wait_and_none_is_refused(h2fpm):
    server = h2fpm(preexec=limit_files(64), pool={"pm.max_children": 2})
    conns = [server.start_get("/hello.php?%d" % i) for i in range(100)]
    answered = set()

    def read_ready():
        for i, conn in enumerate(conns):
            if i not in answered and not conn.quiet(0.001):
                assert conn.read_response().body == b"Hello, world\n"
                answered.add(i)
        return answered

    wait_until(lambda: len(read_ready()) >= 20, what="20 answers")
    time.sleep(0.5)
    assert 20 <= len(read_ready()) < 100, "the limit was not reached"
    before = cpu_seconds(server.pool_pid)
    time.sleep(1)
    assert cpu_seconds(server.pool_pid) - before < 0.3, "a busy loop"

    def close_answered():
        for i in list(read_ready()):
            conns[i].close()
        return len(answered) == 100

    wait_until(close_answered, 30, "all 100 answered")
    assert server.get("/hello.php").status == 200


def test_bodies_past_the_descriptor_limit_are_answered_or_refused_clearly(h2fpm):
    """Spool files need descriptors too."""
    server = h2fpm(preexec=limit_files(64), pool={"request.buffer_size": "16K"})
    conns = []
    for _ in range(40):
        conn = server.connect()
        params = server.params("/hash.php", "POST", CONTENT_LENGTH="60000")
        conn.send(fcgi.begin(1, keep=False) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)))
        conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 40000, end=False))
        conns.append(conn)
    for conn in conns:
        try:
            conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 20000))
        except (BrokenPipeError, ConnectionResetError):
            pass
        response = conn.read_response()
        assert response.complete
        assert response.text.startswith("60000 ") or 500 <= response.status < 600, response
        conn.close()
    assert server.post("/hash.php", b"x" * 60000).text.startswith("60000 ")


def test_burst_of_connections_waits_its_turn(h2fpm):
    """500 connections at once on one busy worker, all answered."""
    server = h2fpm(pool={"pm.max_children": 1, "listen.backlog": 4096})
    held = Held(server)
    conns = [server.start_get("/hello.php") for _ in range(500)]
    held.finish()
    assert [conn.read_response().status for conn in conns] == [200] * 500
    for conn in conns:
        conn.close()


def test_first_come_first_served_within_one_client(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    with fcgi.Mux(server.connect()) as mux:  # one connection: its order is known
        for i in range(20):
            mux.request(i + 1, server.params("/mark.php?dir=%s&id=%d" % (server.site.data, i)))
        assert mux.conn.quiet(0.1)
        held.finish()
        mux.wait()
    assert (server.site.data / "marks").read_text().split() == [str(i) for i in range(20)]


def upload_all_but_the_end(server):
    """A spooled body that lacks its last byte."""
    conn = server.connect()
    params = server.params("/hash.php", "POST", CONTENT_LENGTH="60000")
    conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)))
    conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 59999, end=False))
    return conn


def test_descriptors_of_spool_files_are_given_back(h2fpm):
    """Connections wait while uploads hold the descriptors, no longer."""
    server = h2fpm(preexec=limit_files(64), pool={"request.buffer_size": "16K"})
    uploads = []

    def full():
        uploads.append(upload_all_but_the_end(server))
        return server.log_lines("descriptors are in use")

    wait_until(full, what="no descriptor left")
    for conn in uploads[:-1]:
        conn.send(fcgi.stream(fcgi.STDIN, 1, b"x"))
        assert conn.read_response().complete
    assert server.get("/hello.php").status == 200
    for conn in uploads:
        conn.close()


def test_spool_files_leave_the_workers_their_descriptors(h2fpm):
    server = h2fpm(preexec=limit_files(64), pool={"request.buffer_size": "16K", "pm.max_children": 2})
    conns = [server.connect() for _ in range(30)]
    for conn in conns:
        assert conn.request(server.params()).status == 200
    params = server.params("/hash.php", "POST", CONTENT_LENGTH="60000")
    for conn in conns:
        conn.send(fcgi.begin(2) + fcgi.stream(fcgi.PARAMS, 2, fcgi.pairs(params)))
        conn.send(fcgi.stream(fcgi.STDIN, 2, b"x" * 59999, end=False))
    server.wait_log("cannot store a request body")
    old = server.wait_workers(2)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    server.wait_workers(2, without=old)
    for conn in conns:
        conn.close()
