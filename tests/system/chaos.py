"""What kills processes while visitors ask, for the test and the measurement."""
import http.client
import os
import pathlib
import random
import re
import signal
import ssl
import threading
import time

from harness import alive, children, cpu_seconds, descendants, is_zygote, packet_sockets, wait_until, zombies

WORKERS = 4
LEFTOVER = re.compile(r"h2fpm-[A-Za-z0-9]{6}$")  # as mkdtemp() makes them


def leftovers():
    names = [path for top in ("/dev/shm", "/tmp") for path in pathlib.Path(top).iterdir()]
    return {str(path) for path in names if LEFTOVER.match(path.name)}


class Visitor(threading.Thread):
    """Asks nginx over one kept-alive connection, as fast as it is answered."""

    def __init__(self, nginx, uris):
        super().__init__()
        self.nginx, self.uris = nginx, uris
        self.over = threading.Event()
        self.answered, self.wrong = 0, []

    def connect(self):
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection("localhost", self.nginx.port, timeout=90, context=context)

    def run(self):
        conn = self.connect()
        while not self.over.is_set():
            try:
                self.ask(conn, random.choice(self.uris))
            except (OSError, http.client.HTTPException, ssl.SSLError) as error:
                self.wrong.append(repr(error))
                conn.close()
                conn = self.connect()
        conn.close()

    def ask(self, conn, uri):
        conn.request("GET", uri)
        response = conn.getresponse()
        body = response.read()
        if response.status == 200 and body:
            self.answered += 1
        else:
            self.wrong.append("%d at %s: %r" % (response.status, time.strftime("%H:%M:%S"), body[:80]))


def wait_answered(visitors):
    """Awaits an answer to each that it asked for after now or had asked for."""
    before = [visitor.answered + len(visitor.wrong) for visitor in visitors]
    wait_until(
        lambda: all(visitor.answered + len(visitor.wrong) > then + 2 for visitor, then in zip(visitors, before)),
        60,
        "an answer to each visitor",
    )


class Chaos:
    """Kills, and knows what is whole."""

    def __init__(self, server, zygotes, seed):
        self.server, self.zygotes = server, zygotes
        self.dice = random.Random(seed)
        self.count = {"pool": 0, "zygote": 0, "worker": 0}
        self.first = ["worker", "zygote", "pool"] if zygotes else ["worker", "pool"]

    def crew(self, pool):
        """(zygotes, workers) of one pool process."""
        sockets = packet_sockets()
        pids = children(pool)
        zygotes = [pid for pid in pids if is_zygote(pid, sockets)]
        return zygotes, [pid for pid in pids if pid not in zygotes]

    def is_whole(self):
        pools = self.server.pool_pids()
        crews = [self.crew(pool) for pool in pools]
        return len(pools) == 2 and all(
            len(zygotes) == self.zygotes and len(workers) == WORKERS for zygotes, workers in crews
        )

    def wait_whole(self):
        wait_until(self.is_whole, 60, "both pools with %d workers:\n%s" % (WORKERS, self.server.log()[-3000:]))

    def victim(self):
        pool = self.dice.choice(self.server.pool_pids())
        zygotes, workers = self.crew(pool)
        kind = self.first.pop() if self.first else self.dice.choices(["worker", "zygote", "pool"], [6, 2, 2])[0]
        if kind == "zygote" and not zygotes:
            kind = "worker"
        return kind, {"pool": [pool], "zygote": zygotes, "worker": workers}[kind]

    def kill_one(self):
        while True:
            kind, pids = self.victim()
            pid = self.dice.choice(pids)
            try:
                os.kill(pid, signal.SIGSEGV)
                break
            except ProcessLookupError:
                pass  # what a zygote forks with, which outlived it for a moment
        self.count[kind] += 1
        wait_until(lambda: not alive(pid), what="the end of %s %d" % (kind, pid))
        self.wait_whole()
        return kind


def jiffies(server):
    return sum(map(cpu_seconds, [server.master] + descendants(server.master))) * os.sysconf("SC_CLK_TCK")


def is_idle(server):
    """At most a tenth of a processor is used."""
    before, began = jiffies(server), time.monotonic()
    time.sleep(0.5)
    return jiffies(server) - before <= 0.1 * os.sysconf("SC_CLK_TCK") * (time.monotonic() - began)


def check_as_before(server, chaos, known):
    chaos.wait_whole()
    wait_until(lambda: not zombies(server.master), what="no zombies")
    left = leftovers() - known  # or of somebody else, who removes it, too
    wait_until(lambda: not left & leftovers(), what="nothing left in /dev/shm and /tmp")
    wait_until(lambda: is_idle(server), what="nobody works any more")
    sockets = [path for path in server.site.run.iterdir() if path.is_socket()]
    assert len(sockets) == 2
    before = server.pool_pids()
    wait_until(lambda: len(server.get("/hello.php").body) > 0)
    assert server.pool_pids() == before
