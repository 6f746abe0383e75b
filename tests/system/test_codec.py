"""FastCGI as bytes: cut anywhere, out of order, malformed. The rule is that a
bad connection is closed and every other one is unharmed."""
import base64
import hashlib
import json
import random
import struct

import pytest

import fcgi
from harness import Held


def get_values(*names):
    return fcgi.record(fcgi.GET_VALUES, 0, fcgi.pairs([(name, b"") for name in names]))


def read_values(conn):
    kind, request_id, content = conn.read_record()
    assert (kind, request_id) == (fcgi.GET_VALUES_RESULT, 0)
    found, at = {}, 0
    while at < len(content):
        sizes = []
        for _ in range(2):
            size = content[at]
            if size & 0x80:
                size = struct.unpack("!I", content[at : at + 4])[0] & 0x7FFFFFFF
                at += 3
            at += 1
            sizes.append(size)
        name = content[at : at + sizes[0]].decode()
        found[name] = content[at + sizes[0] : at + sum(sizes)].decode()
        at += sum(sizes)
    return found


def essence(response):
    """An echo's answer without what differs from run to run."""
    assert response.complete, response
    got = json.loads(response.body)
    for name in ("pid", "getenv"):
        del got[name]
    for name in ("REQUEST_TIME", "REQUEST_TIME_FLOAT", "H2FPM_QUEUE_WAIT_US", "H2FPM_QUEUE_LENGTH"):
        got["server"].pop(name, None)
    return response.status, response.headers, got


def conversation(server):
    """Two requests with all sorts of records between them, as bytes."""
    params = server.params("/echo.php?one", "POST", CONTENT_LENGTH="30", CONTENT_TYPE="text/plain", HTTP_X="v" * 200)
    encoded = fcgi.pairs(params)
    first = (
        fcgi.begin(1)
        + fcgi.record(fcgi.PARAMS, 1, encoded[:100], padding=7)
        + fcgi.record(fcgi.PARAMS, 1, encoded[100:101])
        + fcgi.record(fcgi.PARAMS, 1, encoded[101:], padding=255)
        + fcgi.record(fcgi.PARAMS, 1, padding=3)
        + fcgi.record(fcgi.STDIN, 1, b"a" * 10, padding=1)
        + fcgi.record(fcgi.STDIN, 1, b"b" * 20)
        + fcgi.record(fcgi.STDIN, 1)
    )
    second = fcgi.request(server.params("/echo.php?two"), request_id=1)
    return first, second


def converse(server, cut=None):
    """The answers to the conversation, with both halves cut at cut(length)."""
    with server.connect() as conn:
        answers = []
        for part in conversation(server):
            conn.send_cut(part, cut(len(part)) if cut else [])
            answers.append(essence(conn.read_response()))
        return answers


def test_bytes_cut_at_random_give_the_same_answers(h2fpm):
    server = h2fpm()
    whole = converse(server)
    rng = random.Random(20261130)
    for _ in range(60):
        pieces = rng.choice([1, 2, 5, 40])
        assert converse(server, lambda n: rng.sample(range(1, n), min(pieces, n - 1))) == whole


def test_single_bytes_give_the_same_answers(h2fpm):
    server = h2fpm()
    assert converse(server, lambda n: range(1, n)) == converse(server)


def test_every_single_cut_gives_the_same_answer(h2fpm):
    server = h2fpm()
    params = {"SCRIPT_FILENAME": str(server.site.www / "hash.php"), "REQUEST_METHOD": "POST", "CONTENT_LENGTH": "5"}
    data = (
        fcgi.begin(1)
        + fcgi.record(fcgi.PARAMS, 1, fcgi.pairs(params), padding=4)
        + fcgi.record(fcgi.PARAMS, 1)
        + fcgi.stream(fcgi.STDIN, 1, b"hello")
    )
    with server.connect() as conn:
        conn.send(data)
        whole = conn.read_response()
        assert whole.body.startswith(b"5 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
        for cut in range(1, len(data)):
            conn.send_cut(data, [cut], pause=0.0005)
            again = conn.read_response()
            assert (again.stdout, again.stderr, again.complete) == (whole.stdout, b"", True), "cut at %d" % cut


def test_request_joined_to_the_next_in_one_write(h2fpm):
    """The second is sent while the first runs: with FCGI_MPXS_CONNS=0 it is
    either answered in its turn or refused as FastCGI says; the first is whole."""
    server = h2fpm()
    with server.connect() as conn:
        one = fcgi.request(server.params("/hello.php"), request_id=1)
        conn.send(one)
        assert conn.read_response().body == b"Hello, world\n"
        conn.send(one)
        assert conn.read_response().body == b"Hello, world\n"


def test_keep_conn_set_keeps_and_clear_closes(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        for keep in (True, True, False):
            assert conn.request(server.params(), keep=keep).complete
        assert conn.closed_by_peer()


def test_end_comes_in_the_same_write_as_the_last_data(h2fpm):
    """nginx keeps a connection only when it reads the end with the data."""
    server = h2fpm()
    with server.connect() as conn:
        conn.send(fcgi.request(server.params()))
        data = conn.sock.recv(65536)
    assert data.endswith(
        fcgi.record(fcgi.STDOUT, 1) + fcgi.record(fcgi.END, 1, b"\0" * 8)
    ), data


@pytest.mark.parametrize("when", ["before", "after", "during"])
def test_get_values(h2fpm, when):
    server = h2fpm()
    with server.connect() as conn:
        held = None
        if when == "after":
            assert conn.request(server.params()).complete
        if when == "during":
            held = Held(server)
            conn.close()
            conn = held.conn
        conn.send(get_values("FCGI_MAX_CONNS", "FCGI_MPXS_CONNS", "FCGI_MAX_REQS", "NO_SUCH_NAME"))
        values = read_values(conn)
        assert values["FCGI_MPXS_CONNS"] == "1"
        assert values["FCGI_MAX_REQS"] == "128"
        assert int(values["FCGI_MAX_CONNS"]) > 0 and int(values["FCGI_MAX_REQS"]) > 0
        assert "NO_SUCH_NAME" not in values
        if held:
            assert b"passed" in held.finish().body
        else:
            assert conn.request(server.params()).complete


def test_get_values_answers_only_what_was_asked(h2fpm):
    with h2fpm().connect() as conn:
        conn.send(get_values("FCGI_MPXS_CONNS"))
        assert read_values(conn) == {"FCGI_MPXS_CONNS": "1"}


def test_unknown_management_type_is_named(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        conn.send(fcgi.record(99, 0, b"what", padding=4))
        assert conn.read_record() == (fcgi.UNKNOWN_TYPE, 0, bytes([99]) + b"\0" * 7)
        assert conn.request(server.params()).complete


@pytest.mark.parametrize("role", [fcgi.AUTHORIZER, fcgi.FILTER, 0, 77])
def test_other_roles_are_refused(h2fpm, role):
    server = h2fpm()
    with server.connect() as conn:
        conn.send(fcgi.begin(1, keep=True, role=role) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(server.params())))
        response = conn.read_response()
        assert (response.stdout, response.protocol_status) == (b"", fcgi.UNKNOWN_ROLE)
        assert conn.request(server.params(), request_id=1).complete
    with server.connect() as conn:
        conn.send(fcgi.begin(1, keep=False, role=role))
        assert conn.read_response().protocol_status == fcgi.UNKNOWN_ROLE
        assert conn.closed_by_peer()


def test_second_begin_without_multiplexing_is_refused(h2fpm):
    server = h2fpm(pool={"mpxs.max_requests": 1})
    held = Held(server)
    held.conn.send(fcgi.request(server.params(), request_id=2))
    refused = held.conn.read_response(2)
    assert (refused.stdout, refused.protocol_status) == (b"", fcgi.CANT_MPX_CONN)
    assert b"passed" in held.finish().body
    assert held.conn.request(server.params(), request_id=3).complete


@pytest.mark.parametrize("request_id", [1, 2, 255, 256, 65535])
def test_any_request_id_is_answered_under_its_own(h2fpm, request_id):
    server = h2fpm()
    with server.connect() as conn:
        assert conn.request(server.params(), request_id=request_id).body == b"Hello, world\n"


def test_abort_while_running_ends_the_request_at_once(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    held.conn.send(fcgi.record(fcgi.ABORT, 1))
    aborted = held.conn.read_response()
    assert aborted.ended and aborted.stdout == b""
    held.release()
    assert held.conn.request(server.params()).body == b"Hello, world\n"


def test_abort_while_queued_ends_the_request_and_it_never_runs(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    with server.connect() as conn:
        conn.send(fcgi.request(server.params("/mark.php?dir=%s&id=aborted" % server.site.data)))
        assert conn.quiet()
        conn.send(fcgi.record(fcgi.ABORT, 1))
        assert conn.read_response().ended
        held.finish()
        assert conn.request(server.params("/mark.php?dir=%s&id=after" % server.site.data)).body == b"marked"
    assert (server.site.data / "marks").read_text() == "after\n"


def test_abort_while_receiving_ends_the_request(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        params = server.params("/hash.php", "POST", CONTENT_LENGTH="100")
        conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)) + fcgi.record(fcgi.STDIN, 1, b"x"))
        conn.send(fcgi.record(fcgi.ABORT, 1))
        assert conn.read_response().ended
        assert conn.request(server.params()).complete


def test_records_for_ids_never_begun_are_ignored(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        for kind in (fcgi.PARAMS, fcgi.STDIN, fcgi.DATA, fcgi.ABORT):
            conn.send(fcgi.record(kind, 42, b"" if kind == fcgi.ABORT else b"x" * 1000, padding=9))
        assert conn.request(server.params()).complete
        conn.send(fcgi.record(fcgi.STDIN, 1, b"late"))  # 1 has ended
        conn.send(fcgi.record(fcgi.ABORT, 1))
        assert conn.request(server.params(), request_id=1).complete


def noise(seed, size):
    data = bytearray(random.Random(seed).randbytes(size))
    data[0] = data[0] if data[0] != 1 else 77
    return bytes(data)


BAD = {
    "version 2": fcgi.record(fcgi.BEGIN, 1, b"\0\1\1" + b"\0" * 5, version=2),
    "version 0": fcgi.record(fcgi.BEGIN, 1, b"\0\1\1" + b"\0" * 5, version=0),
    "random bytes": noise(1, 4096),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + noise(2, 200),
    "begin with id 0": fcgi.begin(0),
    "params with id 0": fcgi.record(fcgi.PARAMS, 0, b"abc"),
    "stdin with id 0": fcgi.record(fcgi.STDIN, 0, b"abc"),
    "abort with id 0": fcgi.record(fcgi.ABORT, 0),
    "begin of 7 bytes": fcgi.record(fcgi.BEGIN, 1, b"\0\1\1\0\0\0\0"),
    "begin of 9 bytes": fcgi.record(fcgi.BEGIN, 1, b"\0\1\1" + b"\0" * 6),
    "stdout from a client": fcgi.begin(1) + fcgi.record(fcgi.STDOUT, 1, b"abc"),
    "stderr from a client": fcgi.begin(1) + fcgi.record(fcgi.STDERR, 1, b"abc"),
    "end from a client": fcgi.begin(1) + fcgi.record(fcgi.END, 1, b"\0" * 8),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_bytes_close_that_connection_and_no_other(h2fpm, kind):
    server = h2fpm()
    held = Held(server)
    receiving = server.connect()
    whole = fcgi.request(server.params("/hello.php?neighbour"))
    receiving.send(whole[:77])
    with server.connect(timeout=10) as conn:
        conn.send(BAD[kind])
        assert conn.closed_by_peer(), kind
    receiving.send(whole[77:])
    assert receiving.read_response().body == b"Hello, world\n"
    assert b"passed" in held.finish().body


def test_bad_bytes_on_a_connection_whose_request_runs(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server)
    held.conn.send(BAD["version 2"])
    assert not held.conn.read_until_closed().ended
    held.release()
    assert server.get().status == 200


def test_seeded_noise_after_a_good_beginning(h2fpm):
    """Bytes turned over in a good request: an answer, a refusal or a close
    in bounded time, and a good request afterwards is answered."""
    server = h2fpm(pool={"request_terminate_timeout": "5s"})
    rng = random.Random(7)
    good = fcgi.request(server.params("/hello.php"), b"body", keep=False)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with server.connect(timeout=20) as conn:
            try:
                conn.send(bytes(data))
                conn.sock.shutdown(1)
                while conn.sock.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert server.get().status == 200


def test_bad_bytes_are_logged_but_not_for_each(h2fpm):
    server = h2fpm(main={"log_level": "debug"})
    lines = len(server.log().splitlines())
    for _ in range(300):
        with server.connect() as conn:
            conn.send(BAD["version 2"])
            assert conn.closed_by_peer()
    assert server.get().status == 200
    notable = [line for line in server.log().splitlines()[lines:] if "DEBUG" not in line]
    assert 1 <= len(notable) <= 20, "%d lines" % len(notable)


@pytest.mark.parametrize("size", [65535, 65534, 65528, 1])
def test_largest_records_with_the_largest_padding(h2fpm, size):
    server = h2fpm()
    body = random.Random(size).randbytes(size)
    params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(size))
    filler = fcgi.pairs({**params, "HTTP_FILL": "f"})
    params["HTTP_FILL"] = "f" * (min(size, 30000) - len(filler)) if size > 1 else "f"
    with server.connect() as conn:
        conn.send(
            fcgi.begin(1)
            + fcgi.record(fcgi.PARAMS, 1, fcgi.pairs(params), padding=255)
            + fcgi.record(fcgi.PARAMS, 1, padding=255)
            + fcgi.record(fcgi.STDIN, 1, body, padding=255)
            + fcgi.record(fcgi.STDIN, 1, padding=255)
        )
        assert conn.read_response().text == "%d %s" % (size, hashlib.sha256(body).hexdigest())
        assert conn.request(server.params()).complete


def test_params_over_many_records(h2fpm):
    """Pairs that straddle records of 65,535 bytes, which php-cgi refuses."""
    server = h2fpm(pool={"request.max_params": "1M"})
    extra = {"HTTP_N%d" % i: "v%d" % i * 10 for i in range(3000)}
    response = server.get("/echo.php", **extra)
    got = json.loads(response.body)["server"]
    assert all(got[name] == value for name, value in extra.items())


@pytest.mark.parametrize("limit", ["64K", "16M"])
def test_twenty_thousand_params_are_answered_or_refused(h2fpm, limit):
    server = h2fpm(pool={"request.max_params": limit})
    extra = {"HTTP_N%d" % i: "v%d" % i for i in range(20000)}
    with server.connect() as conn:
        response = conn.request(server.params("/echo.php", **extra), keep=False)
    if limit == "64K":
        assert response.status == 431
    else:
        assert response.status == 200
        got = json.loads(response.body)["server"]
        assert all(got[name] == value for name, value in extra.items())
    assert server.get().status == 200


def test_values_of_64_kib_are_refused_with_431(h2fpm):
    """Such a pair does not fit one record, and php-cgi takes no other."""
    server = h2fpm(pool={"request.max_params": "16M"})
    response = server.get("/hello.php", HTTP_BIG="b" * 65536)
    assert response.complete and response.status == 431
    fits = "b" * (65535 - 8 - len("HTTP_BIG"))
    response = server.get("/echo.php", HTTP_BIG=fits)
    assert response.status in (200, 431)
    if response.status == 200:
        assert json.loads(response.body)["server"]["HTTP_BIG"] == fits


def test_lengths_beyond_the_params_are_no_hang(h2fpm):
    server = h2fpm()
    good = fcgi.pairs(server.params())
    for bad in (b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x7f\x7fabc", b"\x80\0\0\0\x80", b"\x01\xff\xff\xff\xffA"):
        with server.connect(timeout=10) as conn:
            try:
                conn.send(fcgi.begin(1, keep=False) + fcgi.stream(fcgi.PARAMS, 1, good + bad) + fcgi.record(fcgi.STDIN, 1))
            except BrokenPipeError:
                continue
            response = conn.read_until_closed()
            # refused: closed, or an answer that says whose fault it was
            assert not response.ended or 400 <= response.status < 500, response
    assert server.get().status == 200


def test_empty_params_at_once_is_404(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        conn.send(fcgi.begin(1) + fcgi.record(fcgi.PARAMS, 1) + fcgi.record(fcgi.STDIN, 1))
        response = conn.read_response()
        assert (response.status, response.body) == (404, b"No input file specified.\n")
        assert conn.request(server.params()).complete


def test_missing_script_filename_is_404(h2fpm):
    server = h2fpm()
    for script in ({"SCRIPT_FILENAME": None}, {"SCRIPT_FILENAME": ""}):
        response = server.get("/hello.php", **script)
        assert (response.status, response.body) == (404, b"No input file specified.\n"), response


def test_content_length_larger_than_the_body_is_no_hang(h2fpm):
    server = h2fpm()
    response = server.post("/hash.php", b"12345", CONTENT_LENGTH="500")
    assert response.ended
    assert 400 <= response.status < 500 or response.text.startswith("5 ")
    assert server.post("/hash.php", b"12345").text.startswith("5 5994471abb01112afcc18159f6cc74b4")


def test_content_length_smaller_than_the_body(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        params = server.params("/echo.php", "POST", CONTENT_LENGTH="4", CONTENT_TYPE="text/plain")
        response = conn.request(params, b"1234and more")
        assert 400 <= response.status < 500 or base64.b64decode(json.loads(response.body)["body"]) == b"1234"
        assert conn.request(server.params()).body == b"Hello, world\n"


@pytest.mark.parametrize("bad", ["-2", "abc", "99999999999999999999999", "1e3", " 5", "5x", "0x5"])
def test_content_length_that_is_no_number(h2fpm, bad):
    server = h2fpm()
    response = server.post("/hash.php", b"12345", CONTENT_LENGTH=bad)
    assert response.ended
    assert server.get().status == 200


def test_body_without_content_length_reaches_php(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        params = server.params("/echo.php", "POST", CONTENT_TYPE="text/plain")
        got = json.loads(conn.request(params, b"no length told").body)
    assert base64.b64decode(got["body"]) == b"no length told"


def test_half_close_after_the_request_still_gets_the_answer(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        conn.send(fcgi.request(server.params("/slow.php?ms=100"), keep=False))
        conn.sock.shutdown(1)
        assert conn.read_until_closed().status == 200
