"""Many requests on one FastCGI connection: FastCGI 1.0's rules, every kind of
end for one of several, limits, and readers that are slow."""
import contextlib
import os
import random
import signal
import threading
import socket
import time

import fcgi
import harness
import pytest
from fcgi import Mux
from harness import Held, pattern, wait_until

KB, MB = 1 << 10, 1 << 20
HELLO = b"Hello, world\n"


@contextlib.contextmanager
def muxed(server, **options):
    with Mux(server.connect(**options)) as mux:
        yield mux


def get_values(*names):
    return fcgi.record(fcgi.GET_VALUES, 0, fcgi.pairs([(name, b"") for name in names]))


def only_begun(server, request_id, uri="/hash.php", **extra):
    """All but the body of a POST."""
    params = server.params(uri, "POST", CONTENT_TYPE="application/octet-stream", **extra)
    return fcgi.begin(request_id) + fcgi.stream(fcgi.PARAMS, request_id, fcgi.pairs(params))


def gate(server, name):
    return server.params("/gate.php?dir=%s&id=%s" % (server.site.data, name))


def release(server, name):
    (server.site.data / (name + ".go")).touch()


def wait_started(server, name):
    return wait_until(lambda: list(server.site.data.glob(name + ".started.*")), what=name + " started")


def marks(server):
    path = server.site.data / "marks"
    return path.read_text().split() if path.exists() else []


def spool_files(server):
    fds = "/proc/%d/fd/" % server.pool_pid
    names = []
    for fd in os.listdir(fds):
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(fds + fd))
    return [name for name in names if str(server.site.spool) in name]


def refused(server):
    """The pool's last words: what was refused by which limit."""
    server.stop()
    line = server.wait_log("refused: ")[-1]
    return {part.split(" by ")[1].split(";")[0]: int(part.split(" by ")[0].split()[-1])
            for part in line.split("refused: ")[1].split(";")[0].split(", ")}


# ---- ids and records ----


def test_values_tell_of_multiplexing(h2fpm):
    server = h2fpm(pool={"mpxs.max_requests": 300})
    with muxed(server) as mux:
        mux.send(get_values("FCGI_MPXS_CONNS", "FCGI_MAX_REQS", "FCGI_MAX_CONNS"))
        mux.request(9, gate(server, "a"))
        mux.send(get_values("FCGI_MAX_REQS"))
        half = fcgi.begin(10) + fcgi.record(fcgi.PARAMS, 10, fcgi.pairs(server.params())[:100])
        mux.start(10, half)
        mux.send(get_values("FCGI_MAX_REQS") + fcgi.record(200, 0, b"?" * 60000))
        mux.send(fcgi.stream(fcgi.PARAMS, 10, fcgi.pairs(server.params())[100:]) + fcgi.record(fcgi.STDIN, 10))
        assert mux.wait(10).body == HELLO
        release(server, "a")
        assert b"passed" in mux.wait(9).body
        mux.send(get_values("FCGI_MAX_REQS"))
        while len(mux.values) < 5:
            mux.take()
    many = fcgi.pair("FCGI_MAX_REQS", "300")
    known = fcgi.pair("FCGI_MPXS_CONNS", "1") + many
    max_conns = int(mux.values[0][1][len(known) + len(b"\x0e\x01FCGI_MAX_CONNS") :])
    assert max_conns > 0
    assert mux.values[0] == (fcgi.GET_VALUES_RESULT, known + fcgi.pair("FCGI_MAX_CONNS", str(max_conns)))
    assert [v for v in mux.values[1:]] == [
        (fcgi.GET_VALUES_RESULT, many), (fcgi.GET_VALUES_RESULT, many),
        (fcgi.UNKNOWN_TYPE, b"\xc8" + b"\0" * 7), (fcgi.GET_VALUES_RESULT, many)]


def test_random_interleavings_of_any_ids(h2fpm):
    """Bodies and parameters of many, in random records, in any order; some are
    given up at some record, and what comes of them after that is ignored."""
    server = h2fpm(pool={"pm.max_children": 4})
    dice = random.Random(4)
    bodies = {}
    with muxed(server) as mux:
        for _ in range(4):
            parts, given_up = {}, set()
            for request_id in dice.sample(range(1, 65536), 50):
                body = dice.randbytes(dice.choice([0, 1, 1000, 70000]))
                bodies[request_id] = body
                block = fcgi.pairs(server.params("/hash.php", "POST", CONTENT_LENGTH=str(len(body))))
                parts[request_id] = [fcgi.begin(request_id)]
                for kind, data in ((fcgi.PARAMS, block), (fcgi.STDIN, body)):
                    while data:
                        size = dice.randint(1, 30000)
                        parts[request_id].append(fcgi.record(kind, request_id, data[:size], dice.randint(0, 9)))
                        data = data[size:]
                    parts[request_id].append(fcgi.record(kind, request_id))
                if dice.random() < 0.2:
                    at = dice.randint(1, len(parts[request_id]))
                    parts[request_id].insert(at, fcgi.record(fcgi.ABORT, request_id))
                    given_up.add(request_id)
                mux.expect(request_id)
            stream = b""
            while parts:
                request_id = dice.choice(list(parts))
                stream += parts[request_id].pop(0)
                if not parts[request_id]:
                    del parts[request_id]
            mux.conn.send_cut(stream, dice.sample(range(len(stream)), 200))
            asked = dict(mux.open)
            mux.wait()
            for request_id, response in asked.items():
                if request_id not in given_up or response.stdout:
                    assert response.text == hash_of(bodies[request_id])


def hash_of(body):
    import hashlib

    return "%d %s" % (len(body), hashlib.sha256(body).hexdigest())


def test_what_comes_for_a_finished_id_is_ignored(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        for _ in range(3):
            mux.request(700, server.params())
            assert mux.wait(700).body == HELLO
            mux.send(fcgi.record(fcgi.STDIN, 700, b"late") + fcgi.record(fcgi.PARAMS, 700, b"late"))
            mux.abort(700)
        assert mux.conn.quiet(0.1)


def test_begin_for_an_id_in_use_harms_that_connection_alone(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    with muxed(server) as other:
        other.request(3, gate(server, "b"))
        wait_started(server, "b")
        queued = fcgi.request(server.params(), request_id=3)
        for so_far in (fcgi.begin(3), only_begun(server, 3, CONTENT_LENGTH="5"), queued):
            with muxed(server) as mux:
                mux.request(2, server.params())
                mux.start(3, so_far)
                mux.send(fcgi.begin(3))
                assert mux.conn.closed_by_peer()
        other.send(fcgi.begin(4))
        release(server, "b")
        assert b"passed" in other.wait(3).body
        with muxed(server) as mux:
            mux.request(3, gate(server, "a"))
            wait_started(server, "a")
            mux.send(fcgi.begin(3))
            assert mux.conn.closed_by_peer()
        release(server, "a")
    assert "is open" in server.wait_log("connection is closed")[0]


def test_begin_waits_for_an_answer_that_is_still_being_sent(h2fpm):
    """The same id again, before its END_REQUEST could be taken."""
    server = h2fpm(pool={"response.buffer_size": "4M"})
    with muxed(server) as mux:
        mux.request(5, server.params("/download.php?bytes=%d" % (2 * MB)))
        assert server.wait_access(1)
        mux.send(fcgi.request(server.params(), request_id=5))
        mux.request(6, server.params())
        mux.conn.sock.shutdown(socket.SHUT_WR)
        assert mux.wait(5).body == pattern(2 * MB)
        mux.expect(5)
        assert [response.body for response in mux.wait(5, 6)] == [HELLO, HELLO]
        assert mux.conn.closed_by_peer()


def test_one_too_many_is_refused_alone(h2fpm):
    server = h2fpm(pool={"mpxs.max_requests": 5, "pm.max_children": 1}, main={"log_level": "debug"})
    with muxed(server) as mux:
        for n in range(1, 6):
            mux.request(n * 1000, gate(server, "g%d" % n))
        mux.request(77, server.params())
        assert mux.wait(77).protocol_status == fcgi.OVERLOADED
        release(server, "g1")
        assert b"passed" in mux.wait(1000).body
        mux.request(78, server.params())
        for n in range(2, 6):
            release(server, "g%d" % n)
        assert all(response.complete for response in mux.wait())
    assert refused(server)["mpxs.max_requests"] == 1


def test_as_many_as_are_told_of(h2fpm):
    """128 where nothing else is set; what is half received or has no worker
    yet counts, what was given up does not."""
    server = h2fpm(pool={"pm.max_children": 1})
    with muxed(server) as mux:
        mux.request(65535, gate(server, "a"))
        mux.start(1, fcgi.begin(1))
        for n in range(2, 128):
            mux.request(n * 500, server.params())
        for _ in range(2):
            mux.request(3, server.params())
            assert mux.wait(3).protocol_status == fcgi.OVERLOADED
            mux.abort(1000)
            mux.wait(1000)
            mux.request(1000, server.params())
        mux.abort(1)
        release(server, "a")
        assert all(response.complete for response in mux.wait())
        mux.send(get_values("FCGI_MAX_REQS"))
        mux.take()
    assert mux.values == [(fcgi.GET_VALUES_RESULT, fcgi.pair("FCGI_MAX_REQS", "128"))]


def test_one_too_many_where_one_is_allowed(h2fpm):
    server = h2fpm(pool={"mpxs.max_requests": 1}, main={"log_level": "debug"})
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params())
        assert mux.wait(2).protocol_status == fcgi.CANT_MPX_CONN
        release(server, "a")
        assert b"passed" in mux.wait(1).body
    assert refused(server)["mpxs.max_requests"] == 1


def test_other_roles_are_refused_alone(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        for role in (fcgi.AUTHORIZER, fcgi.FILTER, 9):
            mux.start(role + 100, fcgi.begin(role + 100, role=role) + fcgi.record(fcgi.PARAMS, role + 100))
            assert mux.wait(role + 100).protocol_status == fcgi.UNKNOWN_ROLE
        release(server, "a")
        assert b"passed" in mux.wait(1).body


def test_early_answers_among_scripts(h2fpm):
    server = h2fpm(pool={"ping.path": "/ping", "request.max_body": 100})
    wanted = {}
    with contextlib.ExitStack() as stack:
        muxes = [stack.enter_context(muxed(server)) for _ in range(5)]
        for n in range(0, 100, 5):
            wanted.update({n + 1: 200, n + 2: 403, n + 3: 404, n + 4: 413, n + 5: 200})
            for mux in muxes:
                mux.request(n + 1, server.params())
                mux.request(n + 2, server.params("/note.txt"))
                mux.request(n + 3, server.params("/no.php"))
                mux.request(n + 4, server.params("/hash.php", "POST", CONTENT_LENGTH="101"), b"x" * 101)
                mux.request(n + 5, {"SCRIPT_NAME": "/ping", "REQUEST_METHOD": "GET"})
        for mux in muxes:
            responses = dict(mux.open)
            mux.wait()
            assert {n: response.status for n, response in responses.items()} == wanted
            assert all(response.complete for response in responses.values())
            assert all(responses[n + 1].body == HELLO for n in range(0, 100, 5))
            assert all(responses[n + 5].body == b"pong" for n in range(0, 100, 5))


# ---- turns ----


@pytest.mark.parametrize("tcp", [False, True])
def test_small_answer_overtakes_a_large_one(h2fpm, tcp):
    size = 40 * MB
    server = h2fpm(listen="127.0.0.1:%d" % harness.free_port() if tcp else None)
    with muxed(server, receive_buffer=65536) as mux:
        mux.request(1, server.params("/download.php?bytes=%d" % size))
        mux.request(2, server.params())
        assert mux.wait(2).body == HELLO
        while len(mux.open[1].stdout) < 4 * MB:
            mux.take()
        mux.request(3, server.params())
        wait_until(lambda: len(server.access_lines()) >= 2)
        before = len(mux.open[1].stdout)
        assert mux.wait(3).body == HELLO
        assert len(mux.open[1].stdout) - before < MB
        assert mux.wait(1).body == pattern(size)
    assert max(length for kind, _, length in mux.order if kind == fcgi.STDOUT) <= 8192


def test_many_small_ones_overtake_a_large_one(h2fpm):
    """Of the large one little but what the socket held precedes them."""
    server = h2fpm(pool={"pm.max_children": 4})
    with muxed(server) as mux:
        everything = b""
        for request_id in range(1, 100):
            uri = "/download.php?bytes=%d" % (20 * MB if request_id == 1 else 1024)
            mux.expect(request_id)
            everything += fcgi.request(server.params(uri), request_id=request_id)
        large = mux.open[1]
        mux.send(everything)
        server.wait_access(98)
        mux.wait(*range(2, 100))
        assert len(large.stdout) < 256 * KB
        assert mux.wait(1).body == pattern(20 * MB)


def test_large_answer_is_read_slowly_while_others_wait(h2fpm):
    """32 MiB a second for as long as one there has no byte of its answer yet,
    but no longer than for a second. A slow machine may be slower."""
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params("/download.php?bytes=%d" % (30 * MB)))
        begun = time.monotonic()
        large = mux.open[2]
        while len(large.stdout) < 12 * MB:
            mux.take()
        assert time.monotonic() - begun > 0.3
        assert mux.wait(2).body == pattern(30 * MB)
        release(server, "a")
        assert b"passed" in mux.wait(1).body


def test_answers_share_a_connection_in_turns(h2fpm):
    server = h2fpm(pool={"pm.max_children": 4, "response.buffer_size": "8M", "mpxs.buffer_size": "64M"})
    with muxed(server, receive_buffer=65536) as mux:
        for request_id in range(1, 5):
            mux.request(request_id, server.params("/download.php?bytes=%d" % (4 * MB)))
        server.wait_access(4)  # all of them are there
        responses = list(mux.open.values())
        while not any(response.ended for response in responses):
            mux.take()
        assert all(len(response.stdout) > 3 * MB for response in responses)
        mux.wait()
        assert all(response.body == pattern(4 * MB) for response in responses)


# ---- aborts ----


def test_abort_while_it_comes(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.start(2, fcgi.begin(2) + fcgi.record(fcgi.PARAMS, 2, b"half"))
        mux.abort(2)
        assert mux.wait(2).complete
        mux.start(3, only_begun(server, 3, CONTENT_LENGTH="1000") + fcgi.record(fcgi.STDIN, 3, b"x" * 10))
        mux.abort(3)
        assert mux.wait(3).complete
        mux.send(fcgi.record(fcgi.STDIN, 3, b"x" * 990) + fcgi.record(fcgi.STDIN, 3))
        release(server, "a")
        assert b"passed" in mux.wait(1).body


def test_aborted_in_the_queue_never_runs(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        wait_started(server, "a")
        for n in range(2, 30):
            mux.request(n, server.params("/mark.php?dir=%s&id=%d" % (server.site.data, n)))
        for n in range(2, 29):
            mux.abort(n)
            assert mux.wait(n).stdout == b""
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        assert mux.wait(29).body == b"marked"
    assert marks(server) == ["29"]


@pytest.mark.parametrize("when", ["running", "answering"])
def test_abort_frees_the_worker(h2fpm, when):
    server = h2fpm(pool={"pm.max_children": 1})
    with muxed(server) as mux:
        uri = "/ticker.php?max=100000&dir=%s" % server.site.data if when == "answering" else gate(server, "a")
        mux.request(65535, server.params(uri) if when == "answering" else uri)
        mux.request(2, server.params())
        if when == "answering":
            while not mux.open[65535].stdout:
                mux.take()
        else:
            wait_started(server, "a")
        mux.abort(65535)
        aborted = mux.open[65535]
        while not aborted.ended:
            mux.take()
        if when == "running":
            release(server, "a")
        assert mux.wait(2).body == HELLO
        assert mux.order[-1][1] == 2


def test_abort_of_what_waits_for_a_slow_reader(h2fpm):
    """Its worker is done, its answer is not taken: END_REQUEST comes all the
    same after little of it, and a neighbour's answer whole."""
    server = h2fpm(pool={"response.buffer_size": "8M", "mpxs.buffer_size": "32M"})
    with muxed(server, receive_buffer=65536) as mux:
        for request_id in (1, 2):
            mux.request(request_id, server.params("/download.php?bytes=%d" % (6 * MB)))
        server.wait_access(2)
        mux.abort(1)
        aborted = mux.open[1]
        while not aborted.ended:
            mux.take()
        assert len(aborted.stdout) < MB
        assert mux.wait(2).body == pattern(6 * MB)
        mux.request(1, server.params())
        assert mux.wait(1).body == HELLO


def test_abort_of_answers_in_files(h2fpm):
    """And the same id again in the same write, while a record of the aborted
    answer is half sent."""
    server = h2fpm(pool={"pm.max_children": 1}, main={"log_level": "debug"})
    with slow_reader(server, 4, 5 * MB) as mux:
        mux.take()
        assert server.get().body == HELLO
        server.wait_log("slow reader")
        asked = dict(mux.open)
        for request_id in (1, 2, 3):
            mux.send(fcgi.record(fcgi.ABORT, request_id) + fcgi.request(server.params(), request_id=request_id))
        while not all(asked[request_id].ended for request_id in (1, 2, 3)):
            ended = mux.take()
            if ended in (asked[1], asked[2], asked[3]):
                mux.expect(mux.order[-1][1])
        assert all(len(asked[request_id].stdout) < MB for request_id in (1, 2, 3))
        assert [response.body for response in mux.wait(1, 2, 3)] == [HELLO] * 3
        assert mux.wait(4).body == pattern(5 * MB)
        wait_until(lambda: not spool_files(server))


def test_abort_again_of_an_answer_that_failed(h2fpm):
    """A record of it was begun: one END_REQUEST comes behind that. Over TCP,
    where records are cut."""
    server = h2fpm(listen="127.0.0.1:%d" % harness.free_port(), main={"log_level": "debug"})
    with muxed(server, receive_buffer=4096) as mux:
        mux.request(1, gate(server, "a"))
        gate_pid = int(wait_started(server, "a")[0].suffix[1:])
        mux.request(2, server.params("/download.php?bytes=%d" % (20 * MB)))
        failing = mux.open[2]
        while not failing.stdout:
            mux.take()
        (downloading,) = [pid for pid in server.workers() if pid != gate_pid]
        os.kill(downloading, signal.SIGKILL)
        server.wait_log("answer cut")
        for _ in range(3):
            mux.abort(2)
        release(server, "a")
        ends = []
        with contextlib.suppress(fcgi.Closed):
            while True:
                kind, request_id, _ = mux.conn.read_record()
                ends += [request_id] if kind == fcgi.END else []
    assert ends.count(2) == 1 and ends.count(1) == 1


# ---- the connection's end ----


def test_keep_conn_clear_on_one_of_several(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params(), keep=False)
        assert mux.wait(2).body == HELLO
        mux.request(3, server.params())
        assert mux.wait(3).body == HELLO
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        assert mux.conn.closed_by_peer()


def test_keep_conn_clear_on_one_without_an_answer(h2fpm):
    """On one that is given up, or refused."""
    server = h2fpm(pool={"mpxs.max_requests": 2})
    for n, how in enumerate(("given up", "one too many", "another role")):
        with muxed(server) as mux:
            name = "held%d" % n
            mux.request(1, gate(server, name))
            if how == "given up":
                mux.start(2, fcgi.begin(2, keep=False))
                mux.abort(2)
            elif how == "one too many":
                mux.request(3, gate(server, name))
                mux.request(2, server.params(), keep=False)
            else:
                mux.start(2, fcgi.begin(2, keep=False, role=fcgi.AUTHORIZER))
            assert mux.wait(2).stdout == b""
            release(server, name)
            assert all(b"passed" in response.body for response in mux.wait())
            assert mux.conn.closed_by_peer()


def test_half_closed_connection_gets_large_answers(h2fpm):
    server = h2fpm()
    with slow_reader(server, 3, 3 * MB) as mux:
        responses = list(mux.open.values())
        mux.conn.sock.shutdown(socket.SHUT_WR)
        mux.wait()
        assert all(response.body == pattern(3 * MB) for response in responses)
        assert mux.conn.closed_by_peer()


def test_graceful_stop_finishes_what_is_open(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params("/hash.php", "POST", CONTENT_LENGTH="3"), b"abc")
        mux.start(3, only_begun(server, 3, CONTENT_LENGTH="3"))
        assert mux.wait(2).text == hash_of(b"abc")
        wait_started(server, "a")
        server.seen.update(harness.descendants(server.master))
        server.process.send_signal(signal.SIGQUIT)
        wait_until(lambda: is_refused(server, mux))
        mux.send(fcgi.stream(fcgi.STDIN, 3, b"xyz"))
        assert mux.wait(3).text == hash_of(b"xyz")
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        assert mux.conn.closed_by_peer()
    assert server.process.wait(15) == 0


def is_refused(server, mux):
    mux.request(4, server.params())
    return mux.wait(4).status == 503


def test_half_closed_connection_gets_its_answers(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, gate(server, "b"))
        mux.start(3, only_begun(server, 3, CONTENT_LENGTH="10"))
        mux.conn.sock.shutdown(socket.SHUT_WR)
        assert mux.wait(3).status == 400
        release(server, "b")
        assert b"passed" in mux.wait(2).body
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        assert mux.conn.closed_by_peer()


def test_worker_lost_in_mid_answer_fails_one_request(h2fpm):
    """No END_REQUEST, whatever its status: HAProxy would take the answer for a
    whole one. The connection is closed once the others are done."""
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params("/ticker.php?max=100000&dir=%s" % server.site.data))
        while b"1\n" not in mux.open[2].stdout:
            mux.take()
        gate_pid = int(wait_started(server, "a")[0].suffix[1:])
        (ticker,) = [pid for pid in server.workers() if pid != gate_pid]
        os.kill(ticker, signal.SIGKILL)
        server.wait_workers(2, without=[ticker])
        mux.request(3, server.params())
        assert mux.wait(3).body == HELLO
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        with pytest.raises(fcgi.Closed):
            mux.take()
        assert 2 in mux.open
    assert server.get().body == HELLO


def test_worker_lost_while_its_answer_is_in_a_file(h2fpm):
    """What there was is read back, all of it; then the connection is closed."""
    server = h2fpm(pool={"pm.max_children": 1}, main={"log_level": "debug"})
    with muxed(server, receive_buffer=65536) as mux:
        mux.request(7, server.params("/download.php?bytes=%d" % (300 * MB)))
        failed = mux.open[7]
        mux.take()
        (worker,) = server.workers()
        other = server.start_get("/hello.php")
        server.wait_log("slow reader")
        wait_until(lambda: spool_files(server))
        os.kill(worker, signal.SIGKILL)
        assert other.read_response().body == HELLO
        other.close()
        with pytest.raises(fcgi.Closed):
            while True:
                mux.take()
        body = fcgi.Response.body.fget(failed)
        assert MB < len(body) < 300 * MB and body == pattern(len(body))
        assert mux.conn.closed_by_peer() and not failed.ended


def test_script_that_takes_too_long_fails_alone(h2fpm):
    server = h2fpm(pool={"request_terminate_timeout": "1s", "pm.max_children": 3})
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, server.params("/ticker.php?max=100000&dir=%s" % server.site.data))
        mux.start(3, only_begun(server, 3, CONTENT_LENGTH="3"))
        assert mux.wait(1).status == 504
        server.wait_log("ticker.php", "terminat")
        mux.send(fcgi.stream(fcgi.STDIN, 3, b"abc"))
        assert mux.wait(3).text == hash_of(b"abc")
        with pytest.raises(fcgi.Closed):
            while True:
                mux.take()
        assert list(mux.open) == [2]


def test_worker_lost_before_its_answer_is_replaced(h2fpm):
    server = h2fpm()
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.request(2, gate(server, "b"))
        os.kill(int(wait_started(server, "b")[0].suffix[1:]), signal.SIGKILL)
        release(server, "a")
        assert b"passed" in mux.wait(1).body
        release(server, "b")
        assert b"passed" in mux.wait(2).body
        params = dict(gate(server, "c"), REQUEST_METHOD="POST")
        mux.request(3, params)
        os.kill(int(wait_started(server, "c")[0].suffix[1:]), signal.SIGKILL)
        assert mux.wait(3).status == 502


# ---- limits ----


def test_too_large_a_request_is_refused_alone(h2fpm):
    server = h2fpm(pool={"request.max_params": "8K", "request.max_body": "10K"}, main={"log_level": "debug"})
    large = fcgi.pairs(server.params(HTTP_COOKIE="x" * 9000))
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        mux.start(2, fcgi.begin(2) + fcgi.stream(fcgi.PARAMS, 2, large, end=False, size=1000))
        assert mux.wait(2).status == 431
        mux.send(fcgi.record(fcgi.PARAMS, 2, b"more") + fcgi.record(fcgi.PARAMS, 2) + fcgi.record(fcgi.STDIN, 2))
        mux.start(3, only_begun(server, 3) + fcgi.stream(fcgi.STDIN, 3, b"x" * 20000, end=False, size=4000))
        assert mux.wait(3).status == 413
        mux.send(fcgi.stream(fcgi.STDIN, 3, b"x" * 20000))
        release(server, "a")
        assert b"passed" in mux.wait(1).body
    limits = refused(server)
    assert (limits["request.max_params"], limits["request.max_body"]) == (1, 1)


def test_half_a_request_is_given_up(h2fpm):
    """Parameters that do not end, a body that stops; one that trickles goes on."""
    server = h2fpm(pool={"request.receive_timeout": "600ms"}, main={"log_level": "debug"})
    with muxed(server) as mux:
        mux.start(4, only_begun(server, 4, CONTENT_LENGTH="30"))
        mux.start(2, fcgi.begin(2) + fcgi.record(fcgi.PARAMS, 2, b"half"))
        mux.start(3, only_begun(server, 3, CONTENT_LENGTH="10") + fcgi.record(fcgi.STDIN, 3, b"x"))
        late, stopped, trickling = mux.open[2], mux.open[3], mux.open[4]
        sent = 0
        mux.conn.sock.settimeout(0.1)
        while not (late.ended and stopped.ended and sent >= 15):
            if sent < 30:
                mux.send(fcgi.record(fcgi.STDIN, 4, b"y"))
                sent += 1
            with contextlib.suppress(TimeoutError):
                mux.take()
        mux.conn.sock.settimeout(20)
        mux.send(fcgi.stream(fcgi.STDIN, 4, b"y" * (30 - sent)))
        assert (late.status, stopped.status) == (408, 408)
        mux.wait(4)
        assert trickling.text == hash_of(b"y" * 30)
    assert refused(server)["request.receive_timeout"] == 2


def test_body_has_a_time_of_its_own(h2fpm):
    """Parameters that took most of theirs leave it whole."""
    server = h2fpm(pool={"request.receive_timeout": "2s"})
    block = fcgi.pairs(server.params("/hash.php", "POST", CONTENT_LENGTH="3"))
    with muxed(server) as mux:
        mux.start(1, fcgi.begin(1) + fcgi.record(fcgi.PARAMS, 1, block[:50]))
        assert mux.conn.quiet(1.3)
        mux.send(fcgi.stream(fcgi.PARAMS, 1, block[50:]))
        assert mux.conn.quiet(1.1)
        mux.send(fcgi.stream(fcgi.STDIN, 1, b"abc"))
        assert mux.wait(1).text == hash_of(b"abc")


def test_memory_of_a_connection_is_bound(h2fpm):
    server = h2fpm(pool={"mpxs.buffer_size": "64K", "request.max_params": "50K", "pm.max_children": 1},
                   main={"log_level": "debug"})
    params = server.params(HTTP_COOKIE="x" * 40000)
    with muxed(server) as mux:
        mux.request(1, gate(server, "a"))
        wait_started(server, "a")
        mux.request(2, params)
        mux.request(3, params)
        response = None
        while response is None:
            response = mux.take()
        assert response.status == 503 and response.headers["retry-after"] == "1"
        release(server, "a")
        mux.wait()
        # A body goes to a file then, and is whole.
        mux.start(4, fcgi.begin(4) + fcgi.stream(fcgi.PARAMS, 4, fcgi.pairs(params), end=False))
        mux.start(5, only_begun(server, 5, CONTENT_LENGTH="50000") + fcgi.stream(fcgi.STDIN, 5, b"x" * 50000))
        assert mux.wait(5).text == hash_of(b"x" * 50000)
        mux.abort(4)
        mux.wait(4)
        # One alone is bound by its own limits.
        mux.request(6, server.params("/hash.php", "POST", CONTENT_LENGTH="60000", HTTP_COOKIE="x" * 40000), b"y" * 60000)
        assert mux.wait(6).text == hash_of(b"y" * 60000)
    assert server.log_lines("mpxs.buffer_size (65536 bytes) reached")
    assert refused(server)["mpxs.buffer_size"] == 1


def test_answers_are_bound_by_the_connections_memory(h2fpm):
    server = h2fpm(pool={"mpxs.buffer_size": "64K", "response.buffer_size": "8M", "pm.max_children": 8})
    with muxed(server, receive_buffer=65536) as mux:
        for request_id in range(1, 9):
            mux.request(request_id, server.params("/download.php?bytes=%d" % (3 * MB)))
        responses = list(mux.open.values())
        while not all(response.stdout for response in responses):
            mux.take()
        harness.check_peak_memory(server.pool_pid, 16 * 1024)
        mux.wait()
        assert all(response.body == pattern(3 * MB) for response in responses)


# ---- slow readers ----


def slow_reader(server, streams, size):
    mux = Mux(server.connect(receive_buffer=65536))
    for request_id in range(1, streams + 1):
        mux.request(request_id, server.params("/download.php?bytes=%d" % size))
    return mux


def test_slow_reader_keeps_no_worker_from_others(h2fpm):
    server = h2fpm(pool={"pm.max_children": 4}, main={"log_level": "debug"})
    with slow_reader(server, 16, 3 * MB) as mux:
        responses = list(mux.open.values())
        for _ in range(20):
            assert server.get().body == HELLO
        server.wait_log("slow reader")
        mux.wait()
        assert all(response.body == pattern(3 * MB) for response in responses)
    wait_until(lambda: not spool_files(server))


@pytest.mark.parametrize("how", ["off", "full", "small", "gone"])
def test_slow_reader_where_no_file_takes_its_answer(h2fpm, how):
    """The worker waits with it, and nothing is lost."""
    size = "0" if how == "off" else "256K" if how == "small" else "1G"
    limit = harness.limit_file_size(300 * KB) if how == "full" else None
    server = h2fpm(pool={"pm.max_children": 1, "response.spool_size": size}, preexec=limit)
    if how == "gone":
        server.site.spool.rmdir()
    with slow_reader(server, 2, 3 * MB) as mux:
        responses = list(mux.open.values())
        mux.take()  # its turn has come before the other's
        other = server.start_get("/hello.php")
        if how in ("full", "gone"):
            server.wait_log("waits for its slow reader")
        else:
            assert other.quiet(0.4)
        mux.wait()
        assert all(response.body == pattern(3 * MB) for response in responses)
        assert other.read_response().body == HELLO
        other.close()
    if how == "gone":
        server.site.spool.mkdir()


def test_slow_reader_that_leaves_leaves_nothing(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2}, main={"log_level": "debug"})
    with slow_reader(server, 8, 20 * MB):
        assert server.get().body == HELLO
        server.wait_log("slow reader")
    both = [Held(server), Held(server)]
    assert all(b"passed" in held.finish().body for held in both)


# ---- floods ----


def test_reset_flood_starts_few_scripts(h2fpm):
    """Each lot is given up when its first could have begun to run."""
    server = h2fpm(pool={"pm.max_children": 4}, main={"log_level": "debug"})
    server.wait_workers(4)
    with muxed(server) as mux:
        for lot in range(100):
            for n in range(1, 31):
                uri = "/mark.php?dir=%s&id=%d" % (server.site.data, lot * 30 + n)
                mux.request(n, server.params(uri))
            mux.send(get_values("FCGI_MAX_REQS"))
            while len(mux.values) == lot:
                mux.take()
            for n in list(mux.open):
                mux.abort(n)
            mux.wait()
        assert server.get().body == HELLO
        mux.request(1, server.params())
        assert mux.wait(1).body == HELLO
    assert len(marks(server)) < 1000  # of 3,000


def test_aborts_that_come_too_late_count(h2fpm):
    server = h2fpm(main={"log_level": "debug"})
    with muxed(server) as mux:
        mux.send(b"".join(fcgi.record(fcgi.ABORT, request_id) for request_id in range(2, 302)))
        mux.send(get_values("FCGI_MAX_REQS"))
        mux.take()
        mux.request(1, server.params())
        assert mux.wait(1).body == HELLO
    server.stop()
    assert ", 1 requests held back" in server.wait_log("requests held back")[-1]


def test_who_was_held_back_waits_no_longer_than_others(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "queue.timeout": "400ms"}, main={"log_level": "debug"})
    held = Held(server)
    with muxed(server) as mux:
        for request_id in range(1, 201):
            mux.request(request_id, server.params())
            mux.abort(request_id)
        mux.wait()
        mux.request(201, server.params())
        assert mux.wait(201).status == 503
        mux.request(202, server.params())  # the queue's timer has nothing to do any more
        assert mux.wait(202).status == 503
    held.finish()
    server.stop()
    assert ", 0 requests held back" not in server.wait_log("requests held back")[-1]


# ---- readers that take nothing ----


def test_reader_that_takes_nothing_leaves_descriptors_to_others(h2fpm):
    """Its further requests wait for it, once some of its answers are in files."""
    server = h2fpm(preexec=harness.limit_files(120), pool={"pm.max_children": 2, "mpxs.max_requests": 300})
    with slow_reader(server, 200, MB) as mux:
        responses = list(mux.open.values())
        server.get("/slow.php?ms=500")
        for _ in range(5):
            assert server.get(timeout=10).body == HELLO
        assert len(os.listdir("/proc/%d/fd" % server.pool_pid)) < 60
        mux.wait()
        assert all(response.body == pattern(MB) for response in responses)


def test_memory_of_spilled_answers_is_small(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    with slow_reader(server, 10, 2 * MB) as mux:
        responses = list(mux.open.values())
        assert server.get("/slow.php?ms=500").status == 200
        assert server.get().body == HELLO
        harness.check_peak_memory(server.pool_pid, 12 * 1024)
        mux.wait()
        assert all(response.body == pattern(2 * MB) for response in responses)


def test_reader_that_takes_nothing_is_left_in_the_end(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "response.send_timeout": "500ms", "response.spool_size": 0})
    with slow_reader(server, 2, 5 * MB) as mux, muxed(server) as other:
        other.request(1, server.params())
        assert other.wait(1).body == HELLO
        server.wait_log("response.send_timeout")
        with pytest.raises(fcgi.Closed):
            mux.wait()
        other.request(1, server.params("/download.php?bytes=%d" % (5 * MB)))
        assert other.wait(1).body == pattern(5 * MB)


def test_reader_that_takes_a_little_is_not_left(h2fpm):
    """Less in that time than makes the socket writable again."""
    server = h2fpm(pool={"pm.max_children": 1, "response.send_timeout": "1s", "mpxs.buffer_size": "64K"})
    with Mux(server.connect()) as mux:
        mux.request(2, server.params("/download.php?bytes=%d" % (5 * MB)))
        taken = b""
        for _ in range(16):
            data = mux.conn.sock.recv(15000)
            assert data
            taken += data
            threading.Event().wait(0.25)
        mux.conn.pending += taken
        assert mux.wait(2).body == pattern(5 * MB)
