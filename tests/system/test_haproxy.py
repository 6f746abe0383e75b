"""HAProxy in front: multiplexed connections, and several h2fpm behind one
HAProxy, as the examples in etc/haproxy/ set it up."""
import hashlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import pytest

import fronts
import harness
from harness import Held, pattern, wait_until
from http2 import Http2

# What holds for every front end holds for this one, too.
from test_frontends import (  # noqa: F401
    data,
    test_answer_that_is_cut,
    test_client_that_leaves_in_mid_answer,
    test_connections_to_h2fpm,
    test_hello,
    test_index,
    test_large_answer,
    test_many_requests_on_one_connection,
    test_no_php_in_other_files,
    test_parallel_requests_on_one_connection,
    test_path_info,
    test_restart_of_h2fpm,
    test_upload,
    test_what_the_script_is_told,
    test_worker_that_dies,
)

WORKERS = 4
PLACES = 30  # of h2fpm.cfg: maxconn
MIB = 1 << 20
HELLO = b"Hello, world\n"


@pytest.fixture(scope="module")
def server():
    one = harness.H2fpm(pool={"pm.max_children": WORKERS, "ping.path": "/ping"})
    one.site.script("index.php", "<?php echo 'index';")
    yield one
    one.close()


@pytest.fixture(scope="module")
def front(server, certificate):
    one = fronts.HaproxyExample(server)
    yield one
    one.close()


@pytest.fixture
def http2(front):
    client = Http2(front.port)
    yield client
    client.close()


@pytest.fixture
def haproxy(certificate):
    made = []

    def start(cls, *arguments):
        made.append(cls(*arguments))
        return made[-1]

    yield start
    for one in made:
        one.close()


def stat(front, backend, name):
    rows = [row.split(",") for row in front.tell("show stat").splitlines() if row]
    return [int(row[rows[0].index(name)]) for row in rows if row[:2] == [backend, "BACKEND"]][0]


def started(data, name):
    return list(data.glob(name + ".started.*"))


def spooled(server):
    """Sizes of the pool process's nameless files: bodies that are being received."""
    sizes = []
    for fd in pathlib.Path("/proc/%d/fd" % server.pool_pid).iterdir():
        try:
            if os.readlink(fd).startswith(str(server.site.spool)):
                sizes.append(fd.stat().st_size)
        except FileNotFoundError:
            pass
    return sizes


# ---- many at a time ----


def test_many_streams_over_few_connections(front, server):
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, len(server.connections()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        load = front.h2load("/hello.php", 3000, 8, 100)
    finally:
        done.set()
        watcher.join()
    assert (load["2xx"], load["succeeded"]) == (3000, 3000), load
    assert 1 <= peak <= 8


def test_each_stream_gets_its_own_answer(http2):
    sizes = [100 * n + 1 for n in range(100)]
    streams = [http2.get("/download.php?bytes=%d&seed=s%d" % (size, size)) for size in sizes]
    for size, body in zip(sizes, http2.wait(*streams)):
        assert body == pattern(size, "s%d" % size)


def test_large_answer_beside_small_ones(http2):
    size = 8 * MIB + 1
    large = http2.get("/download.php?bytes=%d&seed=large" % size)
    small = [http2.get("/hello.php") for _ in range(50)]
    assert http2.wait(*small) == [HELLO] * 50
    (body,) = http2.wait(large)
    assert len(body) == size
    assert hashlib.sha256(body).digest() == hashlib.sha256(pattern(size, "large")).digest()


def test_heads_of_all_sizes_in_a_burst(front):
    """HAProxy answers 500 where the parameters of those that are sent together
    do not fit into its buffer."""
    for size in (10, 900, 1200, 1300, 6000, 20000):
        command = ["h2load", "-n", 300, "-c", 3, "-m", 100, "-H", "cookie: " + "c" * size, front.url + "/hello.php"]
        ran = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=True)
        load = harness.parse_h2load(ran.stdout)
        assert (load["2xx"], load["succeeded"]) == (300, 300), (size, load)


def test_uploads_beside_requests_without_a_body(front):
    """None of their records fall between the parameters of the others."""
    body = pattern(16 * MIB, "up")
    path = front.dir / "upload"
    path.write_bytes(body)
    command = ["curl", "-sk", "--http2", "-X", "POST", "-T", str(path), front.url + "/hash.php"]
    uploads = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    load = front.h2load("/hello.php", 2000, 4, 32)
    answers = [one.communicate(timeout=60)[0] for one in uploads]
    assert (load["2xx"], load["succeeded"]) == (2000, 2000), load
    assert answers == [b"%d %s" % (len(body), hashlib.sha256(body).hexdigest().encode())] * 2


def test_end_of_an_upload_that_comes_alone(server, http2):
    """In a frame of its own, after all else is with h2fpm."""
    size = 100000  # more than HAProxy awaits before it passes anything on
    before = len(server.access_lines())
    stream = http2.post("/hash.php", size)
    http2.send_data(stream, bytes(size))
    wait_until(lambda: len(server.access_lines()) > before, what="h2fpm runs it: all of it is there")
    http2.send_data(stream, b"", end=True)
    http2.sock.settimeout(3)
    assert http2.wait(stream)[0].split()[0] == b"%d" % size


def test_haproxy_is_told_what_a_connection_takes(h2fpm, haproxy):
    """By GET_VALUES, which it asks first; without that answer max-reqs would count."""
    server = h2fpm(pool={"pm.max_children": 6})
    front = haproxy(fronts.HaproxyExample, server, {"option max-reqs 128": "option max-reqs 1"})
    http2, data = Http2(front.port), server.site.data
    assert http2.wait(http2.get("/hello.php")) == [HELLO]
    names = ["g%d" % n for n in range(6)]
    streams = [http2.get("/gate.php?dir=%s&id=%s" % (data, name)) for name in names]
    wait_until(lambda: len(started(data, "g?")) == 6, what="all run")
    assert len(server.connections()) == 1
    for name in names:
        (data / (name + ".go")).touch()
    assert all(body.startswith(b"passed") for body in http2.wait(*streams))
    http2.close()


# ---- who leaves ----


def test_cancelled_upload(front, server):
    path = front.dir / "upload"
    path.write_bytes(bytes(4 * MIB))
    before = spooled(server)
    command = ["curl", "-sk", "--http2", "--limit-rate", "1M", "-o", os.devnull, "-X", "POST", "-T", str(path)]
    client = subprocess.Popen([*command, front.url + "/hash.php"])
    wait_until(lambda: len(spooled(server)) > len(before), what="the upload is being received")
    client.kill()
    client.wait()
    wait_until(lambda: spooled(server) == before, what="the upload is given up")
    status, _, body = front.curl("/hash.php", "-X", "POST", "--data-binary", "x=1")
    assert (status, body.split()[0]) == (200, b"3")


def test_reset_stream_leaves_the_others_alone(server, http2, data):
    before = len(server.access_lines())
    left = http2.get("/gate.php?dir=%s&id=left" % data)
    kept = http2.get("/gate.php?dir=%s&id=kept" % data)
    wait_until(lambda: started(data, "left") and started(data, "kept"), what="both scripts run")
    http2.reset(left)
    (data / "left.go").touch()
    server.wait_access(before + 1)
    assert http2.wait(http2.get("/hello.php")) == [HELLO]
    (data / "kept.go").touch()
    assert http2.wait(kept)[0].startswith(b"passed")


@pytest.mark.alone
@pytest.mark.parametrize("how", ["resets its streams", "closes"])
def test_who_leaves_while_waiting_in_haproxy_costs_nothing(front, server, data, how):
    http2, before = Http2(front.port), len(server.access_lines())
    streams = [http2.get("/burst.php?dir=%s&id=abandoned" % data) for _ in range(2 * PLACES)]
    wait_until(lambda: stat(front, "php-shared", "qcur") == PLACES, what="half of them wait in HAProxy")
    if how == "closes":
        http2.sock.shutdown(socket.SHUT_WR)
    else:
        for stream in streams:
            http2.reset(stream)
    wait_until(lambda: stat(front, "php-shared", "qcur") == 0, what="they are gone")
    (data / "abandoned.go").touch()
    for one in [Held(server) for _ in range(WORKERS)]:
        one.finish()
        one.conn.close()
    runs = [line for line in server.access_lines()[before:] if "/burst.php" in line]
    assert len(runs) <= PLACES
    http2.close()


# ---- failures ----


def test_script_that_dies_in_mid_answer(front, server, data, http2):
    """Nobody else is harmed. HAProxy 2.6 ends a cut answer as if it were whole:
    a client sees by its Content-Length that it is not."""
    neighbour = http2.get("/gate.php?dir=%s&id=neighbour" % data)
    wait_until(lambda: started(data, "neighbour"), what="the neighbour runs")
    dying = http2.get("/crash.php?dir=%s&when=middle" % data)
    http2.wait_data(dying)
    server.wait_log("SIGKILL", "/crash.php")
    assert http2.wait(http2.get("/hello.php")) == [HELLO]
    (data / "neighbour.go").touch()
    assert http2.wait(neighbour)[0].startswith(b"passed")
    assert len(http2.wait(dying)[0]) == 20000  # of 100000
    for version, code in (("--http2", 92), ("--http1.1", 18)):
        command = ["curl", "-sk", version, "-o", os.devnull, front.url + "/crash.php?dir=%s&when=middle" % data]
        assert subprocess.run(command, timeout=30, check=False).returncode == code


def test_script_that_dies_in_mid_answer_of_unknown_length_over_http_1(front, server):
    server.site.script("dies.php", "<?php echo str_repeat('c', 20000); flush(); posix_kill(getmypid(), 9);")
    done = subprocess.run(["curl", "-sk", "--http1.1", front.url + "/dies.php"], capture_output=True, timeout=30)
    assert done.returncode == 18 and len(done.stdout) <= 20000


def test_pages_of_h2fpm_pass(front, server, data):
    status, _, body = front.curl("/none.php")
    assert (status, body) == (404, b"No input file specified.\n")
    status, _, body = front.curl("/note.txt")
    assert (status, body) == (403, b"Access denied.\n")
    status, _, body = front.curl("/crash.php?dir=%s" % data, "-X", "POST", "-d", "x=1")
    assert status == 502 and body.startswith(b"502 Bad Gateway: the script's process ended"), body
    status, headers, body = front.curl("/status.php?code=503")
    assert (status, headers["x-test"], body) == (503, "yes", b"status 503")
    assert front.curl("/ping")[::2] == (200, b"pong")


def test_overload_page_passes(h2fpm, haproxy):
    server = h2fpm(pool={"pm.max_children": 1, "queue.max": 1})
    front = haproxy(fronts.HaproxyExample, server)
    running = Held(server)
    waiting = Held(server, wait=False)
    server.wait_log("1 requests are waiting")
    status, headers, body = front.curl("/hello.php")
    assert (status, headers["retry-after"]) == (503, "1"), body
    for one in (running, waiting):
        assert one.finish().status == 200
        one.conn.close()


# ---- the site ----


def test_plain_http_is_sent_to_https(front):
    command = ["curl", "-s", "-o", os.devnull, "-w", "%{http_code} %{redirect_url}"]
    command += ["--unix-socket", str(front.dir / "plain.sock"), "http://localhost/hello.php?a=b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "301 https://localhost/hello.php?a=b"


def test_one_entry_for_all_addresses(server, haproxy):
    told = "<?php echo $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_POST['x'] ?? '';"
    server.site.script("index.php", told)
    front = haproxy(fronts.HaproxyExample, server, {"\t#     set-param": "\tset-param"})
    assert front.curl("/blog/post?p=1")[::2] == (200, b"/blog/post?p=1 /index.php ")
    assert front.curl("/blog/post", "-d", "x=1")[::2] == (200, b"/blog/post /index.php 1")
    assert front.curl("/")[::2] == (200, b"/ /index.php ")
    assert front.curl("/hello.php")[::2] == (200, HELLO)


# ---- several h2fpm ----


class Load:
    """GETs without a pause until it is stopped: every answer is checked."""

    def __init__(self, front):
        self.front, self.done, self.error = front, 0, None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            http2 = Http2(self.front.port)
            while not self.stopping.is_set():
                bodies = http2.wait(*[http2.get("/hello.php") for _ in range(16)])
                assert set(bodies) == {HELLO}, bodies
                self.done += 16
            http2.close()
        except BaseException as error:  # told by stop()
            self.error = error

    def more(self, count):
        """Awaits so many further answers."""
        before = self.done
        wait_until(lambda: self.error or self.done >= before + count, what="%d answers" % count)

    def stop(self):
        self.stopping.set()
        self.thread.join()
        if self.error:
            raise self.error


@pytest.fixture
def hosts(h2fpm):
    def start(**pool):
        port = harness.free_port()
        settings = {"pm.max_children": 2, "ping.path": "/ping", "mpxs.max_requests": 30}
        settings.update({key.replace("__", "."): value for key, value in pool.items()})
        return h2fpm(listen="127.0.0.1:%d" % port, pool=settings)

    return start


def served(server):
    return sum("/ping" not in line for line in server.access_lines())


def wait_state(front, host, state):
    wait_until(lambda: front.states()["php-shared/" + host] == state, what="%s is %s" % (host, state))
    assert front.states()["php-alone/" + host].split()[0] == state


def test_host_that_is_stopped_and_started_again(hosts, haproxy):
    a, b = hosts(), hosts()
    front = haproxy(fronts.HaproxyBalance, a, b)
    load = Load(front)
    try:
        load.more(200)
        a.stop(signal.SIGQUIT)
        wait_state(front, "a", "DOWN")
        load.more(200)
        before = served(a)
        a.start()
        wait_state(front, "a", "UP")
        wait_until(lambda: served(a) > before, what="it serves again")
    finally:
        load.stop()
    assert served(a) and served(b)


def test_health_is_asked_by_ping_path(hosts, haproxy):
    a, b = hosts(), hosts(ping__path=None)
    front = haproxy(fronts.HaproxyBalance, a, b)
    wait_state(front, "b", "DOWN")
    assert front.states()["php-shared/a"] == "UP"
    assert re.search(r'^- .*"GET /ping" 200$', "\n".join(a.access_lines()), re.M)
    assert [front.curl("/hello.php")[0] for _ in range(8)] == [200] * 8
    assert served(a) == 8


def test_host_that_is_drained_gets_no_new_requests(hosts, haproxy):
    a, b = hosts(), hosts()
    front = haproxy(fronts.HaproxyBalance, a, b)

    def ask():
        assert [front.curl("/hello.php")[0] for _ in range(6)] == [200] * 6
        assert [front.curl("/hash.php", "-d", "x=1")[0] for _ in range(6)] == [200] * 6

    ask()
    wait_until(lambda: served(a) + served(b) == 12, what="the access logs")
    assert served(a) and served(b)
    assert front.tell("set server php-shared/a state drain").strip() == ""
    wait_state(front, "a", "DRAIN")
    before = served(a)
    ask()
    wait_until(lambda: served(a) + served(b) == 24, what="the access logs")
    assert served(a) == before
    front.tell("set server php-shared/a state ready")
    wait_state(front, "a", "UP")
    ask()
    wait_until(lambda: served(a) > before, what="it serves again")
