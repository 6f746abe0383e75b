"""Stopping, draining and reopening logs, as php-fpm's master does."""
import os
import signal
import subprocess
import time

import pytest

import fcgi
from harness import Held, alive, wait_taken, wait_until


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_idle_stop_is_clean_and_quick(h2fpm, how):
    server = h2fpm()
    assert server.get().status == 200
    kept = server.connect()
    assert kept.request(server.params()).status == 200
    began = time.monotonic()
    server.stop(how)
    assert time.monotonic() - began < 5
    assert kept.closed_by_peer()


def given_up(response):
    """No answer of the script's: a refusal that says so, or just the close."""
    return not response.ended or response.status in (502, 503)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_does_not_wait_for_what_runs(h2fpm, how):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    waiting = server.start_get("/hello.php")
    began = time.monotonic()
    server.stop(how)
    assert time.monotonic() - began < 8
    assert given_up(held.conn.read_until_closed())
    assert given_up(waiting.read_until_closed())


def test_stop_right_after_the_start(h2fpm):
    for _ in range(3):
        server = h2fpm()
        server.stop()


def test_stop_without_waiting_for_readiness(h2fpm):
    server = h2fpm(start=False)
    for delay in (0.0, 0.01, 0.05):
        server.start(wait=False)
        time.sleep(delay)
        server.process.send_signal(signal.SIGTERM)
        got = server.process.wait(10)
        assert got in (0, -signal.SIGTERM), got  # before its handlers are set, the default is right
        if got == 0:
            server.check_nothing_left()
        server.process = None


def test_quit_finishes_what_runs_and_what_waits(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    kept, fresh = server.connect(), server.connect()
    assert kept.request(server.params()).body == b"Hello, world\n"
    held = Held(server)
    waiting = [server.start_get("/hello.php") for _ in range(3)]
    fresh.send(fcgi.record(fcgi.GET_VALUES, 0, fcgi.pairs({"FCGI_MAX_REQS": ""})))
    assert fresh.read_record()[0] == fcgi.GET_VALUES_RESULT  # it is accepted
    wait_taken(*waiting)
    server.seen.update(server.workers())
    server.process.send_signal(signal.SIGQUIT)

    # the drain has begun when the pool process has closed its listener (pool/link.h: descriptor 7)
    listener = "/proc/%d/fd/7" % server.pool_pid
    wait_until(lambda: not os.path.exists(listener), 5, "the drain begins")
    response = kept.request(server.params())
    assert response.status == 503 and int(response.headers["retry-after"]) > 0, response
    fresh.send(fcgi.request(server.params()))  # it came before: its first request is taken
    waiting.append(fresh)
    assert fresh.quiet(0.2)
    assert server.process.poll() is None
    assert b"passed" in held.finish().body
    assert [conn.read_response().body for conn in waiting] == [b"Hello, world\n"] * 4
    assert server.process.wait(15) == 0
    server.check_nothing_left()


def test_quit_twice_or_term_after_quit_still_ends(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    Held(server)
    server.seen.update(server.workers())
    server.process.send_signal(signal.SIGQUIT)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(1)
    server.stop(signal.SIGTERM)


def test_process_control_timeout_bounds_a_graceful_stop(h2fpm):
    server = h2fpm(main={"process_control_timeout": "1s"}, pool={"pm.max_children": 1})
    held = Held(server)
    began = time.monotonic()
    server.stop(signal.SIGQUIT)
    assert 0.5 < time.monotonic() - began < 10
    assert given_up(held.conn.read_until_closed())


def test_usr1_reopens_both_logs(h2fpm):
    server = h2fpm()
    server.get("/hello.php?one")
    server.wait_access(1)
    old_log, old_access = server.site.logs / "error.log.1", server.site.logs / "access.log.1"
    os.rename(server.log_path, old_log)
    os.rename(server.access_path, old_access)
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: server.log_path.exists() and server.access_path.exists(), what="new log files")

    def written_to_the_new():
        server.get("/hello.php?two")
        return server.access_lines()

    wait_until(written_to_the_new, what="an access log line in the new file")
    worker = server.workers()[0]
    os.kill(worker, signal.SIGKILL)
    assert server.wait_log(str(worker))
    assert str(worker) not in old_log.read_text()


def test_usr1_disturbs_no_request(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    waiting = server.start_get("/hello.php")
    pids = server.workers()
    for _ in range(5):
        server.process.send_signal(signal.SIGUSR1)
        time.sleep(0.02)
    assert b"passed" in held.finish().body
    assert waiting.read_response().status == 200
    assert server.workers() == pids


def test_pid_file_is_written_and_removed(h2fpm):
    server = h2fpm(start=False)
    path = server.site.run / "h2fpm.pid"
    server.global_settings["pid"] = path
    server.write_conf()
    server.start()
    assert int(path.read_text()) == server.master
    server.stop()
    assert not path.exists()


def test_daemon_goes_to_the_background_and_stops(h2fpm):
    server = h2fpm(start=False)
    path = server.site.run / "h2fpm.pid"
    server.global_settings.update({"pid": path, "daemonize": "yes"})
    server.write_conf()
    done = server.launch("-D", "-y", server.conf)
    assert done.returncode == 0, done.stderr
    pid = wait_until(lambda: path.exists() and path.read_text().strip() and int(path.read_text()))
    try:
        assert server.get().status == 200
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not alive(pid), what="the daemon ends")
        assert not os.path.exists(server.socket)
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
