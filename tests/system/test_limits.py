"""What is refused, with which answer, and that the refusal reaches the client."""
import json
import os
import signal
import socket

import pytest

import fcgi
from harness import Held, Site, alive, wait_taken


def send_as_far_as_it_goes(conn, data):
    """Sends until all is out or the server has closed its end."""
    try:
        conn.send(data)
    except (BrokenPipeError, ConnectionResetError, socket.timeout):
        pass


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("told", [True, False], ids=["content-length", "no-length"])
def test_body_over_the_limit_is_413_while_it_is_sent(h2fpm, keep, told):
    server = h2fpm(pool={"request.max_body": "100K"})
    body = b"x" * (3 << 20)
    params = server.params("/hash.php", "POST", CONTENT_LENGTH=str(len(body)) if told else None)
    with server.connect() as conn:
        send_as_far_as_it_goes(conn, fcgi.request(params, body, keep=keep))
        response = conn.read_response()
        assert response.complete and response.status == 413
        if keep:
            assert conn.request(server.params()).body == b"Hello, world\n"
        else:
            assert conn.closed_by_peer()


def test_413_is_sent_before_the_body_is_there(h2fpm):
    server = h2fpm(pool={"request.max_body": "100K"})
    with server.connect() as conn:
        params = server.params("/hash.php", "POST", CONTENT_LENGTH="1000000")
        conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)) + fcgi.record(fcgi.STDIN, 1, b"x" * 60000))
        conn.send(fcgi.record(fcgi.STDIN, 1, b"x" * 60000))
        assert conn.read_response().status == 413


def test_body_just_within_the_limit_is_taken(h2fpm):
    server = h2fpm(pool={"request.max_body": "100K"})
    assert server.post("/hash.php", b"x" * 102400).text.startswith("102400 ")
    assert server.post("/hash.php", b"x" * 102401).status == 413


def test_413_through_nginx(h2fpm, nginx):
    server = h2fpm(pool={"request.max_body": "100K"})
    big = server.site.dir / "big"
    big.write_bytes(b"x" * 3000000)
    for buffering in ("on", "off"):
        front = nginx(server, request_buffering=buffering)
        assert front.curl("/hash.php", "--data-binary", "@%s" % big)[0] == 413
        assert front.curl("/hello.php")[0] == 200


def test_params_over_the_limit_are_431(h2fpm):
    server = h2fpm(pool={"request.max_params": "8K"})
    with server.connect() as conn:
        send_as_far_as_it_goes(conn, fcgi.request(server.params("/hello.php", HTTP_BIG="b" * 9000)))
        response = conn.read_response()
        assert response.complete and response.status == 431
        assert conn.request(server.params()).body == b"Hello, world\n"
    assert server.get("/hello.php", HTTP_BIG="b" * 4000).status == 200


def test_full_queue_is_503_with_retry_after(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "queue.max": 3})
    held = Held(server)
    waiting = [server.start_get("/hello.php") for _ in range(3)]
    wait_taken(*waiting)
    refused = server.get("/hello.php")
    assert refused.complete and refused.status == 503 and int(refused.headers["retry-after"]) > 0
    held.finish()
    assert [conn.read_response().status for conn in waiting] == [200] * 3
    assert server.get("/hello.php").status == 200


def test_waiting_past_queue_timeout_is_503_with_retry_after(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "queue.timeout": "1s"})
    held = Held(server)
    marked = server.start_get("/mark.php?dir=%s&id=late" % server.site.data)
    response = marked.read_response()
    assert response.complete and response.status == 503 and int(response.headers["retry-after"]) > 0
    assert b"passed" in held.finish().body
    assert server.get("/hello.php").status == 200
    assert not (server.site.data / "marks").exists()


ONE_THAT_SERVES = """#!/bin/sh
mkdir %s/first && exec php-cgi
exec sleep 60
"""


def test_waiting_goes_on_counting_when_the_worker_was_lost(h2fpm):
    """Also when a younger request's time is the next that the clock was set to."""
    site = Site()
    worker = site.program("worker", ONE_THAT_SERVES % site.data)
    server = h2fpm(workdir=site, pool={"pm.max_children": 1, "queue.timeout": "3s",
                                       "worker.command": worker, "worker.spawn": "exec"})
    server.own_site = True
    held, old = Held(server), Held(server, wait=False)
    assert old.conn.quiet(2.2)
    held.finish()
    (pid,) = old.wait_started()
    young = server.start_get("/hello.php")
    assert young.quiet(1)
    os.kill(pid, signal.SIGKILL)
    assert old.conn.read_response().status == 503
    assert young.quiet(0.2)


def test_request_terminate_timeout_is_504_and_the_worker_is_replaced(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "request_terminate_timeout": "1s"})
    old = server.wait_workers(1)
    response = server.get("/loop.php?some=query")
    assert response.complete and response.status == 504
    new = server.wait_workers(1, without=old)
    assert not alive(old[0]) and int(server.get("/pid.php").text) == new[0]
    line = server.wait_log("loop.php", "GET")[0]
    assert "/loop.php?some=query" in line and "www" in line and str(old[0]) in line, line


def test_script_that_never_looks_up_is_killed(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "request_terminate_timeout": "1s"})
    server.site.script("spin.php", "<?php for ($i = 0;;) $i++;")
    old = server.wait_workers(1)
    assert server.get("/spin.php").status == 504
    server.wait_workers(1, without=old)
    assert server.get("/hello.php").status == 200


def test_terminate_timeout_in_mid_answer_is_no_whole_answer(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "request_terminate_timeout": "1s"})
    server.site.script(
        "half.php", "<?php while (ob_get_level()) ob_end_flush(); echo str_repeat('h', 70000); flush(); for (;;) usleep(1000);"
    )
    with server.connect() as conn:
        conn.send(fcgi.request(server.params("/half.php")))
        response = conn.read_until_closed()
        # either nothing of it was sent yet, then 504; or the cut shows
        assert response.status == 504 or not response.ended
    assert server.get("/hello.php").status == 200


# ---- which script may run ----


def denied(response):
    return response.complete and response.status == 403 and response.body == b"Access denied.\n"


@pytest.mark.parametrize("uri", ["/up/evil.jpg/x.php", "/up/evil.jpg", "/note.txt", "/note.txt/.php"])
def test_other_extensions_are_denied(h2fpm, uri):
    response = h2fpm().get(uri)
    assert denied(response), response
    assert b"evil ran" not in response.stdout


def test_missing_script_is_404(h2fpm):
    response = h2fpm().get("/missing.php")
    assert (response.status, response.body) == (404, b"No input file specified.\n")


@pytest.mark.parametrize(
    "split",
    [
        {"SCRIPT_FILENAME": "{www}/echo.php", "SCRIPT_NAME": "/echo.php", "PATH_INFO": "/extra/path"},
        {"SCRIPT_FILENAME": "{www}/echo.php", "SCRIPT_NAME": "/echo.php", "PATH_INFO": ""},
        {"SCRIPT_FILENAME": "{www}/echo.php/extra/path", "SCRIPT_NAME": "/echo.php/extra/path"},
        {"SCRIPT_FILENAME": "{www}/echo.php/extra/path", "SCRIPT_NAME": "/echo.php/extra/path", "PATH_INFO": "/extra/path"},
    ],
    ids=["split", "empty", "unsplit", "unsplit-with-info"],
)
def test_path_info_is_as_in_php_fpm(h2fpm, phpfpm, split):
    found = []
    for server in (h2fpm(), phpfpm()):
        params = {name: value.replace("{www}", str(server.site.www)) for name, value in split.items()}
        response = server.get("/echo.php/extra/path?x=1", **params)
        assert response.status == 200, response
        got = json.loads(response.body)["server"]
        names = ("PATH_INFO", "SCRIPT_NAME", "PHP_SELF", "SCRIPT_FILENAME", "REQUEST_URI", "QUERY_STRING")
        found.append({name: got.get(name, "unset").replace(str(server.site.www), "{www}") for name in names})
    assert found[0] == found[1]


def test_script_filename_twice_never_runs_a_denied_one(h2fpm):
    server = h2fpm()
    good, evil = str(server.site.www / "hello.php"), str(server.site.www / "up" / "evil.jpg")
    for names in ([good, evil], [evil, good]):
        params = [item for item in server.params().items() if item[0] != "SCRIPT_FILENAME"]
        params += [("SCRIPT_FILENAME", name) for name in names]
        with server.connect() as conn:
            response = conn.request(params, keep=False)
        assert b"evil ran" not in response.stdout, (names, response)


@pytest.mark.parametrize(
    "tricks",
    [
        {"PATH_TRANSLATED": "{www}/up/evil.jpg"},
        {"PATH_TRANSLATED": "{www}/up/evil.jpg", "SCRIPT_FILENAME": None},
        {"PATH_TRANSLATED": "{www}/up/evil.jpg", "SCRIPT_FILENAME": ""},
        {"PATH_INFO": "/x.php", "SCRIPT_FILENAME": "{www}/up/evil.jpg"},
        {"PATH_INFO": "/x.php", "SCRIPT_FILENAME": "{www}/up/evil.jpg/x.php"},
        {"PATH_INFO": "", "SCRIPT_FILENAME": "{www}/up/evil.jpg/x.php", "SCRIPT_NAME": "/x.php"},
        {"PATH_INFO": "/up/evil.jpg", "SCRIPT_FILENAME": "{www}/missing.php"},
        {"PATH_INFO": "/up/evil.jpg", "PATH_TRANSLATED": "{www}/up/evil.jpg", "SCRIPT_FILENAME": "{www}/missing.php"},
        {"SCRIPT_FILENAME": "{www}/up/evil.jpg\0.php"},
        {"SCRIPT_FILENAME": "{www}/up/evil.jpg\0/x.php"},
        {"SCRIPT_FILENAME": "{www}/up/evil.jpg%00.php"},
        {"SCRIPT_FILENAME": "{www}/up/evil.jpg/"},
        {"SCRIPT_FILENAME": "{www}/up/evil.jpg/////x.php"},
        {"SCRIPT_FILENAME": "{www}/up/../up/evil.jpg/x.php/y.php"},
        {"SCRIPT_FILENAME": "proxy:fcgi://localhost{www}/up/evil.jpg"},
        {"SCRIPT_FILENAME": "proxy:fcgi://localhost{www}/up/evil.jpg/x.php?a.php"},
        {"SCRIPT_FILENAME": "proxy:balancer://b{www}/up/evil.jpg/x.php"},
        {"ORIG_SCRIPT_FILENAME": "{www}/up/evil.jpg", "REDIRECT_URL": "/up/evil.jpg"},
        {"REDIRECT_STATUS": "200", "DOCUMENT_ROOT": "{www}/up", "SCRIPT_NAME": "/evil.jpg", "SCRIPT_FILENAME": None},
        {"SCRIPT_FILENAME": None, "SCRIPT_NAME": "/up/evil.jpg", "PATH_INFO": "/up/evil.jpg"},
    ],
    ids=lambda tricks: " ".join("%s=%s" % item for item in tricks.items()).replace("\0", "NUL"),
)
def test_no_trick_runs_a_denied_script(h2fpm, tricks):
    server = h2fpm()
    pids = server.wait_workers(2)
    tricks = {name: value and value.replace("{www}", str(server.site.www)) for name, value in tricks.items()}
    response = server.get("/hello.php", **tricks)
    assert response.complete and b"evil ran" not in response.stdout, response
    assert server.workers() == pids, "it cost a worker"


def test_path_translated_is_not_run_without_fix_pathinfo(h2fpm):
    server = h2fpm(pool={"php_admin_value[cgi.fix_pathinfo]": "0"})
    evil = str(server.site.www / "up" / "evil.jpg")
    response = server.get("/hello.php", PATH_INFO="/up/evil.jpg", PATH_TRANSLATED=evil)
    assert response.body == b"Hello, world\n", response


def test_file_that_appears_while_the_request_waits_is_not_run(h2fpm):
    """The judgement must hold when the worker looks, be it much later."""
    server = h2fpm()
    (server.site.www / "up" / "late.jpg").unlink(missing_ok=True)
    with server.connect() as conn:
        params = server.params("/up/late.jpg/x.php", "POST", CONTENT_LENGTH="1")
        conn.send(fcgi.begin(1) + fcgi.stream(fcgi.PARAMS, 1, fcgi.pairs(params)))
        wait_taken(conn)
        server.site.script("up/late.jpg", "<?php echo 'evil ran';")
        conn.send(fcgi.stream(fcgi.STDIN, 1, b"x"))
        response = conn.read_response()
    assert b"evil ran" not in response.stdout and response.status in (403, 404), response


@pytest.mark.parametrize("extensions", ["", ".php"])
def test_path_info_shorter_than_what_follows_the_script_is_repaired(h2fpm, extensions):
    """php-cgi would read from before the string (CVE-2019-11043's kin)."""
    server = h2fpm(pool={"security.limit_extensions": extensions})
    response = server.get("/echo.php/some/path", PATH_INFO="")
    assert json.loads(response.body)["server"]["PATH_INFO"] == "/some/path"


def test_symbolic_link_is_judged_by_its_own_name(h2fpm):
    """As php-fpm: the name that is asked for counts."""
    server = h2fpm()
    os.symlink(server.site.www / "hello.php", server.site.www / "link.php")
    assert server.get("/link.php").body == b"Hello, world\n"


def test_limit_extensions_can_name_others_or_none(h2fpm):
    assert h2fpm(pool={"security.limit_extensions": ".php .jpg"}).get("/up/evil.jpg").body == b"evil ran"
    assert h2fpm(pool={"security.limit_extensions": ""}).get("/up/evil.jpg").body == b"evil ran"


def test_refusals_are_logged_in_the_access_log(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "queue.max": 1, "request.max_body": "10"})
    held = Held(server)
    waiting = server.start_get("/hello.php")
    wait_taken(waiting)
    assert server.get("/hello.php?full").status == 503
    assert server.post("/hash.php", b"x" * 11).status == 413
    held.finish()
    waiting.read_response()
    lines = server.wait_access(4)
    found = sorted(line.rsplit(" ", 1)[1] for line in lines)
    assert found == ["200", "200", "413", "503"], lines


def test_failed_requests_leave_the_workers_alone(h2fpm):
    server = h2fpm(pool={"request.max_body": "10", "request.max_params": "4K"})
    pids = server.wait_workers(2)
    for _ in range(20):
        assert server.post("/hash.php", b"x" * 11).status == 413
        assert server.get("/hello.php", HTTP_BIG="b" * 5000).status == 431
        assert server.get("/note.txt").status == 403
    assert server.workers() == pids
