"""Turnover under circumstances that a test must arrange: process.max without a
free place, reloads that meet failures or one another, processes that die at an
unhappy moment."""
import os
import pathlib
import signal
import time

import pytest

from harness import Site, children, proc_stat, wait_until


# ---- process.max ----


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_reload_replaces_all_where_process_max_leaves_no_place(h2fpm, spawn):
    server = h2fpm(main={"process.max": 2}, pool={"worker.spawn": spawn})
    old = server.wait_workers(2)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_workers(2, without=old, timeout=60)
    assert server.get().status == 200


def test_lifetime_counts_where_process_max_leaves_no_place(h2fpm):
    server = h2fpm(main={"process.max": 2}, pool={"worker.max_lifetime": "1s"})
    old = server.wait_workers(2)
    server.wait_workers(2, without=old, timeout=60)


# ---- a death before the birth is known ----


def name_of(pid):
    return pathlib.Path("/proc/%d/comm" % pid).read_text().strip()


def freeze(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: proc_stat(pid)[0] == "T", what="%d stopped" % pid)


def worker_sockets(pool):
    """Of the workers that are or are to be."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/%d/fd" % pool) if os.path.islink(entry.path)]
    return [link for link in links if link.endswith("/s (deleted)")]


def test_worker_that_dies_before_its_birth_is_known_is_one_all_the_same(h2fpm):
    server = h2fpm(pool={"pm": "ondemand", "pm.max_children": 1}, main={"watchdog.timeout": "60s"})
    zygote, pool = server.wait_zygote(), server.pool_pid
    os.kill(int(server.get("/pid.php").text), signal.SIGKILL)
    server.wait_workers(0)
    freeze(zygote)
    with server.start_get("/pid.php") as conn:
        wait_until(lambda: worker_sockets(pool), what="an order")
        freeze(pool)
        os.kill(zygote, signal.SIGCONT)
        worker = wait_until(lambda: [pid for pid in children(pool) if pid != zygote], what="a worker")[0]
        wait_until(lambda: name_of(worker) != "php-zygote", what="what it says")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: proc_stat(worker)[0] == "Z", what="its death")
        os.kill(pool, signal.SIGCONT)
        assert conn.read_response().status == 200
    assert server.log_lines("child %d exited on signal 9 (SIGKILL)" % worker), server.log()
    assert not server.log_lines("that nobody ordered"), server.log()
    assert not server.log_lines("ERROR"), server.log()


# ---- after a fault ----

# Fails so often, and is php-cgi then.
FLAKY = """#!/bin/sh
echo x >>%(file)s
[ $(wc -l <%(file)s) -gt %(failures)d ] || exit 1
exec php-cgi "$@"
"""


class Flaky:
    def __init__(self, h2fpm, failures, **pool):
        site = Site()
        self.file = site.data / "starts"
        pool["worker.command"] = site.program("php-flaky", FLAKY % {"file": self.file, "failures": failures})
        self.server = h2fpm(workdir=site, pool=pool)
        self.server.own_site = True

    def starts(self):
        return len(self.file.read_text().split()) if self.file.exists() else 0


def test_nobody_is_started_for_nobody_once_the_fault_is_gone(h2fpm):
    """Neither where the idle time is over before a worker is no longer young."""
    flaky = Flaky(
        h2fpm, 2, **{"worker.spawn": "exec", "pm": "ondemand", "pm.process_idle_timeout": "50ms"}
    )
    with flaky.server.start_get("/pid.php"):
        wait_until(lambda: flaky.starts() == 1, what="a start")
    flaky.server.wait_log("2 workers in a row died at their start")
    wait_until(lambda: flaky.starts() == 3 and flaky.server.workers(), what="the one that shows it")
    pid = flaky.server.workers()
    wait_until(lambda: not flaky.server.workers(), what="its end")
    beats = 3  # of the pool process, each a second
    time.sleep(beats)
    assert flaky.starts() == 3 and pid


# ---- reload upon reload ----


def preloading(h2fpm, text):
    """Not started; and the file of its preload script."""
    server = h2fpm(start=False)
    script = server.site.script("preload.inc", text)
    server.settings["php_admin_value[opcache.preload]"] = script
    server.write_conf()
    return server, script


WAIT_AND_FAIL = """<?php
touch('%(dir)s/loading');
while (!file_exists('%(dir)s/go'))
    usleep(1000);
undefined_function_of_the_preload_script();
"""


def test_reload_while_one_fails_is_not_forgotten(h2fpm):
    server, script = preloading(h2fpm, "<?php\n")
    server.start()
    old = server.wait_workers(2)
    script.write_text(WAIT_AND_FAIL % {"dir": server.site.data})
    os.kill(server.master, signal.SIGUSR2)
    wait_until((server.site.data / "loading").exists, what="the first reload")
    script.write_text("<?php\n")
    os.kill(server.master, signal.SIGUSR2)
    wait_until(lambda: len(server.log_lines("workers are renewed")) == 2, what="the second one")
    (server.site.data / "go").touch()
    server.wait_log("the new php-cgi did not start")
    server.wait_workers(2, without=old, timeout=60)


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_reload_that_mends_a_pool_does_not_wait_for_the_backoff(h2fpm, spawn):
    if spawn == "auto":
        server, broken = preloading(h2fpm, "<?php\nundefined_function_of_the_preload_script();\n")
        mended = "<?php\n"
        server.start()
    else:
        site = Site()
        broken, mended = site.program("php-broken", "#!/bin/sh\nexit 1\n"), '#!/bin/sh\nexec php-cgi "$@"\n'
        server = h2fpm(workdir=site, pool={"worker.command": broken, "worker.spawn": spawn})
        server.own_site = True
    server.wait_log("7 workers in a row died at their start", timeout=60)  # 4.8 s at least, then
    broken.write_text(mended)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_workers(2, timeout=4)
    assert server.get().status == 200


# ---- worker.max_lifetime ----


def test_idle_workers_are_replaced_in_the_order_of_their_births(h2fpm):
    server = h2fpm(pool={"pm.max_children": 3, "worker.max_lifetime": "5s"}, main={"log_level": "debug"})
    born = server.wait_workers(3)
    for victim in born[:2]:
        time.sleep(1)  # more than the tenth by which a lifetime may be shorter
        os.kill(victim, signal.SIGKILL)
        born += set(server.wait_workers(3, without=[victim])) - set(born)
    server.wait_log("child %d is to be replaced: worker.max_lifetime" % born[4])
    told = [line.split("child ")[1].split()[0] for line in server.log_lines("is to be replaced")]
    assert [int(pid) for pid in told[:3]] == born[2:]


# ---- signals that are the master's ----


def test_signal_to_renew_that_hits_all_of_a_name_ends_nothing(h2fpm):
    server = h2fpm()
    pool, old = server.pool_pid, server.wait_workers(2)
    os.kill(pool, signal.SIGUSR2)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_workers(2, without=old)
    assert server.pool_pids() == [pool]
