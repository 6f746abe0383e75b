"""Workers that are not php-cgi: a well-behaved one made with libfcgi, and raw
ones that break the protocol in every way. Whatever a worker does, the client
gets a whole answer or sees that it is none, and the next request is served."""
import os
import signal

import pytest

import fcgi
from harness import Site, alive, proc_stat, wait_until


@pytest.fixture
def peer(h2fpm, peers):
    """peer("raw", "half") starts h2fpm with such workers."""

    def start(program, mode="", children=1, **pool):
        site = Site()
        flag = site.data / "flag"
        command = site.program("worker", '#!/bin/sh\nexec %s "%s" "%s"\n' % (peers[program], mode, flag))
        settings = {"pm.max_children": children, "worker.command": command, "request_terminate_timeout": "8s"}
        settings.update({name.replace("__", "."): value for name, value in pool.items()})
        server = h2fpm(workdir=site, pool=settings)
        server.own_site = True
        return server

    return start


def test_libfcgi_worker_sees_the_params(peer):
    server = peer("polite")
    lines = server.get("/hello.php?params", HTTP_X="y").text.splitlines()
    assert "HTTP_X=y" in lines and "QUERY_STRING=params" in lines
    assert [line for line in lines if line.startswith("H2FPM_QUEUE_WAIT_US=")]


def test_libfcgi_worker_reads_the_body(peer):
    assert peer("polite").post("/hello.php?body", b"\1" * 200000).text == "200000 200000"


def test_libfcgi_worker_serves_many_requests(peer):
    server = peer("polite")
    pids = server.wait_workers(1)
    with server.connect() as conn:
        for i in range(100):
            assert conn.request(server.params("/hello.php?big=%d" % (i * 100))).body == b"B" * (i * 100)
    assert server.workers() == pids


def test_application_status_is_passed_on(peer):
    response = peer("polite").get("/hello.php?status")
    assert response.complete and response.body == b"seven" and response.app_status == 7


def test_answer_without_output_is_no_hang(peer):
    server = peer("polite")
    response = server.get("/hello.php?nothing")
    assert response.ended and response.status in (200, 502)
    assert server.get("/hello.php?params").status == 200


def test_worker_with_100000_stderr_lines(peer):
    server = peer("polite")
    response = server.get("/hello.php?stderr=100000", timeout=60)
    assert response.complete and response.body == b"logged"
    assert b"line 0 of the error stream" in response.stderr
    assert b"line 99999 of the error stream" in response.stderr
    assert server.get("/hello.php?params").status == 200


def test_php_script_with_100000_stderr_lines(h2fpm):
    server = h2fpm()
    response = server.get("/stderr.php?lines=100000", timeout=60)
    assert response.complete and response.body == b"logged"
    assert response.stderr.count(b"to the error log ") == 100000


def test_worker_that_closes_its_output_and_lives_on(peer):
    server = peer("polite")
    response = server.get("/hello.php?finish")
    assert response.complete and response.body == b"finished"
    assert server.get("/hello.php?params").status == 200


GOOD = ["good", "pieces", "padded", "lingering"]


@pytest.mark.parametrize("mode", GOOD)
def test_unusual_but_right_answers(peer, mode):
    server = peer("raw", mode)
    with server.connect() as conn:
        for _ in range(3):
            response = conn.request(server.params())
            assert response.complete and response.status == 200 and response.body == b"good"


NO_ANSWER = ["close", "exit", "halfheader", "garbage", "version"]


@pytest.mark.parametrize("mode", NO_ANSWER)
def test_no_answer_gives_502_twice_tried_for_get(peer, mode):
    server = peer("raw", mode, children=2)
    for _ in range(2):
        response = server.get("/hello.php", timeout=40)
        assert response.complete and response.status in (502, 503), response
    assert server.log_lines("WARNING") or server.log_lines("ERROR")


@pytest.mark.parametrize("mode", NO_ANSWER)
def test_no_answer_once_is_repaired_for_get(peer, mode):
    server = peer("raw", mode + "-once")
    assert server.get("/hello.php").body == b"good"


@pytest.mark.parametrize("mode", NO_ANSWER)
def test_no_answer_once_is_502_for_post(peer, mode):
    server = peer("raw", mode + "-once")
    response = server.post("/hello.php", b"x")
    assert response.complete and response.status == 502
    assert server.post("/hello.php", b"x").body == b"good"


@pytest.mark.parametrize("mode", ["half", "short"])
def test_half_an_answer_never_looks_whole(peer, mode):
    server = peer("raw", mode)
    with server.connect() as conn:
        conn.send(fcgi.request(server.params("/hello.php", "POST", CONTENT_LENGTH="1"), b"x"))
        response = conn.read_until_closed()
        assert not response.ended or response.status == 502, response


@pytest.mark.parametrize("mode", ["endonly", "overloaded", "otherid", "early", "chatty"])
def test_odd_answers_are_no_hang_and_the_next_is_served(peer, mode):
    server = peer("raw", mode + "-once", request_terminate_timeout="3s")
    response = server.get("/hello.php", timeout=30)
    assert response.ended and response.status in (200, 502, 503, 504), response
    assert server.get("/hello.php", timeout=30).body == b"good"


def test_answer_not_asked_for_does_not_reach_the_next_client(peer):
    server = peer("raw", "chatty")
    for _ in range(10):
        response = server.get("/hello.php")
        assert b"unasked" not in response.stdout, response


def test_worker_that_says_too_much_and_dies_costs_only_itself(peer):
    """Its death is known before its bytes are read: both come while the pool
    process is stopped."""
    server = peer("raw", "lastwords-once")
    pool = server.pool_pid
    (worker,) = server.wait_workers(1)
    with server.start_get("/hello.php") as conn:
        wait_until(lambda: proc_stat(worker)[0] == "T", what="the worker has stopped itself")
        os.kill(pool, signal.SIGSTOP)
        os.kill(worker, signal.SIGCONT)
        wait_until(lambda: not alive(worker), what="the worker's end")
        os.kill(pool, signal.SIGCONT)
        assert conn.read_response().body == b"good"
    assert server.get("/hello.php").body == b"good"
    assert server.pool_pid == pool, "it took the pool process with it"


def test_worker_that_never_answers_the_start_probe(peer):
    """It is no worker: what waits gets 503 in the end, and stopping works."""
    server = peer("raw", "mute", queue__timeout="3s")
    response = server.get("/hello.php", timeout=60)
    assert response.complete and response.status in (502, 503, 504)


def test_worker_that_never_answers_the_start_probe_once_is_replaced(peer):
    server = peer("raw", "mute-once", queue__timeout="60s", worker__start_timeout="500ms")
    first = wait_until(lambda: server.workers())
    assert server.get("/hello.php", timeout=60).body == b"good"
    assert not alive(first[0])


def test_worker_that_never_answers_a_request_is_timed_out(peer):
    server = peer("raw", "deaf", request_terminate_timeout="1s")
    pids = server.wait_workers(1)
    assert server.post("/hello.php", b"x").status == 504
    server.wait_workers(1, without=pids)
