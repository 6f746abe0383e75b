"""What Apache's mod_proxy_fcgi makes of a script's name, as it was seen to send
it (2.4.71): the script must see what it sees behind php-fpm."""
import json

import pytest

NAMES = ("SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "PHP_SELF", "REDIRECT_URL")
ECHO = "%s/echo.php"

# What Apache was told: SCRIPT_FILENAME, SCRIPT_NAME, and what else it sends.
SENT = {
    "SetHandler": ("proxy:fcgi://localhost" + ECHO, "/echo.php", {}),
    "SetHandler with a slash": ("proxy:fcgi://localhost/" + ECHO, "/echo.php", {}),
    "SetHandler, PATH_INFO": (
        "proxy:fcgi://localhost" + ECHO,
        "/echo.php",
        {"PATH_INFO": "/a/b", "PATH_TRANSLATED": "%s/a/b"},
    ),
    "RewriteRule in a directory": (
        "proxy:fcgi://localhost" + ECHO,
        "/echo.php",
        {"PATH_INFO": "/a/b", "PATH_TRANSLATED": "%s/a/b", "REDIRECT_URL": "/d/a/b"},
    ),
    "the same, and there is such a script": (
        "proxy:fcgi://localhost" + ECHO,
        "/echo.php",
        {"PATH_INFO": "/hello.php", "PATH_TRANSLATED": "%s/hello.php", "REDIRECT_URL": "/d/hello.php"},
    ),
    "the same without PATH_INFO": ("proxy:fcgi://localhost" + ECHO, "/echo.php", {"REDIRECT_URL": "/d/a"}),
    "ProxyPassMatch": ("proxy:fcgi://pp%s/echo.php/a/b", "/pp/echo.php/a/b", {}),
    "ProxyPassMatch, encoded": ("proxy:fcgi://pp%s/echo.php/a%%20b", "/pp/echo.php/a b", {}),
    "ProxyPassMatch, other name": ("proxy:fcgi://pp%s/echo.php/a/b", "/a/b", {}),
    "RewriteRule [P] with a query": ("proxy:fcgi://localhost:9000" + ECHO + "?a=b", "/rw/echo.php", {}),
    "balancer": ("proxy:balancer://b" + ECHO + "?a=b", "/echo.php", {}),
}


def seen(server, script, name, extra):
    www = str(server.site.www)
    extra = {key: value.replace("%s", www) for key, value in extra.items()}
    answer = server.get("/x?q=1", script=script % www, SCRIPT_NAME=name, **extra)
    assert answer.status == 200, answer
    got = json.loads(answer.body)["server"]
    assert "proxy:" not in str(got)
    got["SCRIPT_FILENAME"] = got["SCRIPT_FILENAME"].replace("/./", "/")  # php_admin_value may add that
    return {key: got[key].replace(www, "%s") for key in NAMES if key in got}


@pytest.mark.parametrize("admin", [{}, {"php_admin_value[memory_limit]": "64M"}], ids=["plain", "php_admin_value"])
def test_script_sees_what_it_sees_behind_php_fpm(h2fpm, phpfpm, admin):
    model = phpfpm()
    server = h2fpm(pool={**admin, "access.format": "%f"})
    for told, sent in SENT.items():
        assert seen(server, *sent) == seen(model, *sent), told
    lines = server.wait_access(len(SENT))
    assert {line.partition("/echo.php")[0].lstrip("/") for line in lines} == {str(server.site.www).lstrip("/")}


def test_the_plain_name_is_judged(h2fpm):
    server = h2fpm()
    prefix = "proxy:fcgi://localhost" + str(server.site.www)
    assert server.get(script=prefix + "/hello.php").body == b"Hello, world\n"
    assert server.get(script=prefix + "/hello.php?x.jpg").body == b"Hello, world\n"
    for name in ("/note.txt", "/note.txt?x.php", "/note.txt/x.php", "/up/evil.jpg/x.php"):
        assert server.get(script=prefix + name).status == 403, name
    assert server.get(script=prefix + "/none.php").status == 404
    assert server.get(script="proxy:fcgi://localhost").status == 404


def test_path_info_behind_a_redirect_runs_no_other_file(h2fpm):
    server = h2fpm()
    server.site.script("d.php/inner.jpg", "<?php echo 'inner';")
    prefix = "proxy:fcgi://localhost" + str(server.site.www)
    for script, info in (("/d.php", "/inner.jpg"), ("/hello.php", "/../d.php/inner.jpg"), ("/hello.php", "/../echo.php")):
        answer = server.get(script=prefix + script, PATH_INFO=info, REDIRECT_URL="/r")
        assert answer.body in (b"Hello, world\n", b"No input file specified.\n", b""), answer
