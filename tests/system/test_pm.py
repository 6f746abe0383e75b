"""How many workers there are: pm = static, dynamic and ondemand, the limit
over all pools, and what the workers of a pool share."""
import json
import os
import re
import signal
import time

import pytest

import fcgi
from harness import Held, OtherPool, wait_until

ONDEMAND = {"pm": "ondemand", "pm.max_children": 6, "pm.process_idle_timeout": "1s"}
DYNAMIC = {
    "pm": "dynamic",
    "pm.max_children": 8,
    "pm.start_servers": 3,
    "pm.min_spare_servers": 2,
    "pm.max_spare_servers": 3,
    "pm.process_idle_timeout": "1s",
}


def finish(held):
    """Their pids."""
    for one in held:
        one.release()
    pids = [one.conn.read_response().text.split()[-1] for one in held]
    return [int(pid) for pid in pids]


class Burst:
    """Many requests at once, each of which runs until all are released."""

    count = 0

    def __init__(self, server, size):
        Burst.count += 1
        self.dir, self.id = server.site.data, "burst%d" % Burst.count
        uri = "/burst.php?dir=%s&id=%s" % (self.dir, self.id)
        self.conns = []
        for _ in range(size):
            conn = server.connect(timeout=120)
            conn.send(fcgi.request(server.params(uri)))
            self.conns.append(conn)

    def started(self):
        return {int(path.suffix[1:]) for path in self.dir.glob(self.id + ".started.*")}

    def wait_started(self, count, timeout=15):
        return wait_until(lambda: len(self.started()) == count and self.started(), timeout, "%d scripts" % count)

    def finish(self):
        """Statuses of the answers."""
        (self.dir / (self.id + ".go")).touch()
        responses = [conn.read_response() for conn in self.conns]
        for conn in self.conns:
            conn.close()
        return [response.status for response in responses]


# ---- static ----


def test_static_starts_all_at_once_and_never_more(h2fpm):
    server = h2fpm(pool={"pm.max_children": 3})
    workers = server.wait_workers(3)
    burst = Burst(server, 12)
    assert burst.wait_started(3) == set(workers)
    assert set(server.workers()) == set(workers)
    assert burst.finish() == [200] * 12
    assert set(server.workers()) == set(workers)


# ---- ondemand ----


def test_ondemand_starts_with_none_and_has_one_for_one_visitor(h2fpm):
    server = h2fpm(pool=ONDEMAND)
    assert server.workers() == []
    pids = {server.get("/pid.php").text for _ in range(10)}
    assert pids == {str(pid) for pid in server.wait_workers(1)}


def test_ondemand_starts_one_for_each_request_up_to_max_children(h2fpm):
    server = h2fpm(pool={**ONDEMAND, "pm.process_idle_timeout": "60s"})
    for size in (1, 3, 6, 9):
        burst = Burst(server, size)
        burst.wait_started(min(size, 6))
        assert len(server.workers()) == min(size, 6)
        assert burst.finish() == [200] * size


def test_ondemand_goes_down_to_one_while_one_is_needed_and_then_to_none(h2fpm):
    server = h2fpm(pool=ONDEMAND)
    burst = Burst(server, 6)
    burst.wait_started(6)
    assert burst.finish() == [200] * 6
    served = set()

    def one_left():
        served.add(int(server.get("/pid.php").text))
        return len(server.workers()) == 1

    wait_until(one_left, what="one worker")
    assert set(server.workers()) <= served
    assert len(served) == 1, "requests one at a time kept several workers warm"
    server.wait_workers(0)
    assert server.get("/pid.php").status == 200


def test_most_recently_used_worker_is_taken_first(h2fpm):
    server = h2fpm(pool={**ONDEMAND, "pm.process_idle_timeout": "60s"})
    held = [Held(server) for _ in range(3)]
    for last in (held[1], held[2], held[0]):
        assert last.finish().status == 200
        assert server.get("/pid.php").text == str(last.pid)


def test_least_recently_used_worker_goes_first(h2fpm):
    server = h2fpm(pool={**ONDEMAND, "pm.process_idle_timeout": "2s"})
    held = [Held(server) for _ in range(3)]
    finish(held[:1])
    time.sleep(0.5)  # what they are apart; nothing is wrong when it is longer
    finish(held[1:2])
    idle = {one.pid for one in held[:2]}
    gone = wait_until(lambda: idle - set(server.workers()), what="a worker's end")
    assert held[0].pid in gone
    server.wait_workers(1)
    assert finish(held[2:]) == [held[2].pid]
    server.wait_workers(0)


def test_cold_burst_runs_all_at_once(h2fpm):
    """200 requests to none of 200 workers: each has a worker before the first ends."""
    server = h2fpm(
        pool={"pm": "ondemand", "pm.max_children": 200, "pm.max_spawn_rate": 50, "queue.timeout": "120s"}
    )
    assert server.workers() == []
    burst = Burst(server, 200)
    burst.wait_started(200, timeout=90)
    assert burst.finish() == [200] * 200


# ---- dynamic ----


def test_dynamic_starts_start_servers_and_keeps_spares_ahead_of_the_load(h2fpm):
    server = h2fpm(pool=DYNAMIC)
    server.wait_workers(3)
    burst = Burst(server, 3)
    burst.wait_started(3)
    server.wait_workers(5)
    more = Burst(server, 7)
    more.wait_started(5)
    server.wait_workers(8)
    assert burst.finish() + more.finish() == [200] * 10


def test_dynamic_ends_idle_ones_over_max_spare_and_keeps_those(h2fpm):
    server = h2fpm(pool=DYNAMIC)
    burst = Burst(server, 8)
    burst.wait_started(8)
    assert burst.finish() == [200] * 8
    kept = server.wait_workers(3)
    served = set()
    began = time.monotonic()
    while time.monotonic() - began < 1.5:  # longer than the timeout
        served.add(int(server.get("/pid.php").text))
    assert server.workers() == kept
    assert served <= set(kept)


def test_dynamic_replaces_a_spare_that_died(h2fpm):
    server = h2fpm(pool=DYNAMIC)
    workers = server.wait_workers(3)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(set(server.workers()) - set(workers)) >= 2, what="min_spare_servers")
    assert server.get("/pid.php").status == 200


# ---- the line about max_children ----


@pytest.mark.parametrize("mode", ["static", "dynamic", "ondemand"])
def test_max_children_reached_is_one_line_with_the_queue(h2fpm, mode):
    pool = {"static": {}, "dynamic": DYNAMIC, "ondemand": ONDEMAND}[mode]
    if mode == "dynamic":
        pool = {**pool, "pm.start_servers": 1, "pm.min_spare_servers": 1, "pm.max_spare_servers": 2}
    server = h2fpm(pool={**pool, "pm.max_children": 2})
    assert Burst(server, 2).finish() == [200, 200]
    reached = "server reached pm.max_children setting (2), consider raising it"
    assert not server.log_lines(reached)
    burst = Burst(server, 42)
    line = server.wait_log(reached)[0]
    assert "WARNING" in line and "www" in line and re.search(r"\d+ requests? (is|are) waiting", line), line
    assert burst.finish() == [200] * 42
    assert len(server.log_lines(reached)) <= 4, server.log()


# ---- process.max ----


def test_process_max_holds_over_two_pools_and_starves_none(h2fpm):
    server = h2fpm(pool={**ONDEMAND, "pm.max_children": 4}, main={"process.max": 3}, start=False)
    other = OtherPool(server, pm="ondemand", pm__max_children=4, pm__process_idle_timeout="1s")
    server.start()
    burst = Burst(server, 4)
    burst.wait_started(2)
    assert other.get("/pid.php").status == 200, "the other pool got no worker"
    further = Burst(other, 3)
    further.wait_started(1)
    assert len(server.workers()) == 3
    assert len(burst.started()) == 2
    assert burst.finish() == [200] * 4
    further.wait_started(2)  # places that came free
    assert len(server.workers()) <= 3
    assert further.finish() == [200] * 3


def test_process_max_holds_for_static_pools(h2fpm):
    server = h2fpm(pool={"pm.max_children": 3}, main={"process.max": 4}, start=False)
    other = OtherPool(server, pm__max_children=3)
    server.start()
    server.wait_workers(4)
    assert server.get().status == other.get().status == 200
    assert len(server.workers()) == 4


# ---- what workers share ----


def test_opcache_is_shared_by_all_workers(h2fpm):
    server = h2fpm(pool={"php_admin_value[opcache.file_update_protection]": 0})
    first = Held(server)
    second = Held(server)
    finish([second])
    assert server.get("/pid.php").text == str(second.pid)  # now it is cached by that one
    again = Held(server)
    assert again.pid == second.pid
    finish([first])
    seen = json.loads(server.get("/opcache.php?file=pid.php").text)
    assert seen["pid"] == first.pid
    assert seen["cached"], "a worker does not see what another has compiled"
    finish([again])


PRELOAD = "<?php\nfunction preloaded_by_the_test() { return 'version %s'; }\n"


def test_preloaded_function_is_there_in_every_worker(h2fpm):
    server = h2fpm(start=False)
    script = server.site.script("preload.inc", PRELOAD % 1)
    server.settings["php_admin_value[opcache.preload]"] = script
    server.write_conf()
    server.start()
    held = Held(server)
    others = [json.loads(server.get("/opcache.php").text)]
    finish([held])
    holding = [Held(server), Held(server)]
    finish(holding[:1])
    others.append(json.loads(server.get("/opcache.php").text))
    finish(holding[1:])
    assert [one["preloaded"] for one in others] == ["version 1"] * 2


HIDDEN = ["PHP_FCGI_CHILDREN", "PHP_FCGI_MAX_REQUESTS", "LD_PRELOAD", "H2FPM_GATE", "H2FPM_PRELOAD", "H2FPM_CHROOT"]


@pytest.mark.parametrize("spawn", ["auto", "exec"])
@pytest.mark.parametrize("clear_env", ["yes", "no"])
def test_what_makes_a_zygote_is_hidden_from_scripts_and_their_children(h2fpm, spawn, clear_env):
    server = h2fpm(pool={"clear_env": clear_env, "worker.spawn": spawn, "env[SEEN]": "it is"})
    names = HIDDEN + ["SEEN"]
    seen = json.loads(server.get("/environ.php?" + "&".join("names[]=" + name for name in names)).text)
    assert seen["getenv"].pop("SEEN") == "it is" and "SEEN=it is" in seen["child"]
    visible = {name for name, value in seen["getenv"].items() if value is not False}
    if spawn == "exec":
        visible.discard("PHP_FCGI_MAX_REQUESTS")  # php-cgi reads it itself
    assert not visible
    wrong = [line for line in seen["child"] if re.match("LD_PRELOAD|H2FPM_|PHP_FCGI_CHILDREN", line)]
    assert not wrong


def test_preload_library_of_the_pool_itself_stays(h2fpm):
    server = h2fpm(pool={"env[LD_PRELOAD]": "libdl.so.2"})
    seen = json.loads(server.get("/environ.php?names[]=LD_PRELOAD").text)
    assert seen["getenv"]["LD_PRELOAD"] == "libdl.so.2"
    assert "LD_PRELOAD=libdl.so.2" in seen["child"]
