"""What one pool does, however bad, costs the others nothing; and nothing that
a pool or its scripts started outlives the process that is to answer for it."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import (
    IS_ROOT,
    OtherPool,
    alive,
    children,
    cpu_seconds,
    descendants,
    proc_stat,
    proc_status,
    wait_until,
)

as_root = pytest.mark.skipif(not IS_ROOT, reason="only root can do it")

# Loaded into everything that h2fpm starts: the process of the pool [other] ends
# with the status in the file, as soon as it begins, while there is such a file.
FATE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void meet(void)
{
	char name[64] = "";
	int status = 0;
	FILE *f = fopen("/proc/self/cmdline", "r");
	if (f == NULL || fgets(name, sizeof(name), f) == NULL || strcmp(name, "h2fpm: pool other") != 0)
		return;
	fclose(f);
	f = fopen(getenv("H2FPM_FATE"), "r");
	if (f != NULL && fscanf(f, "%d", &status) == 1)
		_exit(status);
}
"""


class Fate:
    """Decides how the processes of [other] end."""

    def __init__(self, library, site):
        self.path = site.dir / "fate"
        self.environ = {"LD_PRELOAD": str(library), "H2FPM_FATE": str(self.path)}
        self.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"

    def set(self, status):
        self.path.write_text("%d\n" % status)

    def clear(self):
        self.path.unlink()


@pytest.fixture(scope="session")
def fate_library(shared_dir):
    source, library = shared_dir / "fate.c", shared_dir / "fate.so"
    source.write_text(FATE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True, timeout=60)
    library.chmod(0o755)
    return library


@pytest.fixture
def fated(h2fpm, fate_library):
    """fated(status) makes a server, not started yet, with the pools [www] and
    [other], whose processes end with that status."""

    def make(status, **options):
        server = h2fpm(start=False, **options)
        other = OtherPool(server)
        fate = Fate(fate_library, server.site)
        fate.set(status)
        server.environ = fate.environ
        return server, other, fate

    return make


@contextlib.contextmanager
def environment(variables):
    """What is started meanwhile gets it."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def launch(server, *options):
    with environment(server.environ):
        return server.launch(*options, "-y", server.conf)


def start(server):
    with environment(server.environ):
        return server.start()


def pool_pid(server, name):
    """The process of that pool, when it runs."""

    def find():
        for pid in server.pool_pids():
            with contextlib.suppress(OSError):
                if pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().startswith(b"h2fpm: pool %s\0" % name.encode()):
                    return pid
        return None

    return wait_until(find, what="a process of pool " + name)


# ---- a pool that cannot be served ----


def test_address_in_use_disables_that_pool_alone(h2fpm):
    server = h2fpm(start=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        OtherPool(server, listen="127.0.0.1:%d" % taken.getsockname()[1])
        server.start()
        assert server.get().status == 200
        assert server.log_lines("ERROR", "[pool other]", "127.0.0.1")
        assert len(server.log_lines("[pool other]", "is disabled")) == 1
        assert len(server.pool_pids()) == 1
        server.process.send_signal(signal.SIGUSR1)  # whatever is told to all passes it by
        server.wait_log("error log file re-opened")
        server.process.send_signal(signal.SIGUSR2)
        server.wait_log("workers are renewed")
        assert server.get().status == 200
        server.stop(signal.SIGQUIT)


def test_strict_start_fails_with_a_pool_that_cannot_be_served(h2fpm):
    server = h2fpm(start=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        OtherPool(server, listen="127.0.0.1:%d" % taken.getsockname()[1])
        done = server.launch("-F", "--strict", "-y", server.conf)
    assert done.returncode == 78
    assert "[pool other]" in server.all_output() + done.stderr
    assert not os.path.exists(server.socket)


def test_no_pool_left_is_78(h2fpm):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = h2fpm(start=False, listen="127.0.0.1:%d" % taken.getsockname()[1])
        OtherPool(server, listen="127.0.0.1:%d" % taken.getsockname()[1])
        done = server.launch("-F", "-y", server.conf)
    assert done.returncode == 78
    assert "no pool" in server.all_output() + done.stderr


def test_start_does_not_wait_for_a_pool_that_fails(fated):
    server, other, fate = fated(70)
    start(server)
    assert server.get().status == 200
    fate.clear()  # it is tried again and again
    assert other.get(timeout=40).status == 200


def daemon_pid(path):
    return wait_until(lambda: path.exists() and path.read_text().strip() and int(path.read_text()))


def test_background_start_succeeds_with_one_pool_that_serves(fated):
    server, other, _ = fated(70)
    path = server.site.run / "h2fpm.pid"
    server.global_settings.update({"pid": path})
    server.write_conf()
    done = launch(server, "-D")
    assert done.returncode == 0, done.stderr
    pid = daemon_pid(path)
    try:
        assert server.get().status == 200
        assert server.log_lines("[pool other]", "exited with code 70")
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not alive(pid), what="the daemon ends")


@pytest.mark.parametrize("status", [70, 78])
def test_strict_background_start_fails_with_the_pools_status(fated, status):
    server, _, _ = fated(status)
    done = launch(server, "-D", "--strict")
    assert done.returncode == status, done.stderr
    assert "[pool other] did not start" in done.stderr
    assert not os.path.exists(server.socket)


def test_strict_start_in_the_foreground_fails_too(fated):
    server, _, _ = fated(70)
    assert launch(server, "-F", "--strict").returncode == 70


# ---- a pool that dies and dies ----


@contextlib.contextmanager
def killing(server, pool, name):
    """Kills that pool's process whenever there is one that answers."""
    stop = threading.Event()
    killed = []

    def kill():
        while not stop.is_set():
            with contextlib.suppress(OSError, AssertionError):
                pool.get()
                pid = pool_pid(server, name)
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                wait_until(lambda: not alive(pid) or stop.is_set())

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def test_signals_are_acted_on_while_a_pool_crash_loops(h2fpm):
    server = h2fpm(start=False)
    other = OtherPool(server)
    server.start()
    took = []
    with killing(server, other, "other") as killed:
        wait_until(lambda: len(killed) >= 12, what="a crash loop")
        for n in range(20):
            began = time.monotonic()
            server.process.send_signal(signal.SIGUSR1)
            wait_until(lambda: len(server.log_lines("reopening log files")) > n)
            took.append(time.monotonic() - began)
            assert server.get().status == 200
    # a busy machine may be slow now and then, but not each time
    assert min(took) < 0.1, took
    assert other.get().status == 200  # it is back within its second
    assert len(server.log_lines("[pool other]", "SIGKILL")) >= 12


def test_crash_looping_pool_costs_the_master_no_time(fated):
    """Its process exits at once, for ever."""
    server, _, _ = fated(1)
    start(server)
    server.wait_log("[pool other]", "starting again in")
    before = cpu_seconds(server.master)
    time.sleep(2)
    assert cpu_seconds(server.master) - before < 0.2
    assert len(server.log_lines("[pool other]", "exited with code 1")) < 12
    assert server.get().status == 200


def test_ready_pool_process_comes_back_at_once_each_time(h2fpm):
    server = h2fpm()
    for _ in range(6):
        old = pool_pid(server, "www")
        assert server.get().status == 200  # so it was ready
        os.kill(old, signal.SIGABRT)
        wait_until(lambda: not alive(old))
    assert server.get().status == 200
    assert not server.log_lines("starting again in"), server.log()


# ---- nothing outlives ----

# system() with its output elsewhere, or the request would last as long
STARTER = """<?php
system($_GET['how'] . ' sleep 1000 >/dev/null 2>&1 & echo $! >%s/' . $_GET['name']);
echo 'started';
"""


def start_in_background(server, name, how=""):
    """A process that a script starts and leaves behind; its pid."""
    path = server.site.data / name
    server.site.script("starter.php", STARTER % server.site.data)
    assert server.get("/starter.php?name=%s&how=%s" % (name, how)).text == "started"
    pid = wait_until(lambda: path.exists() and path.read_text().strip() and int(path.read_text()))
    # setsid forks or executes; in any case what we see is the sleep in its own session
    wait_until(lambda: b"sleep" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes())
    if how:
        wait_until(lambda: os.getsid(pid) == pid)
    return pid


def wait_gone(pids):
    def left():
        return {pid: (pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()[:80], proc_stat(pid)) for pid in pids if alive(pid)}

    try:
        wait_until(lambda: not [pid for pid in pids if alive(pid)], what="none of %r" % pids)
    except AssertionError as error:
        raise AssertionError(left()) from error


@pytest.fixture
def two_pools(h2fpm):
    server = h2fpm(start=False)
    other = OtherPool(server)
    server.start()
    return server, other


@pytest.mark.parametrize("how", ["", "setsid"])
def test_pool_process_killed_takes_what_scripts_started(two_pools, how):
    server, other = two_pools
    assert server.get().status == other.get().status == 200
    mine, theirs = start_in_background(server, "mine", how), start_in_background(other, "theirs", how)
    neighbours = [pool_pid(server, "other"), theirs] + descendants(pool_pid(server, "other"))
    pool = pool_pid(server, "www")
    everyone = [pool, mine] + descendants(pool)
    os.kill(pool, signal.SIGKILL)
    wait_gone(everyone)
    assert server.get().status == 200
    assert [pid for pid in neighbours if not alive(pid)] == []
    server.stop()
    wait_gone(neighbours)


@pytest.mark.parametrize("how", ["", "setsid"])
@pytest.mark.parametrize("pool_is", ["well", "stopped"])
def test_master_killed_takes_what_scripts_started(two_pools, how, pool_is):
    server, other = two_pools
    assert server.get().status == other.get().status == 200
    started = [start_in_background(server, "mine", how), start_in_background(other, "theirs", how)]
    everyone = started + descendants(server.master)
    assert len(everyone) >= 2 + 2 + 4
    if pool_is == "stopped":
        stopped = pool_pid(server, "www")
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: proc_stat(stopped)[0] == "T")
    server.process.kill()
    server.process.wait(10)
    wait_gone(everyone)
    server.log_path.unlink()
    server.start()
    assert server.get().status == other.get().status == 200


def test_stop_takes_what_scripts_started(two_pools):
    server, _ = two_pools
    started = [start_in_background(server, "one"), start_in_background(server, "two", "setsid")]
    server.stop()
    assert [pid for pid in started if alive(pid)] == [], "not even for a moment"


def test_words_of_the_masters_death_are_not_believed(h2fpm):
    """The pool's own scripts can send it any signal."""
    server = h2fpm()
    pool = server.pool_pid
    for _ in range(3):
        os.kill(pool, signal.SIGRTMIN + 3)
        assert server.get().status == 200
    assert server.pool_pid == pool


# ---- root's settings ----


def capabilities(pid):
    status = proc_status(pid)
    return {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


CAP_SYS_CHROOT = 1 << 18


@as_root
def test_pool_process_has_no_capability_but_for_a_chroot(h2fpm):
    server = h2fpm(start=False)
    OtherPool(server, chroot=server.site.dir)
    server.start()
    assert set(capabilities(pool_pid(server, "www")).values()) == {0}
    assert set(capabilities(pool_pid(server, "other")).values()) == {CAP_SYS_CHROOT}
    assert set(proc_status(pool_pid(server, "other"))["Uid"].split()) != {"0"}
    assert os.readlink("/proc/%d/root" % pool_pid(server, "other")) == "/"


@as_root
def test_chroot_that_has_gone_is_the_configurations_fault(h2fpm):
    server = h2fpm(start=False)
    jail = server.site.dir / "jail"
    jail.mkdir(mode=0o755)
    OtherPool(server, chroot=jail)
    server.start()
    pool = pool_pid(server, "other")
    jail.rename(server.site.dir / "gone")
    os.kill(pool, signal.SIGKILL)
    server.wait_log("other", "chroot", str(jail), "no such directory")
    server.wait_log("[pool other]", "exited with code 78")
    server.wait_log("[pool other]", "next try in")
    assert server.get().status == 200


def hard_limits(pid):
    """(open files, core bytes) as text."""
    lines = pathlib.Path("/proc/%d/limits" % pid).read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[1] for line in lines}
    return limits["Max open files"], limits["Max core file size"]


def may_raise_limits():
    return IS_ROOT and bool(capabilities(os.getpid())["CapEff"] & 1 << 24)  # CAP_SYS_RESOURCE


def test_masters_limits_hold_for_all_and_a_pools_for_its_workers(h2fpm):
    server = h2fpm(
        start=False, main={"rlimit_files": 700, "rlimit_core": 4096}, pool={"rlimit_files": 600, "rlimit_core": 0}
    )
    OtherPool(server)
    server.start()
    www, other = pool_pid(server, "www"), pool_pid(server, "other")
    assert {hard_limits(pid) for pid in (server.master, www, other)} == {("700", "4096")}
    wait_until(lambda: {hard_limits(pid) for pid in children(www)} == {("600", "0")})
    wait_until(lambda: {hard_limits(pid) for pid in children(other)} == {("700", "4096")})


def test_pools_limits_over_the_masters(h2fpm):
    """Only root can raise them; without, it is told and the pool serves."""
    server = h2fpm(
        main={"rlimit_files": 700, "rlimit_core": 4096}, pool={"rlimit_files": 900, "rlimit_core": "unlimited"}
    )
    assert server.get().status == 200
    want = ("900", "unlimited") if may_raise_limits() else ("700", "4096")
    assert hard_limits(server.pool_pid) == want
    wait_until(lambda: {hard_limits(pid) for pid in children(server.pool_pid)} == {want})
    told = server.log_lines("[pool www]", "unable to raise rlimit_files", "700")
    assert len(told) == (0 if may_raise_limits() else 1)


@as_root
def test_priorities_are_where_they_belong(h2fpm):
    server = h2fpm(start=False, main={"process.priority": 3}, pool={"process.priority": 7})
    OtherPool(server)
    server.start()
    www, other = pool_pid(server, "www"), pool_pid(server, "other")
    nice = {pid: os.getpriority(os.PRIO_PROCESS, pid) for pid in (server.master, www, other)}
    assert nice == {server.master: 3, www: -3, other: -7}
    wait_until(lambda: {os.getpriority(os.PRIO_PROCESS, pid) for pid in children(www)} == {7})
    wait_until(lambda: {os.getpriority(os.PRIO_PROCESS, pid) for pid in children(other)} == {3})


@as_root
def test_priority_is_clipped(h2fpm):
    server = h2fpm(pool={"process.priority": -15})
    assert os.getpriority(os.PRIO_PROCESS, server.pool_pid) == -20
    wait_until(lambda: {os.getpriority(os.PRIO_PROCESS, pid) for pid in children(server.pool_pid)} == {-15})


def test_masters_limit_that_cannot_be_is_78(h2fpm):
    server = h2fpm(start=False, main={"rlimit_files": 2000000000})
    done = server.launch("-F", "-y", server.conf)
    assert done.returncode == 78
    assert "failed to set rlimit_files" in server.all_output() + done.stderr


def test_pools_limit_that_cannot_be_is_told_and_served_without(h2fpm):
    server = h2fpm(pool={"rlimit_files": 2000000000})  # over the kernel's fs.nr_open
    server.wait_log("[pool www]", "unable to raise rlimit_files")
    assert server.get().status == 200


# ---- process.max ----


def test_process_max_is_shared_and_comes_back_when_a_pool_dies(h2fpm):
    """Five places for two pools that want four each; nobody is without one."""
    server = h2fpm(start=False, main={"process.max": 5}, pool={"pm.max_children": 4})
    other = OtherPool(server, pm__max_children=4)
    server.start()

    def counts():
        by_parent = [children(pool_pid(server, name)) for name in ("www", "other")]
        workers = set(server.workers())
        return [len(workers & set(pids)) for pids in by_parent]

    wait_until(lambda: sum(counts()) == 5, what="five workers")
    assert min(counts()) >= 1
    assert server.get().status == other.get().status == 200
    server.wait_log("WARNING", "consider raising 'process.max'")
    for name in ("www", "other", "www"):
        os.kill(pool_pid(server, name), signal.SIGKILL)
        assert server.get().status == other.get().status == 200
        wait_until(lambda: sum(counts()) == 5, what="five workers again")
        assert min(counts()) >= 1
    assert len(server.log_lines("consider raising 'process.max'")) == 1


# ---- renewal ----


def test_usr2_says_what_it_does(h2fpm):
    server = h2fpm()
    pool = server.pool_pid
    server.process.send_signal(signal.SIGUSR2)
    line = server.wait_log("workers are renewed")[0]
    assert "NOTICE" in line and "the configuration file is not" in line
    assert server.get().status == 200
    assert server.pool_pid == pool
