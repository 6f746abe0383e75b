"""Workers by fork + exec of the command for each: programs in C and Perl, a
command that is linked statically, a script before php-cgi; and what happens
when such a command is to be a zygote."""
import os
import re
import shutil
import signal
import subprocess

import pytest

from harness import ROOT, Held, Site, alive, children, wait_until

PERL = ROOT / "tests" / "peers" / "responder.pl"
have_perl_fcgi = subprocess.run(["perl", "-MFCGI", "-e", "1"], capture_output=True, check=False).returncode == 0
PROGRAMS = ["c", pytest.param("perl", marks=pytest.mark.skipif(not have_perl_fcgi, reason="no libfcgi-perl"))]


@pytest.fixture
def server_of(h2fpm, peers):
    """server_of("perl", pm__max_requests=5) starts h2fpm with such workers."""

    def start(program, settings=None, main=None, **pool):
        site = Site()
        source = {"c": peers["lasting"], "perl": PERL}.get(program, program)
        command = site.dir / "php-worker"  # the name that auto goes by
        shutil.copy(source, command)
        command.chmod(0o755)
        pool = {name.replace("__", "."): value for name, value in pool.items()}
        pool = {"worker.command": command, "worker.spawn": "exec", **(settings or {}), **pool}
        server = h2fpm(workdir=site, pool=pool, main=main)
        server.own_site = True
        return server

    return start


def pid_and_count(response):
    assert response.complete and response.status == 200, response
    return tuple(map(int, response.text.split()[:2]))


@pytest.mark.parametrize("program", PROGRAMS)
def test_served_over_a_kept_connection_by_the_same_worker(server_of, program):
    server = server_of(program, pm__max_children=1)
    with server.connect() as conn:
        got = [pid_and_count(conn.request(server.params("/hello.php"))) for _ in range(50)]
    assert got == [(server.workers()[0], n) for n in range(1, 51)]
    wait_until(lambda: server.zygotes() == [])  # one that is just forked looks like one


@pytest.mark.parametrize("program", PROGRAMS)
def test_body_and_environment_arrive(server_of, program, peers):
    server = server_of(program, {"env[MINE]": "a value"})
    lines = server.get("/hello.php?environ").text.splitlines()
    assert "MINE=a value" in lines
    assert not [line for line in lines if re.match("LD_PRELOAD|H2FPM_", line)], lines
    if program == "perl":
        assert server.post("/hello.php?body", b"b" * 300000).text.split()[2] == "300000"


@pytest.mark.parametrize("program", PROGRAMS)
def test_max_requests_is_exact(server_of, program):
    server = server_of(program, pm__max_children=1, pm__max_requests=5)
    with server.connect() as conn:
        got = [pid_and_count(conn.request(server.params("/hello.php"))) for _ in range(40)]
    assert max(count for _, count in got) <= 5
    assert len({pid for pid, _ in got}) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_crash_costs_one_request_and_is_made_good(server_of, program):
    server = server_of(program, pm__max_children=1)
    pid, _ = pid_and_count(server.get("/hello.php"))
    assert server.post("/hello.php?crash", b"x").status == 502
    line = server.wait_log("child %d exited" % pid)[0]
    assert re.search(r"\bsignal (11|SIGSEGV)\b", line), line
    other, count = pid_and_count(server.get("/hello.php"))
    assert other != pid and count == 1
    os.kill(other, signal.SIGKILL)
    server.wait_workers(1, without=[pid, other])
    assert pid_and_count(server.get("/hello.php"))[0] not in (pid, other)


@pytest.mark.parametrize("program", PROGRAMS)
def test_ondemand_starts_one_for_each_request_and_ends_idle_ones(server_of, program):
    server = server_of(
        program, {"pm": "ondemand", "pm.max_children": 3, "pm.process_idle_timeout": "1s"}
    )
    assert server.workers() == []
    flag = server.site.data / "go"
    conns = [server.start_get("/hello.php?hold=%s" % flag) for _ in range(3)]
    wait_until(lambda: len(list(server.site.data.glob("go.started.*"))) == 3, what="three that run")
    workers = server.wait_workers(3)
    flag.touch()
    assert {pid_and_count(conn.read_response())[0] for conn in conns} == set(workers)
    server.wait_workers(0)
    assert pid_and_count(server.get("/hello.php"))[1] == 1


def test_responder_that_works_on_after_its_answer_is_left_alone(server_of):
    server = server_of("c", pm__max_children=1, request_terminate_timeout="1s")
    done = server.site.data / "done"
    pid_and_count(server.get("/hello.php?work=%s" % done))
    wait_until(done.exists, timeout=60, what="the work's end")


def test_responder_that_works_on_is_under_the_limit_when_tracked(server_of):
    server = server_of(
        "c",
        pm__max_children=1,
        request_terminate_timeout="1s",
        request_terminate_timeout_track_finished="yes",
    )
    done = server.site.data / "done"
    pid, _ = pid_and_count(server.get("/hello.php?work=%s" % done))
    wait_until(lambda: not alive(pid), what="its end")
    assert not done.exists()
    assert pid_and_count(server.get("/hello.php"))[0] != pid


def test_tracked_responder_that_ends_in_time_lives_on(server_of):
    server = server_of(
        "c",
        pm__max_children=1,
        request_terminate_timeout="60s",
        request_terminate_timeout_track_finished="yes",
    )
    done = server.site.data / "done"
    with server.connect(timeout=60) as conn:
        first = pid_and_count(conn.request(server.params("/hello.php?work=%s" % done)))
        assert pid_and_count(conn.request(server.params("/hello.php"))) == (first[0], 2)
    assert done.exists()


# ---- commands that can be no zygote ----


@pytest.fixture(scope="session")
def static_responder(shared_dir):
    out = shared_dir / "static"
    source = ROOT / "tests" / "peers" / "lasting.c"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-static", "-o", str(out), str(source), "-lfcgi"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        pytest.skip("cannot link statically: %s" % done.stderr.decode()[-200:])
    out.chmod(0o755)
    return out


@pytest.mark.parametrize("spawn", ["exec", "auto", "zygote"])
def test_static_command_is_served(server_of, static_responder, spawn):
    server = server_of(static_responder, worker__spawn=spawn, worker__start_timeout="2s")
    assert len(server.wait_workers(2)) == 2
    with server.connect() as conn:
        for _ in range(20):
            pid_and_count(conn.request(server.params("/hello.php")))
    assert len(server.log_lines("WARNING", "worker.spawn")) == (0 if spawn == "exec" else 1), server.log()
    wait_until(lambda: server.zygotes() == [])  # one that is just forked looks like one


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("spawn", ["auto", "zygote"])
def test_command_that_is_no_php_is_served_and_one_line_says_how(server_of, program, spawn):
    server = server_of(program, worker__spawn=spawn, worker__start_timeout="2s")
    for _ in range(5):
        pid_and_count(server.get("/hello.php"))
    server.wait_workers(2)
    pid_and_count(server.get("/hello.php"))
    assert len(server.log_lines("WARNING", "worker.spawn")) == 1, server.log()
    wait_until(lambda: server.zygotes() == [])  # one that is just forked looks like one


# ---- scripts before php-cgi ----

WRAPPER = """#!/bin/sh
PHP_FCGI_CHILDREN=4
PHP_FCGI_MAX_REQUESTS=3
export PHP_FCGI_CHILDREN PHP_FCGI_MAX_REQUESTS
exec php-cgi
"""


@pytest.fixture
def wrapped(h2fpm):
    def start(**pool):
        site = Site()
        command = site.program("php-wrapper", WRAPPER)
        pool = {name.replace("__", "."): value for name, value in pool.items()}
        server = h2fpm(workdir=site, pool={"worker.command": command, "pm.max_children": 1, **pool})
        server.own_site = True
        return server

    return start


def test_wrapper_gets_one_zygote_and_its_own_counts_do_not_rule(wrapped):
    """One worker, not four, that lives past its third request."""
    server = wrapped()
    with server.connect() as conn:
        pids = {conn.request(server.params("/pid.php")).text for _ in range(20)}
    assert pids == {str(server.wait_workers(1)[0])}
    zygote = server.wait_zygote()
    assert children(zygote) == []
    assert server.get("/getenv.php?name=PHP_FCGI_CHILDREN").text.startswith("[false,false")


def test_wrapper_served_by_exec(wrapped):
    """Its php-cgi has children of its own then; it is served all the same."""
    server = wrapped(worker__spawn="exec")
    with server.connect() as conn:
        for _ in range(10):
            assert conn.request(server.params("/pid.php")).status == 200


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_two_requests_at_once_run_in_two_workers(h2fpm, spawn):
    server = h2fpm(pool={"worker.spawn": spawn})
    held = [Held(server) for _ in range(2)]
    assert len({one.pid for one in held}) == 2
    assert [one.finish().status for one in held] == [200, 200]
    assert len(server.zygotes()) == (1 if spawn == "auto" else 0)
