"""Everything that dies or hangs is replaced, and what that costs the client."""
import collections
import os
import random
import re
import signal
import threading
import time

import pytest

import fcgi
from harness import Held, Site, alive, children, cpu_seconds, descendants, proc_status, wait_until


def quietly_kill(pid, how=signal.SIGKILL):
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_idle_worker_that_dies_is_replaced(h2fpm, how):
    server = h2fpm(pool={"pm.max_children": 2})
    old = server.wait_workers(2)
    os.kill(old[0], how)
    new = server.wait_workers(2, without=[old[0]])
    assert old[1] in new
    assert server.get().status == 200
    line = server.wait_log("child %d exited" % old[0])[0]
    assert "www" in line and re.search(r"\bsignal (%d|%s)\b" % (how, how.name), line), line


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR1])
def test_worker_told_to_go_fails_nothing_and_is_replaced(h2fpm, how):
    """php-cgi takes these as: one more request, then exit."""
    server = h2fpm(pool={"pm.max_children": 2})
    for _ in range(3):
        old = server.wait_workers(2)
        os.kill(old[0], how)
        with server.connect() as conn:
            for _ in range(30):
                assert conn.request(server.params("/pid.php")).status == 200
        held = [Held(server) for _ in range(2)]  # each worker had one at the least
        assert [one.finish().status for one in held] == [200, 200]
        server.wait_workers(2, without=old[:1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_pool_process_comes_before_its_workers_and_they_are_as_the_master(h2fpm):
    server = h2fpm()
    workers = server.wait_workers(2)
    master = os.getpriority(os.PRIO_PROCESS, server.master)
    assert os.getpriority(os.PRIO_PROCESS, server.pool_pid) == max(master - 10, -20)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in workers} == {master}


def test_all_idle_workers_killed_at_once_are_replaced(h2fpm):
    server = h2fpm(pool={"pm.max_children": 4})
    old = server.wait_workers(4)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    assert server.get().status == 200
    server.wait_workers(4, without=old)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_worker_dies_under_a_repeatable_request_and_another_answers(h2fpm, method, how):
    server = h2fpm(pool={"pm.max_children": 2})
    held = Held(server, method)
    os.kill(held.pid, how)
    held.wait_started(2)
    response = held.finish()
    assert response.complete and response.status == 200, response
    if method != "HEAD":
        assert int(response.text.split()[1]) != held.pid


def test_single_worker_dies_under_get_and_its_successor_answers(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    os.kill(held.pid, signal.SIGKILL)
    held.wait_started(2)
    assert held.finish().status == 200


def test_repeated_request_waits_ahead_of_the_queue_or_in_it_but_is_served(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    waiting = [server.start_get("/hello.php") for _ in range(5)]
    os.kill(held.pid, signal.SIGKILL)
    held.release()
    assert held.conn.read_response().status == 200
    assert [conn.read_response().status for conn in waiting] == [200] * 5


def test_worker_dies_under_post_is_502_with_all_said_in_the_log(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    held = Held(server, "POST")
    os.kill(held.pid, signal.SIGKILL)
    response = held.conn.read_response()
    assert response.complete and response.status == 502, response
    assert len(held.started()) == 1, "a POST was run twice"
    line = server.wait_log("child %d exited" % held.pid)[0]
    for needle in ("www", "POST", held.uri, str(server.site.www / "gate.php")):
        assert needle in line, (needle, line)
    assert re.search(r"\bsignal (9|SIGKILL)\b", line), line
    assert re.search(r"\d+(\.\d+)? ?s(econds?)?\b", line), line
    assert held.conn.request(server.params()).status == 200


def test_worker_that_exits_is_told_by_its_status(h2fpm, peers):
    site = Site()
    worker = site.program("worker", '#!/bin/sh\nexec %s exit-once %s\n' % (peers["raw"], site.data / "flag"))
    server = h2fpm(workdir=site, pool={"worker.command": worker, "pm.max_children": 1})
    server.own_site = True
    assert server.post("/hello.php", b"x").status == 502
    line = server.wait_log("/hello.php", "POST", "exited")[0]
    assert re.search(r"(code|status) 3\b", line), line


def test_get_that_kills_two_workers_is_502(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    response = server.get("/crash.php?dir=%s" % server.site.data)
    assert response.complete and response.status == 502, response
    assert len((server.site.data / "attempts").read_text().split()) == 2
    server.wait_workers(2)
    assert server.get().status == 200


def test_crashing_script_does_not_hold_up_the_others(h2fpm):
    """Workers that die of a request, young and with nothing served before, are
    replaced at once: they did start."""
    server = h2fpm(pool={"pm.max_children": 2})
    for _ in range(8):
        assert server.post("/crash.php?signal=11&dir=%s" % server.site.data, b"x").status == 502
    assert server.get().status == 200
    server.wait_workers(2)
    assert not server.log_lines("at their start"), server.log()


def test_get_that_kills_one_worker_is_200(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    response = server.get("/crash.php?once=1&dir=%s" % server.site.data)
    assert response.status == 200 and response.body == b"survived 2"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_worker_that_dies_in_mid_answer_cuts_the_connection(h2fpm, method):
    server = h2fpm(pool={"pm.max_children": 1})
    with server.connect() as conn:
        uri = "/crash.php?when=middle&dir=%s" % server.site.data
        conn.send(fcgi.request(server.params(uri, method)))
        response = conn.read_until_closed()
    assert not response.ended, response
    assert len((server.site.data / "attempts").read_text().split()) == 1, "run twice"
    assert server.get().status == 200


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("length", ["", "header('Content-Length: 200000');"], ids=["no-length", "content-length"])
def test_nginx_sees_a_cut_answer_as_an_error(h2fpm, nginx, buffering, length):
    server = h2fpm(pool={"pm.max_children": 1})
    front = nginx(server, buffering=buffering)
    server.site.script(
        "cut.php",
        "<?php " + length + " while (ob_get_level()) ob_end_flush(); echo str_repeat('c', 100000); flush(); usleep(300000);"
        " posix_kill(getmypid(), 9); sleep(9);",
    )
    with pytest.raises(AssertionError, match="curl: exit (18|56|92|95)"):
        front.curl("/cut.php")
    assert front.curl("/hello.php")[0] == 200


def test_worker_killed_at_random_under_load_fails_no_get(h2fpm):
    """Each kill waits until every visitor has had some answers since the last one,
    which may be noticed late: a GET that loses two workers in a row may fail."""
    server = h2fpm(pool={"pm.max_children": 4})
    server.wait_workers(4)
    stop = threading.Event()
    bad, done = [], [0] * 8

    def visit(me):
        conn = server.connect(timeout=30)
        while not stop.is_set():
            try:
                response = conn.request(server.params("/slow.php?ms=5"))
                if not response.complete or response.status != 200:
                    bad.append(repr(response))
            except Exception as error:  # whatever it is, it is a failed request
                bad.append(repr(error))
                conn = server.connect(timeout=30)
            done[me] += 1
        conn.close()

    threads = [threading.Thread(target=visit, args=(me,)) for me in range(len(done))]
    for thread in threads:
        thread.start()
    rng = random.Random(3)
    try:
        for _ in range(40):
            before = list(done)
            quietly_kill(rng.choice(wait_until(server.workers)))
            wait_until(lambda: all(now > then + 3 for now, then in zip(done, before)), 30, "answers to all")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not bad, (len(bad), bad[:3])


# ---- workers that cannot start ----


def starts(server):
    """Log lines that tell of a worker's death at start."""
    return [line for line in server.log().splitlines() if re.search(r"(exited|died|start)", line) and "www" in line]


def test_worker_command_that_fails_is_503_and_bounded(h2fpm):
    server = h2fpm(pool={"worker.command": "/bin/false", "pm.max_children": 2, "queue.timeout": "1s"})
    for _ in range(2):
        response = server.get("/hello.php")
        assert response.complete and response.status == 503, response
        assert int(response.headers["retry-after"]) > 0
    before = cpu_seconds(server.pool_pid)
    lines = len(server.log().splitlines())
    time.sleep(2)
    assert cpu_seconds(server.pool_pid) - before < 0.3, "a busy loop"
    assert len(server.log().splitlines()) - lines < 30, server.log()
    assert len(starts(server)) >= 1
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5


def test_worker_starts_get_rarer(h2fpm):
    """Each start leaves a line with its time; the gaps must grow."""
    site = Site()
    worker = site.program("worker", "#!/bin/sh\ndate +%%s.%%N >>%s/starts\nexit 1\n" % site.data)
    server = h2fpm(workdir=site, pool={"worker.command": worker, "pm.max_children": 1})
    server.own_site = True
    path = site.data / "starts"

    def times():
        return [float(t) for t in path.read_text().split()] if path.exists() else []

    wait_until(lambda: len(times()) >= 5, 20, "five starts")
    got = times()
    gaps = [b - a for a, b in zip(got, got[1:])]
    assert gaps[3] > gaps[0] and gaps[3] > 0.2, gaps
    time.sleep(1)
    assert len(times()) < 12, "%d starts" % len(times())


def test_requests_wait_for_a_worker_command_that_recovers(h2fpm):
    site = Site()
    worker = site.program("worker", '#!/bin/sh\n[ -e %s/healed ] || exit 1\nexec php-cgi "$@"\n' % site.data)
    server = h2fpm(workdir=site, pool={"worker.command": worker, "pm.max_children": 1, "queue.timeout": "60s"})
    server.own_site = True
    waiting = server.start_get("/hello.php")
    assert waiting.quiet(0.5)
    (site.data / "healed").touch()
    assert waiting.read_response().body == b"Hello, world\n"


def test_worker_command_that_does_not_exist_is_told(h2fpm):
    server = h2fpm(start=False, pool={"worker.command": "/no/such/command", "queue.timeout": "1s"})
    server.start(wait=False)
    wait_until(lambda: server.process.poll() is not None)
    assert server.process.returncode == 78
    assert "/no/such/command" in server.all_output()
    server.process = None


# ---- the pool process and the master ----


def test_pool_process_killed_is_restarted_and_its_workers_are_gone(h2fpm):
    server = h2fpm()
    pool, workers = server.pool_pid, server.wait_workers(2)
    held = Held(server)
    os.kill(pool, signal.SIGKILL)
    assert not held.conn.read_until_closed().ended
    assert server.get("/hello.php").status == 200
    new = wait_until(lambda: [p for p in server.pool_pids() if p != pool])
    assert len(new) == 1
    wait_until(lambda: not [pid for pid in workers if alive(pid)], what="the old workers are gone")
    line = server.wait_log(str(pool))[0]
    assert "www" in line and re.search(r"signal (9|SIGKILL)", server.log()), line


def test_pool_process_killed_again_and_again_comes_back(h2fpm):
    server = h2fpm()
    for _ in range(3):
        old = server.pool_pid
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: [p for p in server.pool_pids() if p != old], 30, "a new pool process")
        assert server.get("/hello.php", timeout=30).status == 200


def test_connections_wait_in_the_backlog_while_the_pool_restarts(h2fpm):
    server = h2fpm()
    old = server.pool_pid
    os.kill(old, signal.SIGSTOP)
    conns = [server.start_get("/hello.php") for _ in range(20)]
    os.kill(old, signal.SIGKILL)
    assert [conn.read_response().status for conn in conns] == [200] * 20


def test_pool_process_that_hangs_is_killed_and_restarted(h2fpm):
    server = h2fpm(main={"watchdog.timeout": "2s"})
    pool, workers = server.pool_pid, server.wait_workers(2)
    os.kill(pool, signal.SIGSTOP)
    assert server.get("/hello.php", timeout=30).status == 200
    assert not alive(pool)
    wait_until(lambda: not [pid for pid in workers if alive(pid)], what="the old workers are gone")
    assert server.log_lines("www", str(pool))


def test_busy_pool_process_is_not_taken_for_hung(h2fpm):
    server = h2fpm(main={"watchdog.timeout": "2s"}, pool={"pm.max_children": 1})
    pool = server.pool_pid
    held = Held(server)
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        assert server.pool_pid == pool
        time.sleep(0.1)
    assert b"passed" in held.finish().body


def test_master_killed_takes_everything_with_it(h2fpm):
    server = h2fpm()
    held = Held(server)
    server.wait_workers(2)
    everyone = descendants(server.master)
    assert len(everyone) == 3 + len(server.zygotes())
    server.process.kill()
    server.process.wait(10)
    wait_until(lambda: not [pid for pid in everyone if alive(pid)], what="all gone")
    held.conn.close()
    server.check_nothing_left(sockets=False)
    server.log_path.unlink()
    server.start()  # on the socket that the dead one left
    assert server.get().status == 200


def test_running_worker_does_not_outlive_a_stop(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    server.stop()
    assert not alive(held.pid)


def test_max_requests_is_exact(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2, "pm.max_requests": 5})
    with server.connect() as conn:
        pids = [conn.request(server.params("/pid.php")).text for _ in range(60)]
    counts = collections.Counter(pids)
    assert all(count <= 5 for count in counts.values()), counts
    # but of the two, and of those that are to replace them
    assert sum(count == 5 for count in counts.values()) >= len(counts) - 4, counts


def test_max_requests_fails_nothing_under_load(h2fpm):
    server = h2fpm(pool={"pm.max_children": 3, "pm.max_requests": 7})
    got, bad = [], []

    def visit():
        with server.connect() as conn:
            for _ in range(60):
                response = conn.request(server.params("/pid.php", "POST"))
                (got if response.complete and response.status == 200 else bad).append(response.text)

    threads = [threading.Thread(target=visit) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad and len(got) == 300, bad[:3]
    assert max(collections.Counter(got).values()) == 7


def test_worker_serves_past_php_cgis_own_500_requests(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    with server.connect() as conn:
        pids = {conn.request(server.params("/pid.php")).text for _ in range(1100)}
    assert len(pids) == 1, "php-cgi's own limit showed"


# ---- rest ----


def switches(pid):
    return int(proc_status(pid)["voluntary_ctxt_switches"])


def test_idle_pool_process_wakes_only_for_the_heartbeat(h2fpm):
    server = h2fpm()
    assert server.get().status == 200
    server.wait_workers(2)
    time.sleep(1)  # what follows a request has settled
    pool = server.pool_pid
    before, master_before = switches(pool), switches(server.master)
    time.sleep(3)
    assert switches(pool) - before <= 8, "%d wakeups in 3 s" % (switches(pool) - before)
    assert switches(server.master) - master_before <= 12


def test_idle_workers_sleep(h2fpm):
    server = h2fpm()
    for pid in server.wait_workers(2):
        before = switches(pid)
        time.sleep(1)
        assert switches(pid) - before <= 3


def test_worker_output_is_caught_in_the_log(h2fpm, peers):
    site = Site()
    worker = site.program(
        "worker", "#!/bin/sh\necho 'said on its stderr' >&2\nexec %s good x\n" % peers["raw"]
    )
    server = h2fpm(workdir=site, pool={"worker.command": worker, "pm.max_children": 1})
    server.own_site = True
    assert server.wait_log("said on its stderr", "www")


def test_no_zombies_are_kept(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    for _ in range(5):
        workers = server.wait_workers(2)
        quietly_kill(workers[0])
        server.wait_workers(2, without=workers[:1])
    pool = server.pool_pid
    states = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = proc_status(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(status["PPid"]) == pool:
                states.append(status["State"][0])
    assert "Z" not in states and len(server.workers()) == 2
