"""Workers that have served their time, and generations: pm.max_requests,
worker.max_lifetime, worker.max_memory, reload and emergency restart. Whatever
is replaced, no request fails."""
import collections
import os
import signal
import subprocess
import threading

import pytest

from harness import Held, Site, alive, wait_until


class Load:
    """Clients, each with a kept-alive connection, that ask until told to stop.
    answers: (pid, text) of each; wrong: what was no 200."""

    def __init__(self, server, uri="/pid.php", clients=4):
        self.server, self.uri = server, uri
        self.answers, self.wrong = [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        try:
            with self.server.connect(timeout=60) as conn:
                while not self.over.is_set():
                    response = conn.request(self.server.params(self.uri))
                    good = response.complete and response.status == 200
                    (self.answers if good else self.wrong).append(response.text if good else response)
        except Exception as error:  # it is what the test looks at
            self.wrong.append(error)

    def wait(self, count):
        wait_until(lambda: len(self.answers) >= count or self.wrong, 60, "%d answers" % count)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(90)
        assert not self.wrong, self.wrong[:5]
        return self.answers


def check_log_is_quiet(server):
    wrong = [line for line in server.log_lines("WARNING") if "pm.max_children" not in line]
    assert not wrong, wrong[:5]


def ask(server, uri="/pid.php"):
    response = server.get(uri)
    assert response.complete and response.status == 200, response
    return response.text


# ---- pm.max_requests ----


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_one_request_a_worker_over_a_kept_connection(h2fpm, spawn):
    count = 200 if spawn == "auto" else 40
    server = h2fpm(pool={"pm.max_requests": 1, "worker.spawn": spawn})
    with server.connect(timeout=60) as conn:
        responses = [conn.request(server.params("/pid.php")) for _ in range(count)]
    assert [response.status for response in responses] == [200] * count
    assert len({response.text for response in responses}) == count
    server.wait_workers(2)
    check_log_is_quiet(server)


@pytest.mark.parametrize("mode", ["static", "ondemand"])
def test_no_worker_has_more_than_max_requests(h2fpm, mode):
    server = h2fpm(pool={"pm": mode, "pm.max_children": 4, "pm.max_requests": 50})
    load = Load(server)
    load.wait(2000)
    served = collections.Counter(load.stop())
    assert max(served.values()) <= 50
    assert len(served) >= 2000 // 50
    wait_until(lambda: len(server.workers()) <= 4, what="the end of the spent ones")
    check_log_is_quiet(server)


def test_replacement_is_up_before_the_worker_goes(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "pm.max_requests": 5})
    with server.connect() as conn:
        pids = {int(conn.request(server.params("/pid.php")).text) for _ in range(3)}
    assert pids == set(server.wait_workers(1))
    held = Held(server)  # its last but one
    assert {held.pid} == pids
    server.wait_workers(2)
    other = int(ask(server))
    assert other != held.pid and alive(held.pid)
    assert held.finish().status == 200
    assert server.wait_workers(1, without=pids) == [other]


# ---- worker.max_memory ----


def test_worker_over_max_memory_is_replaced_and_nothing_fails(h2fpm):
    if "FFI" not in subprocess.run(["php-cgi", "-m"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this PHP has no FFI")
    server = h2fpm(
        pool={"pm.max_children": 1, "worker.max_memory": "64M", "php_admin_value[ffi.enable]": "true"}
    )
    pids = [ask(server, "/leak.php?mb=20") for _ in range(12)]
    runs = collections.Counter(pids)
    assert len(runs) >= 2, "more than 64 MiB were kept: %r" % runs
    assert max(runs.values()) >= 3, "replaced too early: %r" % runs
    with server.connect() as conn:
        small = {conn.request(server.params("/leak.php?mb=0")).text for _ in range(50)}
    assert len(small) <= 2, "small ones were replaced too"


def test_worker_over_max_memory_is_replaced_after_a_request_only(h2fpm):
    """Where any worker is over it, those that nobody asks for anything stay."""
    server = h2fpm(pool={"pm.max_children": 2, "worker.max_memory": "1K"})
    pids = set(server.wait_workers(2))
    used = ask(server, "/pid.php")
    wait_until(lambda: not alive(int(used)), what="the used one is replaced")
    assert pids - {int(used)} < set(server.wait_workers(2))


def test_program_in_c_over_max_memory_is_replaced(h2fpm, peers):
    site = Site()
    command = site.program("worker", "#!/bin/sh\nexec %s\n" % peers["lasting"])
    server = h2fpm(
        workdir=site,
        pool={"worker.command": command, "worker.spawn": "exec", "pm.max_children": 1, "worker.max_memory": "64M"},
    )
    server.own_site = True
    pids = [ask(server, "/hello.php?leak=20").split()[0] for _ in range(12)]
    runs = collections.Counter(pids)
    assert len(runs) >= 2 and max(runs.values()) >= 3, runs


# ---- worker.max_lifetime ----


def test_worker_over_max_lifetime_is_replaced_under_load_and_idle(h2fpm):
    server = h2fpm(pool={"worker.max_lifetime": "2s"})
    first = server.wait_workers(2)
    load = Load(server, clients=2)
    wait_until(lambda: not any(map(alive, first)) or load.wrong, what="their end")
    load.stop()
    second = server.wait_workers(2, without=first)
    server.wait_workers(2, without=first + second)
    assert ask(server)


def test_request_that_outlasts_the_lifetime_is_finished(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "worker.max_lifetime": "1s"})
    held = Held(server)
    both = server.wait_workers(2)
    assert held.pid in both
    assert held.finish().status == 200
    wait_until(lambda: not alive(held.pid), what="its end")


# ---- reload ----


@pytest.fixture
def with_ini(h2fpm):
    """with_ini() starts one whose php.ini is a file of the test's:
    server.ini(line…) writes it."""

    def start(*lines, **pool):
        server = h2fpm(start=False)
        file = server.site.dir / "ini" / "php.ini"
        file.parent.mkdir()

        def write(*new):
            file.write_text("\n".join(new) + "\n")

        server.ini = write
        server.ini(*lines)
        server.settings["env[PHPRC]"] = file.parent
        server.settings.update({name.replace("__", "."): value for name, value in pool.items()})
        server.write_conf()
        return server.start()

    return start


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_reload_reads_php_ini_anew_and_fails_no_request(with_ini, spawn):
    server = with_ini("user_agent = one", worker__spawn=spawn, pm__max_children=3)
    old = server.wait_workers(3)
    pool = server.pool_pid
    load = Load(server, "/ini.php?name=user_agent")
    load.wait(50)
    for number in ("two", "three"):
        server.ini("user_agent = " + number)
        os.kill(server.master, signal.SIGUSR2)
        wait_until(lambda: load.answers[-1:] == ["'%s'" % number] or load.wrong, 30, number)
        server.wait_workers(3, without=old)
        old = server.wait_workers(3)
    answers = load.stop()
    changes = [a for a, b in zip(answers, answers[1:]) if a != b]
    assert set(answers) == {"'one'", "'two'", "'three'"}, collections.Counter(answers)
    assert changes
    assert ask(server, "/ini.php?name=user_agent") == "'three'"
    assert server.pool_pid == pool


def test_reload_changes_the_zygote_and_ends_the_old_one(with_ini):
    server = with_ini("user_agent = one")
    zygote = server.wait_zygote()
    held = Held(server)
    os.kill(server.master, signal.SIGUSR2)
    fresh = server.wait_zygote(without=[zygote])
    wait_until(lambda: held.pid in server.workers() and len(server.workers()) >= 2, what="a new worker")
    assert int(ask(server)) != held.pid
    assert held.finish().status == 200, "a request of the old generation was lost"
    wait_until(lambda: not alive(zygote) and not alive(held.pid), what="the old generation's end")
    assert server.zygotes() == [fresh]
    server.wait_workers(2)


GOOD = "<?php\nfunction preloaded_by_the_test() { return '%s'; }\n"
BAD = "<?php\nundefined_function_of_the_preload_script();\n"


def test_preload_script_that_fails_at_reload_keeps_the_old_generation(h2fpm):
    server = h2fpm(start=False)
    script = server.site.script("preload.inc", GOOD % "one")
    server.settings["php_admin_value[opcache.preload]"] = script
    server.write_conf()
    server.start()
    old = server.wait_workers(2)
    load = Load(server, clients=2)
    script.write_text(BAD)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_log("undefined_function_of_the_preload_script")
    wait_until(lambda: len(server.zygotes()) == 1, what="the failed zygote's end")
    load.wait(len(load.answers) + 100)
    assert set(load.stop()[-50:]) <= set(map(str, old))
    assert set(server.workers()) == set(old)
    assert '"preloaded":"one"' in ask(server, "/opcache.php")
    # it can be put right
    script.write_text(GOOD % "two")
    os.kill(server.master, signal.SIGUSR2)
    server.wait_workers(2, without=old)
    wait_until(lambda: '"preloaded":"two"' in ask(server, "/opcache.php"), what="the new preload script")


def test_old_generation_that_is_kept_replaces_its_dead(h2fpm):
    server = h2fpm(start=False)
    script = server.site.script("preload.inc", GOOD % "one")
    server.settings["php_admin_value[opcache.preload]"] = script
    server.write_conf()
    server.start()
    old = server.wait_workers(2)
    script.write_text(BAD)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_log("undefined_function_of_the_preload_script")
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    server.wait_workers(2, without=old)
    assert '"preloaded":"one"' in ask(server, "/opcache.php")


# ---- emergency restart ----


def crash(server, how=signal.SIGSEGV):
    """Of one that has served: the start of no worker fails."""
    pid = int(ask(server))
    os.kill(pid, how)
    server.wait_workers(2, without=[pid])


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGBUS])
def test_emergency_restart_after_so_many_crashes(h2fpm, how):
    server = h2fpm(main={"emergency_restart_threshold": 3, "emergency_restart_interval": "10m"})
    zygote = server.wait_zygote()
    crash(server, how)
    crash(server, how)
    crash(server, signal.SIGKILL)  # no crash of its own
    assert server.wait_zygote() == zygote
    assert not server.log_lines("threshold")
    last = int(ask(server))
    untouched = server.wait_workers(2)
    os.kill(last, how)
    server.wait_zygote(without=[zygote])
    server.wait_log("threshold")
    server.wait_workers(2, without=untouched)
    assert ask(server)


def test_no_emergency_restart_unless_asked_for(h2fpm):
    server = h2fpm()
    zygote = server.wait_zygote()
    for _ in range(4):
        crash(server)
    assert server.wait_zygote() == zygote
    assert not server.log_lines("threshold")


# ---- the zygote itself ----


def test_zygote_that_dies_is_replaced_and_its_workers_serve_on(h2fpm):
    server = h2fpm()
    zygote = server.wait_zygote()
    load = Load(server, clients=2)
    load.wait(20)
    os.kill(zygote, signal.SIGSEGV)
    server.wait_zygote(without=[zygote])
    load.wait(len(load.answers) + 100)
    load.stop()
    assert server.wait_log("php-cgi %d" % zygote, "signal")
    crash(server)
    assert ask(server)
