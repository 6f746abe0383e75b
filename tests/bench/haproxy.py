"""The part about HAProxy, set up as etc/haproxy/h2fpm.cfg has it, beside nginx in front of the same pool."""
import contextlib
import os
import pathlib
import statistics
import threading
import types

from stack import Server, Stack, read_stat
from tools import ROUNDS, h2load, table

import fronts  # tests/system, which stack has put on the path

LOADS = {"64 streams": ("-n", 40000, "-c", 4, "-m", 16), "1,024 streams": ("-n", 40000, "-c", 8, "-m", 128)}


def connections(pid):
    """Of a process, by Unix sockets."""
    rows = (line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:])
    connected = {"socket:[%s]" % row[6] for row in rows if row[5] == "03"}
    return sum(os.readlink(fd) in connected for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir() if fd.is_symlink())


class Peak:
    """The most connections at any time."""

    def __init__(self, pid):
        self.pid, self.most, self.done = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.done.wait(0.02):
            with contextlib.suppress(FileNotFoundError):
                self.most = max(self.most, connections(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def start_haproxy(stack):
    """nginx writes no access log here either."""
    fronts.HaproxyExample.cert = stack.dir
    site = types.SimpleNamespace(www=stack.dir / "www")
    pool = types.SimpleNamespace(address=str(stack.h2fpm.socket), site=site)
    front = fronts.HaproxyExample(pool, {"\tlog global\n": ""})
    return front, Server("haproxy", "HAProxy", front.port, 0, front.process)


def measure(server, load, front):
    before = read_stat(front.process.pid)[2]
    with Peak(front.process.pid) as peak:
        result = h2load(server, "hello.php", *load)
    return {**result, "connections": peak.most, "haproxy_cpu_s": read_stat(front.process.pid)[2] - before}


def summary(runs):
    return {"req_s": statistics.median(run["req_s"] for run in runs), "ok": min(run["ok"] for run in runs),
            "total": runs[0]["total"], "connections": max(run["connections"] for run in runs),
            "haproxy_cpu_s": statistics.median(run["haproxy_cpu_s"] for run in runs), "runs": runs}


def in_turns(load, front, servers):
    runs = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, server in servers.items():
            runs[name].append(measure(server, load, front))
    result = {name: summary(made) for name, made in runs.items()}
    result["ratio"] = result["haproxy"]["req_s"] / result["nginx"]["req_s"]
    return result


def haproxy():
    """requests per second with HAProxy in front of h2fpm, beside nginx; backend connections at the peak"""
    with Stack(only="h2fpm") as stack:
        front, server = start_haproxy(stack)
        try:
            servers = {"nginx": stack.h2fpm, "haproxy": server}
            results = {title: in_turns(load, front, servers) for title, load in LOADS.items()}
        finally:
            front.close()
    table(["median of %d" % ROUNDS, "in front", "req/s", "200, worst run", "connections, peak", "ratio"],
          [[title, name, "%.0f" % result[name]["req_s"], "%d of %d" % (result[name]["ok"], result[name]["total"]),
            *((result[name]["connections"], "%.2f" % result["ratio"]) if name == "haproxy" else ("", ""))]
           for title, result in results.items() for name in servers])
    return results


PARTS = {"haproxy": haproxy}
