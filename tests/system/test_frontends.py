"""h2fpm behind each HTTP/2 front end, set up as its example in etc/ says."""
import hashlib
import json
import subprocess

import pytest

import fronts
import harness
from harness import pattern, wait_until
from http2 import Http2

WORKERS = 4
MIB = 1 << 20


@pytest.fixture(scope="module")
def server():
    one = harness.H2fpm(pool={"pm.max_children": WORKERS})
    one.site.script("index.php", "<?php echo 'index';")
    yield one
    one.close()


@pytest.fixture(scope="module", params=fronts.EVERY, ids=lambda cls: cls.name)
def front(request, server, certificate):
    one = request.param(server)
    yield one
    one.close()


@pytest.fixture
def data(server):
    """Its directory for what scripts write, empty."""
    for path in server.site.data.iterdir():
        path.unlink()
    return server.site.data


@pytest.fixture
def http2(front):
    client = Http2(front.port)
    yield client
    client.close()


def seen(front, uri, *arguments):
    status, _, body = front.curl(uri, *arguments)
    assert status == 200, body
    return json.loads(body)["server"]


def test_hello(front):
    status, headers, body = front.curl("/hello.php")
    assert (status, body) == (200, b"Hello, world\n")
    assert headers["content-type"] == "text/html; charset=UTF-8"


def test_what_the_script_is_told(front, server):
    got = seen(front, "/echo.php?a=b%20c", "-H", "X-Some: thing")
    assert got["SCRIPT_FILENAME"] == str(server.site.www / "echo.php")
    assert got["SCRIPT_NAME"] == got["PHP_SELF"] == "/echo.php"
    assert got["REQUEST_URI"] == "/echo.php?a=b%20c"
    assert got["QUERY_STRING"] == "a=b%20c"
    assert got["DOCUMENT_ROOT"] == str(server.site.www)
    assert got["HTTP_X_SOME"] == "thing"
    assert got["REMOTE_ADDR"] == "127.0.0.1" and int(got["REMOTE_PORT"]) > 0
    assert got["HTTPS"] == "on"
    assert got["SERVER_PROTOCOL"] in ("HTTP/2.0", "HTTP/2")
    assert not got.get("PATH_INFO")


def test_index(front):
    status, _, body = front.curl("/")
    assert (status, body) == (200, b"index")


def test_path_info(front, server):
    got = seen(front, "/echo.php/extra/pa%20th?q=1")
    assert got["PATH_INFO"] == "/extra/pa th"
    assert got["SCRIPT_NAME"] == "/echo.php"
    assert got["SCRIPT_FILENAME"] == str(server.site.www / "echo.php")
    assert got["PHP_SELF"] == "/echo.php/extra/pa th"
    assert got["REQUEST_URI"] == "/echo.php/extra/pa%20th?q=1"


def test_no_php_in_other_files(front, server):
    server.site.script("up/picture.jpg", "<?php echo 'run' . 1;")
    for uri in ("/up/picture.jpg/x.php", "/none.php"):
        status, _, body = front.curl(uri)
        assert b"run1" not in body and status in (200, 403, 404), (status, body)


def upload(front, size, *arguments):
    """What it has come to: whether whole, or the status."""
    body = pattern(size, "up")
    path = front.dir / "upload"
    path.write_bytes(body)
    status, _, answer = front.curl("/hash.php", "-X", "POST", "-T", path, *arguments)
    expected = "%d %s" % (size, hashlib.sha256(body).hexdigest())
    return status if status != 200 else answer.decode() == expected


def test_upload(front):
    assert upload(front, 8 * MIB) is True


def test_upload_of_a_length_that_is_not_told(front):
    untold = ("-H", "Content-Length:")
    if front.name == "lighttpd":
        # It answers such a POST 411 by itself, and may reset it before.
        command = ["curl", "-sk", "--http2", "-X", "POST", "-T", fronts.__file__, *untold, "-w", "\n%{http_code}"]
        done = subprocess.run([*command, front.url + "/hash.php"], capture_output=True, text=True, timeout=30)
        assert done.stdout.splitlines()[-1] in ("411", "000"), done
        return
    assert upload(front, MIB + 1, *untold) is True
    assert upload(front, 1, *untold) is True


def test_large_answer(front):
    size = 16 * MIB + 1
    status, headers, body = front.curl("/download.php?bytes=%d&seed=large" % size)
    assert status == 200 and len(body) == size
    assert hashlib.sha256(body).digest() == hashlib.sha256(pattern(size, "large")).digest()


def test_parallel_requests_on_one_connection(front, server, data, http2):
    """As many scripts as there are workers run at a time."""
    uris = ["/gate.php?dir=%s&id=par%d" % (data, n) for n in range(WORKERS)]
    streams = [http2.get(uri) for uri in uris]
    wait_until(lambda: len(list(data.glob("par*.started.*"))) == WORKERS, what="all scripts run")
    for n in range(WORKERS):
        (data / ("par%d.go" % n)).touch()
    bodies = http2.wait(*streams)
    assert {int(body.split()[1]) for body in bodies} == set(server.workers())


def test_many_requests_on_one_connection(front):
    done = front.h2load("/hello.php", 400, 1, 32)
    assert (done["2xx"], done["succeeded"]) == (400, 400), done


def test_connections_to_h2fpm(front, server):
    front.curl("/hello.php")
    if not front.keeps_connections:
        wait_until(lambda: not server.connections(), what="no connection is kept")
        return
    before = server.connections()
    for _ in range(10):
        front.curl("/hello.php")
    kept = server.connections()
    assert before & kept
    assert len(kept - before) < 10, "none was used again"


def ticks(data):
    path = data / "ticks"
    return len(path.read_text().split()) if path.exists() else 0


def ticker(data):
    """The path of a script that would write for a minute."""
    return "/ticker.php?dir=%s&max=3000" % data


def check_free(server, count):
    """So many workers take a request, all at a time: more than the ticker leaves."""
    held = [harness.Held(server) for _ in range(count)]
    for one in held:
        one.finish()
        one.conn.close()


def test_client_that_leaves_in_mid_answer(front, server, data):
    client = subprocess.Popen(["curl", "-sk", "--http2", "-o", "/dev/null", front.url + ticker(data)])
    wait_until(lambda: ticks(data) >= 3, what="the script runs")
    client.kill()
    client.wait()
    check_free(server, WORKERS)
    assert ticks(data) < 3000


def test_stream_that_is_reset(server, data, http2):
    """Another one on the same connection goes on."""
    gate = http2.get("/gate.php?dir=%s&id=other" % data)
    stream = http2.get(ticker(data))
    http2.wait_data(stream)  # which comes as it is made
    wait_until(lambda: ticks(data) >= 3 and list(data.glob("other.started.*")), what="both scripts run")
    http2.reset(stream)
    check_free(server, WORKERS - 1)
    assert ticks(data) < 3000
    (data / "other.go").touch()
    assert http2.wait(gate)[0].startswith(b"passed")


def test_restart_of_h2fpm(front, server):
    """It is found again at once, over new connections; by lighttpd, which looks
    each second, then."""
    front.curl("/hello.php")
    server.stop()
    status, _, _ = front.curl("/hello.php")
    assert status in (502, 503)
    server.start()
    if front.name == "lighttpd":
        wait_until(lambda: front.curl("/hello.php")[0] == 200, what="h2fpm is found again")
    status, _, body = front.curl("/hello.php")
    assert (status, body) == (200, b"Hello, world\n")


def test_worker_that_dies(front, data):
    status, _, _ = front.curl("/crash.php?dir=%s" % data)
    assert status == 502


CUT = """<?php
if (isset($_GET['length']))
	header('Content-Length: 100000');
while (ob_get_level())
	ob_end_flush();
echo str_repeat('m', 20000);
flush();
file_put_contents($_GET['dir'] . '/sent', '');
while (!file_exists($_GET['dir'] . '/go')) {
	usleep(1000);
	clearstatcache();
}
posix_kill(getmypid(), 9);
usleep(1000000);
"""


@pytest.mark.parametrize("length", ["&length", ""], ids=["with-length", "without"])
def test_answer_that_is_cut(front, server, data, length):
    """The browser must see that it is not the whole."""
    server.site.script("cut.php", CUT)
    uri = "%s/cut.php?dir=%s%s" % (front.url, data, length)
    # Apache sometimes says nothing more at all (mod_http2 2.4.71), until its Timeout.
    patience = "1" if front.name == "apache" else "30"
    client = subprocess.Popen(["curl", "-sk", "--http2", "--max-time", patience, "-o", "/dev/null", uri])
    wait_until(lambda: (data / "sent").exists(), what="the beginning is sent")
    (data / "go").touch()
    status = client.wait(40)
    if length or front.logs_cut is None:
        assert status != 0
    else:
        # It ends the stream as if nothing had been.
        wait_until(lambda: front.logs_cut in front.log(), what="%r in:\n%s" % (front.logs_cut, front.log()))
