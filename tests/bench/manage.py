"""The parts about process management. Each starts pools of its own and gives
back what it measured."""
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import shutil
import statistics
import time

from stack import STATIC, Stack, curl
from tools import (ROUNDS, cpu_with_children, fcgi_answer, fcgi_connect, fcgi_request, h2load, latencies_ms, pss_mib,
                   table)

KILLS = int(os.environ.get("KILLS", "1000"))


def ondemand(most, idle_timeout):
    return {"pm": "ondemand", "pm.max_children": most, "pm.process_idle_timeout": "%ds" % idle_timeout}


# ---- memory ----

MEMORY_WORKERS = 64
SECTION = """===== Section %d =====
Some **bold** and //italic// words, a [[wiki:page%d|link]], and ''code''.
  * a list
    * with a [[http://localhost/%d|link]] in it
  - and a numbered one
^ Heading ^ Another ^
| cell %d | cell |
<code php>
function section%d($a) { return $a + %d; } // made pretty by GeSHi
</code>
"""


def make_wiki(stack):
    """A page with all that the syntax has, and a configuration that needs no login."""
    wiki = stack.dir / "www" / "wiki"
    (wiki / "conf").mkdir(parents=True)
    for source in pathlib.Path("/etc/dokuwiki").iterdir():
        if source.is_file() and not source.name.startswith(("acl.", "users.")):
            with contextlib.suppress(PermissionError):
                shutil.copy(source, wiki / "conf" / source.name)
    (wiki / "conf" / "local.php").write_text(
        "<?php\n$conf['savedir'] = '%s/data';\n$conf['useacl'] = 0;\n$conf['updatecheck'] = 0;\n" % wiki)
    for name in ("attic", "cache", "index", "locks", "log", "media", "media_attic", "media_meta", "meta", "pages",
                 "tmp"):
        (wiki / "data" / name).mkdir(parents=True)
    (wiki / "data" / "pages" / "start.txt").write_text("\n".join(SECTION % ((n,) * 6) for n in range(20)))
    for path in [wiki, *wiki.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o644)


def memory_of(name):
    settings = {"pm": "static", "pm.max_children": MEMORY_WORKERS,
                "php_admin_value[opcache.file_update_protection]": 0}
    with Stack(settings, only=name) as stack:
        make_wiki(stack)
        (server,) = stack.servers
        server.await_workers(MEMORY_WORKERS)
        empty = pss_mib(server.processes())
        page = curl(server.url + "wiki.php?id=start").stdout
        if "section19" not in page:
            raise RuntimeError("DokuWiki said:\n" + page[:2000])
        load = h2load(server, "wiki.php?id=start", "-n", 1000, "-c", 4, "-m", MEMORY_WORKERS // 4)
        return {"empty": empty, "full": pss_mib(server.processes()), "processes": len(server.processes()), **load}


def memory():
    """64 workers after 1,000 requests of DokuWiki: proportional memory of all processes"""
    result = {name: memory_of(name) for name in ("h2fpm", "fpm")}
    rows = [[title, one["processes"], "%.1f" % one["empty"], "%.1f" % one["full"],
             "%d of %d" % (one["ok"], one["total"])]
            for title, one in (("h2fpm", result["h2fpm"]), ("php-fpm 8.2", result["fpm"]))]
    table(["", "processes", "started, MiB", "after 1,000 requests, MiB", "200"], rows)
    result["ratio"] = result["h2fpm"]["full"] / result["fpm"]["full"]
    print("  h2fpm / php-fpm: %.2f" % result["ratio"])
    return result


# ---- burst ----

BURST = 200


def at_once(stack, server, count, apart_s=0.0):
    """The answers to so many requests of 200 ms, each on a connection of its
    own. One that is answered is closed at once: php-fpm waits for that. (To
    start a worker for each it also needs them to come one by one.)"""
    request = fcgi_request(stack.dir / "www" / "started.php", keep=False, query="ms=200")

    def finish(sock):
        with sock:
            return fcgi_answer(sock).split()[-2:]

    socks = []
    for _ in range(count):
        socks.append(fcgi_connect(server.socket))
        time.sleep(apart_s)
    with concurrent.futures.ThreadPoolExecutor(count) as readers:
        answers = [readers.submit(finish, sock) for sock in socks]
        for sock in socks:
            sock.sendall(request)
        return [answer.result() for answer in answers]


def cold_burst(stack, server):
    """When each script began, and where, as the scripts say."""
    server.await_workers(0)
    began = time.time()
    answers = at_once(stack, server, BURST)
    starts = sorted(float(at) for at, _ in answers)
    return {"spread_ms": (starts[-1] - starts[0]) * 1e3, "first_ms": (starts[0] - began) * 1e3,
            "workers": len({pid for _, pid in answers})}


def burst():
    """ondemand, no worker yet, 200 requests of 200 ms at once: from the first script's start to the last one's"""
    result = {"h2fpm": [], "fpm": []}
    with Stack(ondemand(BURST, 1)) as stack:
        for _ in range(ROUNDS):
            for server in stack.servers:
                result[server.name].append(cold_burst(stack, server))
        rows = []
        for server in stack.servers:
            runs = result[server.name]
            spreads = [run["spread_ms"] for run in runs]
            rows.append([server.title, "%.0f" % statistics.median(run["first_ms"] for run in runs),
                         "%.0f" % statistics.median(spreads), "%.0f" % max(spreads),
                         " ".join(str(run["workers"]) for run in runs)])
    table(["", "first start, ms", "to the last, median", "longest", "workers"], rows)
    return result


# ---- retire ----

RETIRE_PATIENCE_S = 20


def time_to_one(stack, server):
    """After a burst of 6, one request a second: how many workers the burst
    has made, and the seconds until one is left, None: not at all."""
    script = stack.dir / "www" / "started.php"
    at_once(stack, server, 6, apart_s=0.02)
    over, count, made = time.monotonic(), 1, len(server.workers())
    while time.monotonic() < over + RETIRE_PATIENCE_S:
        if time.monotonic() >= over + count:
            count += 1
            with fcgi_connect(server.socket) as sock:
                sock.sendall(fcgi_request(script, keep=False, query="ms=1"))
                fcgi_answer(sock)
        if len(server.workers()) == 1:
            return made, time.monotonic() - over
        time.sleep(0.02)
    return made, None


def retire():
    """after a burst of 6, one request a second, process_idle_timeout 2 s: until one worker is left"""
    result = {"h2fpm": [], "fpm": []}
    with Stack(ondemand(6, 2)) as stack:
        for _ in range(ROUNDS):
            for server in stack.servers:
                server.await_workers(0)
                result[server.name].append(time_to_one(stack, server))
        rows = [[server.title] + ["from %d: " % made + ("%.2f" % took if took else "not in %d" % RETIRE_PATIENCE_S)
                                  for made, took in result[server.name]] for server in stack.servers]
    table(["seconds in each round"] + [""] * ROUNDS, rows)
    return result


# ---- recycle ----

RECYCLE_LOADS = {  # a script that does nothing but be started, and an application
    "hello.php": ("-n", 20000, "-c", 4, "-m", 16),
    "wiki.php?id=start": ("-n", 1600, "-c", 4, "-m", 16),
}


def one_each():
    with Stack({**STATIC, "pm.max_requests": 1}, only="h2fpm") as stack:
        return h2load(stack.h2fpm, "hello.php", "-n", 10000, "-c", 4, "-m", 16)


def alternating(name, script):
    """pm.max_requests = 50 and unlimited in turns; the ratio of each pair of runs."""
    load = RECYCLE_LOADS[script]
    runs = {"unlimited": [], "50": []}
    with Stack(STATIC, only=name) as unlimited, Stack({**STATIC, "pm.max_requests": 50}, only=name) as limited:
        for stack in (unlimited, limited):
            make_wiki(stack)
            h2load(stack.servers[0], script, "-n", 200, "-c", 1, "-m", 8, quiet=True)
        for _ in range(ROUNDS):
            runs["unlimited"].append(h2load(unlimited.servers[0], script, *load, quiet=True))
            runs["50"].append(h2load(limited.servers[0], script, *load, quiet=True))
    speeds = {which: statistics.median(run["req_s"] for run in made) for which, made in runs.items()}
    ratios = [b["req_s"] / a["req_s"] for a, b in zip(runs["unlimited"], runs["50"])]
    return {"runs": runs, "req_s": speeds, "ratio": statistics.median(ratios),
            "worst_ok": min(run["ok"] for made in runs.values() for run in made)}


def recycle():
    """errors with max_requests = 1; speed with max_requests = 50 beside unlimited"""
    single = one_each()
    table(["max_requests = 1", "200", "5xx", "failed", "req/s"],
          [["h2fpm", "%d of %d" % (single["ok"], single["total"]), single["5xx"], single["failed"],
            "%.0f" % single["req_s"]]])
    result = {"max_requests=1": single}
    for script, load in RECYCLE_LOADS.items():
        print("  $ h2load %s …/%s" % (" ".join(map(str, load)), script))
        found = result[script] = {name: alternating(name, script) for name in ("h2fpm", "fpm")}
        table(["median of %d" % ROUNDS, "unlimited, req/s", "max_requests = 50", "ratio", "200, worst run"],
              [[title, "%.0f" % one["req_s"]["unlimited"], "%.0f" % one["req_s"]["50"], "%.3f" % one["ratio"],
                "%d of %d" % (one["worst_ok"], load[1])]
               for title, one in (("h2fpm", found["h2fpm"]), ("php-fpm 8.2", found["fpm"]))])
    return result


# ---- broken ----

BROKEN_S = 30
BROKEN = """[broken]
{user}
listen = {dir}/run/broken.sock
pm = static
pm.max_children = 8
worker.command = /bin/false
worker.spawn = exec
"""


def ask_broken(stack):
    """The head of the answer, and how long it took, in ms."""
    began = time.monotonic()
    with fcgi_connect(stack.dir / "run" / "broken.sock") as sock:
        sock.sendall(fcgi_request(stack.dir / "www" / "hello.php", keep=False))
        head = fcgi_answer(sock).partition("\r\n\r\n")[0]
    return dict(line.split(": ", 1) for line in head.splitlines()), (time.monotonic() - began) * 1e3


def await_broken(stack):
    """Until requests are refused, not kept waiting."""
    while "at their start" not in stack.log().read_text():
        time.sleep(0.1)
    return ask_broken(stack)


def broken():
    """worker.command = /bin/false for 30 s: CPU, delays, answers, and the other pool's latency"""
    latency = {"without": [], "with": []}
    with Stack(more=BROKEN, only="h2fpm") as with_it, Stack(only="h2fpm") as without:
        masters = [with_it.h2fpm.child.pid]
        processes = masters + with_it.h2fpm.brokers()
        began, before = time.monotonic(), cpu_with_children(processes)
        first, waited_ms = await_broken(with_it)
        time.sleep(max(0, began + BROKEN_S - time.monotonic()))
        cpu_s, lasted_s = cpu_with_children(processes) - before, time.monotonic() - began
        answer, took_ms = ask_broken(with_it)
        for _ in range(2 * ROUNDS):
            latency["without"].append(latencies_ms(without.h2fpm, 1000))
            latency["with"].append(latencies_ms(with_it.h2fpm, 1000))
        delays = [int(ms) for ms in re.findall(r"next one is started in (\d+) ms", with_it.log().read_text())]
    print("  first answer after %.0f ms: %s, then after %.0f ms: %s, Retry-After: %s"
          % (waited_ms, first.get("Status"), took_ms, answer.get("Status"), answer.get("Retry-After")))
    print("  delays, ms: " + " ".join(map(str, delays)))
    medians = {name: statistics.median(one["median"] for one in each) for name, each in latency.items()}
    p99s = {name: statistics.median(one["p99"] for one in each) for name, each in latency.items()}
    table(["", "CPU in %.0f s, s" % lasted_s, "the other pool, median ms", "p99 ms"],
          [["with a broken pool", "%.2f" % cpu_s, "%.3f" % medians["with"], "%.2f" % p99s["with"]],
           ["without", "", "%.3f" % medians["without"], "%.2f" % p99s["without"]]])
    return {"cpu_s": cpu_s, "seconds": lasted_s, "delays_ms": delays, "answer": answer, "first_wait_ms": waited_ms,
            "latency": latency}


# ---- chaos ----


def chaos_visitors(fronts):
    from chaos import Visitor

    visitors = [Visitor(front, ["/hello.php", "/slow.php?ms=5", "/slow.php?ms=20"]) for front in fronts * 3]
    for visitor in visitors:
        visitor.start()
    return visitors


def chaos():
    """SIGSEGV to any process but the master, 1,000 times, of two pools under load (KILLS=100: fewer)"""
    import chaos as killing
    import harness

    known, seed = killing.leftovers(), os.environ.get("CHAOS_SEED", str(random.randrange(10**6)))
    cert = harness.Site()
    harness.make_certificate(cert.dir)
    (cert.dir / "key.pem").chmod(0o644)
    harness.Nginx.cert = cert.dir
    settings = {"pm.max_children": killing.WORKERS, "rlimit_core": 0}
    server = harness.H2fpm(pool=settings, start=False)
    other = harness.OtherPool(server, pm__max_children=killing.WORKERS, rlimit_core=0)
    with contextlib.ExitStack() as stack:
        stack.callback(cert.remove)
        stack.callback(server.close)
        server.start()
        fronts = [harness.Nginx(one, tries=3) for one in (server, other)]
        for front in fronts:
            stack.callback(front.close)
        crew = killing.Chaos(server, 1, seed)
        crew.wait_whole()
        visitors, began = chaos_visitors(fronts), time.monotonic()
        try:
            for _ in range(KILLS):
                crew.kill_one()
        finally:
            for visitor in visitors:
                visitor.over.set()
            for visitor in visitors:
                visitor.join(120)
        lasted_s = time.monotonic() - began
        wrong = [one for visitor in visitors for one in visitor.wrong]
        twice = server.log().count(", the second one in a row")
        killing.check_as_before(server, crew, known)
    answered = sum(visitor.answered for visitor in visitors)
    table(["killed", "workers", "zygotes", "pool processes", "GETs answered 200", "failed", "lost two workers", "seconds"],
          [[KILLS, crew.count["worker"], crew.count["zygote"], crew.count["pool"], answered, len(wrong), twice,
            "%.0f" % lasted_s]])
    print("  afterwards: all workers there, no zombie, nothing left in /dev/shm and /tmp, no CPU used (seed %s)" % seed)
    for one in wrong[:5]:
        print("  failed: " + one)
    return {"kills": crew.count, "answered": answered, "wrong": wrong, "seconds": lasted_s, "seed": seed}


PARTS = {part.__name__: part for part in (memory, burst, retire, recycle, broken, chaos)}
