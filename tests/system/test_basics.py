"""What a request gives when nothing goes wrong, directly and through nginx."""
import base64
import json
import os
import re

import pytest

from harness import Held, wait_taken, wait_until


def seen(response):
    assert response.status == 200, response
    return json.loads(response.body)


def test_get_answers_the_scripts_output(h2fpm):
    response = h2fpm().get("/hello.php")
    assert response.complete and response.app_status == 0
    assert (response.status, response.body, response.stderr) == (200, b"Hello, world\n", b"")
    assert response.headers["content-type"] == "text/html; charset=UTF-8"


def test_post_body_reaches_php_unchanged(h2fpm):
    server = h2fpm()
    body = bytes(range(256)) * 40
    assert base64.b64decode(seen(server.post("/echo.php", body))["body"]) == body
    form = seen(server.post("/echo.php", b"a=1&b%5B%5D=2", CONTENT_TYPE="application/x-www-form-urlencoded"))
    assert form["post"] == {"a": "1", "b": ["2"]}


def test_head_has_headers_and_no_body(h2fpm):
    response = h2fpm().get("/hello.php", method="HEAD")
    assert response.complete and response.status == 200 and response.body == b""
    assert "content-type" in response.headers


def test_script_that_writes_nothing_is_a_whole_answer(h2fpm):
    response = h2fpm().get("/nothing.php")
    assert response.complete and response.status == 200 and response.body == b""


@pytest.mark.parametrize("code", [201, 204, 302, 404, 500, 503])
def test_status_and_headers_of_the_script_pass_through(h2fpm, code):
    response = h2fpm().get("/status.php?code=%d" % code)
    assert response.status == code and response.headers["x-test"] == "yes"


def test_server_variables_are_the_clients(h2fpm):
    server = h2fpm()
    params = server.params("/echo.php?a=b&c=d", HTTP_COOKIE="k=v", HTTP_X_LONG="y" * 3000, HTTP_EMPTY="")
    with server.connect() as conn:
        got = seen(conn.request(params))
    for name, value in params.items():
        assert got["server"].get(name) == value, name
    assert got["get"] == {"a": "b", "c": "d"} and got["cookie"] == {"k": "v"}
    assert got["server"]["PHP_SELF"] == "/echo.php"


def test_names_and_values_may_be_any_bytes(h2fpm):
    server = h2fpm()
    odd = "".join(map(chr, range(1, 128)))
    got = seen(server.get("/echo.php", HTTP_ODD=odd, HTTP_UTF8="Grüße"))
    assert got["server"]["HTTP_ODD"] == odd and got["server"]["HTTP_UTF8"] == "Grüße"


def test_queue_wait_and_length_are_given_to_php(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    idle = seen(server.get("/echo.php"))["server"]
    assert int(idle["H2FPM_QUEUE_WAIT_US"]) < 5_000_000 and int(idle["H2FPM_QUEUE_LENGTH"]) == 0
    held = Held(server)
    waiting = [server.start_get("/echo.php") for _ in range(3)]
    wait_taken(*waiting)
    assert waiting[2].quiet(0.2)
    held.finish()
    got = [seen(conn.read_response())["server"] for conn in waiting]
    waits = [int(one["H2FPM_QUEUE_WAIT_US"]) for one in got]
    assert all(200_000 <= wait < 15_000_000 for wait in waits), waits
    lengths = [int(one["H2FPM_QUEUE_LENGTH"]) for one in got]
    assert all(0 <= length <= 3 for length in lengths) and max(lengths) > 0, lengths


def test_clients_own_h2fpm_params_are_dropped(h2fpm):
    server = h2fpm()
    forged = {"H2FPM_QUEUE_WAIT_US": "forged", "H2FPM_QUEUE_LENGTH": "forged", "H2FPM_OTHER": "forged"}
    got = seen(server.get("/echo.php", **forged))
    assert "forged" not in got["server"].values()
    assert "forged" not in got["getenv"].values()
    assert got["server"]["H2FPM_QUEUE_WAIT_US"].isdigit() and got["server"]["H2FPM_QUEUE_LENGTH"].isdigit()


def test_queue_params_are_not_in_the_workers_environment(h2fpm):
    request, process, server = json.loads(h2fpm().get("/getenv.php?name=H2FPM_QUEUE_WAIT_US").body)
    assert process is False and server.isdigit()
    assert request is False or request.isdigit()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "PHP_VALUE", "PHP_ADMIN_VALUE"])
def test_dangerous_params_never_reach_php(h2fpm, name):
    server = h2fpm()
    got = seen(server.get("/echo.php", **{name: "memory_limit=77M"}))
    assert name not in got["server"] and name not in got["getenv"]
    assert server.get("/ini.php?name=memory_limit", **{name: "memory_limit=77M"}).text != "'77M'"


def test_environment_is_cleared_and_env_is_added(h2fpm):
    os.environ["H2TEST_LEAK"] = "leaked"
    try:
        server = h2fpm(pool={"env[FOO]": "bar", "env[FROM]": "two words"})
    finally:
        del os.environ["H2TEST_LEAK"]
    got = seen(server.get("/echo.php"))
    assert got["server"]["FOO"] == "bar" and got["getenv"]["FROM"] == "two words"
    assert "leaked" not in got["getenv"].values() and "leaked" not in got["server"].values()


def test_environment_is_kept_when_asked(h2fpm):
    os.environ["H2TEST_KEPT"] = "kept"
    try:
        server = h2fpm(pool={"clear_env": "no"})
    finally:
        del os.environ["H2TEST_KEPT"]
    assert json.loads(server.get("/getenv.php?name=H2TEST_KEPT").body)[0] == "kept"


def test_php_values_and_admin_values_are_set(h2fpm):
    server = h2fpm(
        pool={
            "php_value[memory_limit]": "99M",
            "php_admin_value[sendmail_path]": "\"/usr/bin/true -t 'a; b'\"",
            "php_flag[short_open_tag]": "on",
            "php_admin_flag[allow_url_fopen]": "off",
        }
    )
    assert server.get("/ini.php?name=memory_limit").text == "'99M'"
    assert server.get("/ini.php?name=sendmail_path").text == "'/usr/bin/true -t \\'a; b\\''"
    assert server.get("/ini.php?name=short_open_tag").text == "'1'"
    assert server.get("/ini.php?name=allow_url_fopen").text in ("'0'", "''")


def test_chdir_is_the_workers_directory(h2fpm):
    server = h2fpm()
    assert seen(server.get("/echo.php"))["cwd"] == str(server.site.www)
    other = h2fpm(pool={"chdir": "/usr"})
    worker = other.wait_workers(2)[0]
    assert os.readlink("/proc/%d/cwd" % worker) == "/usr"


def test_error_log_is_relayed_as_stderr(h2fpm):
    response = h2fpm().get("/stderr.php?lines=3")
    assert response.body == b"logged"
    for i in range(3):
        assert b"to the error log %d" % i in response.stderr


def test_fatal_error_is_500_and_the_worker_goes_on(h2fpm):
    server = h2fpm()
    response = server.get("/fatal.php")
    assert response.complete and response.status == 500 and response.body == b""
    assert b"undefined_function_of_the_test" in response.stderr
    assert server.get("/hello.php").status == 200


DEFAULT_LINE = r'(\S+) - (\S*) (\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}) "(.*)" (\d+)$'


def test_access_log_has_phpfpms_default_format(h2fpm, phpfpm):
    uris = ["/hello.php?a=b", "/status.php?code=302", "/up/evil.jpg", "/fatal.php"]
    found = []
    for server in (h2fpm(), phpfpm()):
        for uri in uris:
            server.get(uri)
        server.post("/hello.php", b"x")
        wait_until(lambda: len(server.access_lines()) >= 5, what="access log lines")
        found.append([re.match(DEFAULT_LINE, line) for line in server.access_lines()])
        assert all(found[-1]), server.access_lines()
    ours, theirs = ([match.group(2, 4, 5) for match in lines] for lines in found)
    assert ours == theirs
    # On purpose: whom the request came from, where php-fpm has the front end's address or none.
    assert {match.group(1) for match in found[0]} == {"127.0.0.1"}


def test_access_log_of_a_tcp_client_names_its_address(h2fpm):
    from harness import free_port

    server = h2fpm(listen="127.0.0.1:%d" % free_port())
    server.get("/hello.php")
    assert server.wait_access(1)[0].startswith("127.0.0.1 -  ")


def test_access_log_tells_the_queue_wait(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "access.format": "%m %r %s %{milliseconds}W"})
    held = Held(server)
    waiting = server.start_get("/hello.php")
    wait_taken(waiting)
    assert waiting.quiet(0.2)
    held.finish()
    waiting.read_response()
    lines = server.wait_access(2)
    waits = {line.split()[1]: float(line.split()[3]) for line in lines}
    assert len(lines[0].split()) == 4 and lines[0].split()[2] == "200"
    assert waits["/gate.php"] < 5000 and 200 <= waits["/hello.php"] < 20000, lines


def test_ping_is_answered_while_all_workers_are_busy(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "ping.path": "/ping", "ping.response": "alive"})
    held = Held(server)
    response = server.get("/ping", script="/ping")
    assert (response.status, response.body) == (200, b"alive") and response.complete
    assert response.headers["content-type"].startswith("text/plain")
    assert not (held.dir / (held.id + ".go")).exists()
    held.finish()


def test_ping_default_answer_is_pong(h2fpm):
    assert h2fpm(pool={"ping.path": "/ping"}).get("/ping", script="/ping").body == b"pong"


def test_one_connection_serves_many_requests(h2fpm):
    server = h2fpm()
    with server.connect() as conn:
        for i in range(50):
            assert conn.request(server.params("/hello.php?%d" % i)).body == b"Hello, world\n"


def test_requests_of_two_connections_run_side_by_side(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    first, second = Held(server), Held(server)
    assert first.pid != second.pid
    assert b"passed" in second.finish().body and b"passed" in first.finish().body


# ---- through nginx ----


def test_nginx_get_post_head_over_http2(h2fpm, nginx):
    front = nginx(h2fpm())
    assert front.curl("/hello.php")[::2] == (200, b"Hello, world\n")
    status, _, body = front.curl("/echo.php?q=1", "--data-binary", "field=value")
    got = json.loads(body)
    assert status == 200 and got["post"] == {"field": "value"} and got["get"] == {"q": "1"}
    assert got["server"]["SERVER_PROTOCOL"] == "HTTP/2.0" and got["server"]["HTTPS"] == "on"
    status, headers, body = front.curl("/hello.php", "-I")
    assert status == 200 and "content-type" in headers


def test_nginx_shows_the_pools_own_answers(h2fpm, nginx):
    front = nginx(h2fpm())
    assert front.curl("/missing.php")[::2] == (404, b"No input file specified.\n")
    status, _, body = front.curl("/up/evil.jpg/x.php")
    assert status == 403 and b"Access denied." in body
    assert front.curl("/fatal.php")[0] == 500


def test_nginx_drops_the_proxy_header(h2fpm, nginx):
    got = json.loads(nginx(h2fpm()).curl("/echo.php", "-H", "Proxy: http://evil", "-H", "X-Kept: yes")[2])
    assert "HTTP_PROXY" not in got["server"] and got["server"]["HTTP_X_KEPT"] == "yes"


def test_nginx_keeps_its_connections_to_the_pool(h2fpm, nginx):
    """40 requests over kept-alive connections: nginx must find each answer's
    end in time to reuse the connection, so the pool sees one connection."""
    server = h2fpm()
    front = nginx(server, keepalive=4)
    found = front.h2load("/hello.php", 40, 1, 1)
    assert found["2xx"] == 40
    fds = os.listdir("/proc/%d/fd" % server.pool_pid)
    sockets = [fd for fd in fds if os.readlink("/proc/%d/fd/%s" % (server.pool_pid, fd)).startswith("socket:")]
    assert len(sockets) < 20, "one connection for each request was left open"


def test_nginx_answer_is_whole_with_stderr_between(h2fpm, nginx):
    server = h2fpm()
    server.site.script("mixed.php", "<?php for ($i = 0; $i < 200; $i++) { echo str_repeat('o', 500); flush();"
                                    " error_log(\"between $i\"); }")
    status, _, body = nginx(server).curl("/mixed.php")
    assert status == 200 and body == b"o" * 100000
