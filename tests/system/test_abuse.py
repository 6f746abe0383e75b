"""What a hostile front end, script or machine does, and that it costs the others nothing."""
import os
import resource
import signal
import time

import fcgi
from harness import check_peak_memory, descendants, limit_files, wait_until


def test_words_without_end_of_a_dead_workers_child_do_not_hang_the_pool(h2fpm):
    """The child holds the worker's stderr, and writes faster than one logs."""
    server = h2fpm(pool={"pm.max_children": 2, "catch_workers_output": "yes"})
    server.site.script("flood.php", "<?php exec('yes x >&2 </dev/null & echo $!', $out); echo getmypid(), ' ', $out[0];")
    pool, old = server.pool_pid, server.wait_workers(2)
    worker, child = map(int, server.get("/flood.php").text.split())
    server.seen.add(child)
    os.kill(worker, signal.SIGKILL)
    assert server.get(timeout=3).status == 200
    wait_until(lambda: worker not in descendants(server.master), what="the worker reaped")
    assert server.get(timeout=3).status == 200
    assert server.pool_pids() == [pool] and worker in old


def test_words_without_end_do_not_keep_the_others_waiting(h2fpm):
    server = h2fpm(pool={"catch_workers_output": "yes"})
    server.site.script("flood.php", "<?php exec('yes x >&2 </dev/null & echo $!', $out); echo $out[0];")
    child = int(server.get("/flood.php").text)
    server.seen.add(child)
    try:
        server.wait_log("said into stderr")
        took = []
        for _ in range(21):
            began = time.monotonic()
            assert server.get().status == 200
            took.append(time.monotonic() - began)
        assert min(took) < 0.1, took
    finally:
        os.kill(child, signal.SIGKILL)


def open_files(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def start_upload(server, conn, size):
    """Sends a body's first part, which needs a spool file, and no end."""
    params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(2 * size))
    conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)))
    conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * size, end=False))


def finish_upload(conn, size):
    conn.send(fcgi.stream(fcgi.STDIN, 1, b"x" * size))
    return conn.read_response()


def test_spool_files_leave_all_workers_their_descriptors(h2fpm):
    """Of 59 descriptors that connections and bodies may take here, 45 are connections."""
    server = h2fpm(preexec=limit_files(100), pool={"pm.max_children": 8, "request.buffer_size": "8K"})
    old = server.wait_workers(8)
    conns = [server.connect() for _ in range(45)]
    for conn in conns:
        assert conn.request(server.params()).status == 200
    for conn in conns:
        start_upload(server, conn, 20000)
    server.wait_log("cannot store a request body")
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    server.wait_workers(8, without=old)
    assert not server.log_lines("cannot be started")
    for conn in conns:
        conn.close()


def test_spool_file_that_is_done_with_lets_connections_in(h2fpm):
    """Accepting must not wait for a connection to close: idle ones may stay."""
    server = h2fpm(preexec=limit_files(64), pool={"request.buffer_size": "8K"})
    server.wait_workers(2)
    before = open_files(server.pool_pid)
    uploads = [server.connect() for _ in range(20)]
    for conn in uploads:
        start_upload(server, conn, 20000)
    wait_until(lambda: open_files(server.pool_pid) >= before + 40, what="20 spool files")
    late = [server.start_get("/hello.php?%d" % i) for i in range(8)]
    server.wait_log("descriptors are in use")
    assert late[-1].quiet(0.1)
    assert [finish_upload(conn, 20000).status for conn in uploads] == [200] * 20
    assert [conn.read_response().status for conn in late] == [200] * 8
    for conn in uploads + late:
        conn.close()


def test_logs_that_may_not_grow_end_nothing(h2fpm):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    server = h2fpm(preexec=small_files)
    pool = server.pool_pid
    server.log_path.write_bytes(b"x" * 4096)
    server.access_path.write_bytes(b"x" * 4096)
    for _ in range(3):
        os.kill(server.master, signal.SIGUSR1)
        assert server.get().status == 200
    old = server.wait_workers(2)
    os.kill(old[0], signal.SIGKILL)
    server.wait_workers(2, without=old[:1])
    assert server.process.poll() is None and server.pool_pids() == [pool]
    assert server.get().status == 200


def test_signal_to_reopen_logs_that_hits_all_of_a_name_ends_nothing(h2fpm):
    server = h2fpm()
    pool = server.pool_pid
    for pid in (server.master, pool):
        os.kill(pid, signal.SIGUSR1)
    assert server.get().status == 200
    assert server.pool_pids() == [pool]


def test_requests_sent_ahead_wait_for_a_client_that_does_not_read(h2fpm):
    """Tiny requests whose answers are larger, by clients that take none. Later
    they do, and none is missing."""
    server = h2fpm(pool={"ping.path": "/ping"})
    ping = fcgi.request({"SCRIPT_NAME": "/ping", "REQUEST_METHOD": "GET"})
    count = 200000 // len(ping)
    conns = [server.connect() for _ in range(40)]
    for conn in conns:
        conn.sock.setblocking(False)
        conn.sent = conn.sock.send(ping * count)
    assert server.get().status == 200
    check_peak_memory(server.pool_pid, 24 * 1024)
    for conn in conns:
        conn.sock.settimeout(20)
        for _ in range(conn.sent // len(ping)):
            assert conn.read_response().body == b"pong"
    assert conns[0].quiet()
    conns[0].send((ping * count)[conns[0].sent % len(ping) :][: -conns[0].sent % len(ping)])
    assert conns[0].sent % len(ping) == 0 or conns[0].read_response().body == b"pong"
    for conn in conns:
        conn.close()
