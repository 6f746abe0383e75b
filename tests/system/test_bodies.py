"""Large bodies both ways, and slow clients at either end."""
import hashlib
import os
import random
import resource
import shutil
import signal
import socket

import pytest

import fcgi
from harness import Held, check_peak_memory, pattern, wait_taken, wait_until

MB = 1 << 20
MEMORY_KIB = 32 * 1024
SIZE = 30 * MB


def blob(size, seed):
    return random.Random(seed).randbytes(size)


def check_frugal(server):
    check_peak_memory(server.pool_pid, MEMORY_KIB)
    assert list(server.site.spool.iterdir()) == []


@pytest.fixture
def large(h2fpm):
    return h2fpm(pool={"request.max_body": "100M"})


def test_upload_of_30_mb_directly(large):
    body = blob(SIZE, 1)
    assert large.post("/hash.php", body).text == "%d %s" % (SIZE, hashlib.sha256(body).hexdigest())
    check_frugal(large)


def test_download_of_30_mb_directly(large):
    with large.connect() as conn:
        for _ in range(2):
            got = conn.request(large.params("/download.php?bytes=%d" % SIZE))
            assert hashlib.sha256(got.body).digest() == hashlib.sha256(pattern(SIZE)).digest()
    check_frugal(large)


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_upload_of_30_mb_through_nginx(large, nginx, buffering):
    body = blob(SIZE, 2)
    path = large.site.dir / "upload"
    path.write_bytes(body)
    front = nginx(large, request_buffering=buffering)
    expected = b"%d %s" % (SIZE, hashlib.sha256(body).hexdigest().encode())
    assert front.curl("/hash.php", "--data-binary", "@%s" % path)[::2] == (200, expected)
    check_frugal(large)


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_download_of_30_mb_through_nginx(large, nginx, buffering):
    front = nginx(large, buffering=buffering)
    status, _, body = front.curl("/download.php?bytes=%d" % SIZE)
    assert status == 200 and hashlib.sha256(body).digest() == hashlib.sha256(pattern(SIZE)).digest()
    check_frugal(large)


def test_chunked_upload_through_unbuffered_nginx_has_no_length(large, nginx):
    body = blob(3 * MB, 3)
    path = large.site.dir / "upload"
    path.write_bytes(body)
    front = nginx(large, request_buffering="off")
    got = front.curl("/hash.php", "-T", path, "-X", "POST", "-H", "Content-Length:")
    assert got[::2] == (200, b"%d %s" % (len(body), hashlib.sha256(body).hexdigest().encode()))


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_body_around_the_buffer_size_is_exact(h2fpm, around):
    server = h2fpm(pool={"request.buffer_size": "64K"})
    body = blob(65536 + around, around)
    assert server.post("/hash.php", body).text == "%d %s" % (len(body), hashlib.sha256(body).hexdigest())


def test_bodies_on_one_connection_do_not_mix(h2fpm):
    server = h2fpm(pool={"request.buffer_size": "16K"})
    rng = random.Random(9)
    with server.connect() as conn:
        for _ in range(40):
            body = blob(rng.choice([0, 1, 5000, 16384, 70000, 200000]), rng.random())
            params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(len(body)))
            assert conn.request(params, body).text == "%d %s" % (len(body), hashlib.sha256(body).hexdigest())


def slow_reader(server, uri):
    """A client whose answer has begun, and that does not read it."""
    conn = server.connect(receive_buffer=4096, timeout=60)
    conn.send(fcgi.request(server.params(uri)))
    assert conn.sock.recv(1, socket.MSG_PEEK)
    return conn


def test_slow_reader_of_a_small_answer_frees_the_worker(h2fpm):
    """One worker: the answer fits response.buffer_size, so that the worker
    serves the next one while the first client has not read a byte."""
    server = h2fpm(pool={"pm.max_children": 1, "response.buffer_size": "4M"})
    slow = slow_reader(server, "/download.php?bytes=%d" % (3 * MB))
    assert server.get("/hello.php").body == b"Hello, world\n"
    assert slow.read_response().body == pattern(3 * MB)
    slow.close()


def test_slow_reader_of_a_large_answer_costs_one_worker_and_bounded_memory(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2, "response.buffer_size": "1M"})
    slow = slow_reader(server, "/buffered.php?bytes=%d&dir=%s" % (20 * MB, server.site.data))
    for _ in range(20):
        assert server.get("/hello.php").body == b"Hello, world\n"
    assert not (server.site.data / "written").exists(), "20 MB were buffered"
    check_frugal(server)
    response = slow.read_response()
    assert response.complete and response.body == b"b" * (20 * MB)
    wait_until((server.site.data / "written").exists)
    check_frugal(server)
    slow.close()


def test_slow_reader_that_leaves_frees_its_worker(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "response.buffer_size": "256K", "response.spool_size": 0})
    slow = slow_reader(server, "/download.php?bytes=%d" % (20 * MB))
    waiting = server.start_get("/hello.php")
    wait_taken(waiting)
    assert waiting.quiet(0.1)
    slow.close()
    assert waiting.read_response().body == b"Hello, world\n"


def stalled_uploads(server, count, size=1000):
    conns = []
    for _ in range(count):
        conn = server.connect()
        params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(size))
        conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)) + fcgi.record(fcgi.STDIN, 1, b"x"))
        conns.append(conn)
    return conns


def test_stalled_uploads_cost_no_worker(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    stalled = stalled_uploads(server, 10)
    assert server.get("/hello.php", timeout=5).body == b"Hello, world\n"
    assert server.post("/hash.php", b"abc", timeout=5).text.startswith("3 ba7816bf")
    for conn in stalled:
        conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 999))
        assert conn.read_response().text.startswith("1000 ")


def test_uploads_given_up_half_way_leave_nothing(h2fpm):
    server = h2fpm(pool={"request.buffer_size": "16K"})
    for conn in stalled_uploads(server, 20):
        conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 100000, end=False))
        conn.close()
    assert server.get().status == 200
    assert list(server.site.spool.iterdir()) == []
    wait_until(lambda: not spooled(server), what="spool descriptors closed")


def spooled(server):
    found = []
    base = "/proc/%d/fd" % server.pool_pid
    for fd in os.listdir(base):
        try:
            target = os.readlink("%s/%s" % (base, fd))
        except FileNotFoundError:
            continue
        if str(server.site.spool) in target:
            found.append(target)
    return found


def test_spool_file_is_unlinked_and_in_the_spool_directory(h2fpm):
    server = h2fpm(pool={"request.buffer_size": "16K"})
    (conn,) = stalled_uploads(server, 1, 60000)
    conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 50000, end=False))
    wait_until(lambda: spooled(server), what="a spooled body")
    assert list(server.site.spool.iterdir()) == []
    conn.close()


def test_missing_spool_directory_is_5xx_and_small_bodies_go_on(h2fpm):
    server = h2fpm(pool={"request.buffer_size": "16K"})
    shutil.rmtree(server.site.spool)
    response = server.post("/hash.php", b"x" * 100000)
    assert response.complete and 500 <= response.status < 600, response
    assert server.post("/hash.php", b"x" * 1000).text.startswith("1000 ")
    server.site.spool.mkdir()
    server.site.give(server.site.spool)
    assert server.post("/hash.php", b"x" * 100000).text.startswith("100000 ")
    assert server.log_lines("spool"), server.log()


def test_full_spool_is_5xx_and_the_next_request_works(h2fpm):
    """A file size limit stands in for a full disk."""

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))

    server = h2fpm(pool={"request.buffer_size": "16K"}, preexec=small_files)
    pid = server.pool_pid
    with server.connect() as conn:
        body = b"x" * MB
        params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(len(body)))
        try:
            conn.send(fcgi.request(params, body))
        except (BrokenPipeError, ConnectionResetError):
            pass
        response = conn.read_response()
        assert response.complete and 500 <= response.status < 600, response
        assert conn.request(server.params()).body == b"Hello, world\n"
    assert server.post("/hash.php", b"x" * 100000).text.startswith("100000 ")
    assert server.pool_pid == pid, "the pool process died"
    check_frugal(server)


def test_spool_file_that_cannot_be_read_back_is_5xx_and_no_hang(h2fpm):
    """A file that is cut short stands in for a disk's error."""
    server = h2fpm(pool={"pm.max_children": 1})
    (worker,) = server.wait_workers(1)
    os.kill(worker, signal.SIGSTOP)
    body = b"x" * 3 * MB
    with server.connect() as conn:
        conn.send(fcgi.request(server.params("/hash.php", "POST", CONTENT_LENGTH=str(len(body))), body))
        for fd in wait_until(lambda: spool_files(server, len(body)), what="a spooled body"):
            os.truncate(fd, 1000)
        os.kill(worker, signal.SIGCONT)
        response = conn.read_response()
        assert response.complete and 500 <= response.status < 600, response
        assert conn.request(server.params()).status == 200


def spool_files(server, size):
    """Of that size already, as paths that open them."""
    base = "/proc/%d/fd/" % server.pool_pid
    paths = [base + fd for fd in os.listdir(base) if str(server.site.spool) in os.readlink(base + fd)]
    return [path for path in paths if os.stat(path).st_size == size]


def test_client_that_never_reads_and_floods_requests_is_bounded(h2fpm):
    """A client that sends and never reads: its connection may stall, memory
    and the others may not."""
    server = h2fpm(pool={"response.buffer_size": "256K"})
    rude = server.connect(receive_buffer=4096, timeout=1)
    request = fcgi.request(server.params("/download.php?bytes=100000"))
    try:
        for _ in range(3000):
            rude.send(request)
    except (socket.timeout, BrokenPipeError, ConnectionResetError):
        pass
    assert server.get("/hello.php").status == 200
    check_frugal(server)
    rude.close()


def test_held_worker_and_large_answer_side_by_side(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    held = Held(server)
    got = server.get("/download.php?bytes=%d" % (5 * MB))
    assert got.body == pattern(5 * MB)
    assert b"passed" in held.finish().body


def test_body_is_complete_without_its_end_record(h2fpm):
    """HAProxy leaves it out where the browser tells the end by itself."""
    server = h2fpm()
    params = server.params("/hash.php", "POST", CONTENT_LENGTH="100000")
    with server.connect() as conn:
        for _ in range(2):
            conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)))
            conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * 100000, end=False))
            assert conn.read_response().text.split()[0] == "100000"
            conn.send(fcgi.record(fcgi.STDIN, 1))  # late, and harmless
