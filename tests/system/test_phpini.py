"""php_value and php_admin_value as scripts see them: what each may change, by
whatever name it is called, beside php-fpm on the same scripts."""
import json
import os
import shutil

import pytest

import harness

# each name with its value, and another that a script would like better
SETTINGS = {
    "memory_limit": ("64M", "512M"),
    "error_log": ("{data}/php.log", "{data}/other.log"),
    "session.save_path": ("{data}", "/tmp"),
    "auto_prepend_file": ("{www}/before.php", "none"),
    "open_basedir": ("{dir}", "{www}"),
    "sendmail_path": ("/bin/true -t", "/bin/false"),
    "disable_functions": ("exec,shell_exec", ""),
    "upload_max_filesize": ("3M", "30M"),
    "include_path": (".:{www}", "/"),
    "default_charset": ("ISO-8859-1", "UTF-8"),
    "user_agent": ("it's $x \\ ; = [x]", "mine"),
    "zlib.output_compression": ("0", "1"),
    "max_execution_time": ("11", "99"),
}

SHOW = """<?php
$out = [];
foreach (json_decode(file_get_contents(__DIR__ . '/wanted.json')) as $name => $wanted) {
    $seen = ini_get($name);
    $set = ini_set($name, $wanted);
    $after = ini_get($name);
    ini_restore($name);
    $out[$name] = [$seen, $set !== false && $after === $wanted, ini_get($name)];
}
$out['exec'] = function_exists('exec');
$out['before'] = defined('BEFORE');
$out['script'] = $_SERVER['SCRIPT_FILENAME'] ?? '';
$out['root'] = $_SERVER['DOCUMENT_ROOT'] ?? '';
$out['path_info'] = $_SERVER['PATH_INFO'] ?? '';
$out['precision'] = ini_get('precision');
$out['error'] = error_get_last();
echo json_encode($out);
"""


def fill(site, text):
    return text.format(www=site.www, data=site.data, dir=site.dir)


def prepare(site, wanted):
    site.script("show.php", SHOW)
    site.script("sub/show.php", SHOW)
    site.script("before.php", "<?php define('BEFORE', 1);")
    for where in ("", "sub/"):
        site.script(where + "wanted.json", json.dumps({name: fill(site, value) for name, value in wanted.items()}))


def quoted(value):
    return '"%s"' % value if ";" in value else value


@pytest.fixture
def site():
    made = harness.Site()
    yield made
    made.remove()


def pool_of(site, kind="php_admin_value", settings=None):
    settings = settings or {name: value for name, (value, _) in SETTINGS.items()}
    return {"%s[%s]" % (kind, name): quoted(fill(site, value)) for name, value in settings.items()}


def start(h2fpm, site, pool=None, **wanted):
    prepare(site, wanted or {"user_agent": "mine"})
    return h2fpm(workdir=site, pool=pool or {"php_admin_value[user_agent]": "admin"})


def show(server, uri="/show.php", **params):
    answer = server.get(uri, **params)
    assert answer.status == 200, answer
    return json.loads(answer.text)


KEPT = ["admin", False, "admin"]


def without_quotes(name):
    return name != "user_agent"  # php-fpm's own parser would read the quotes


def test_admin_values_are_seen_and_kept(site, h2fpm):
    """Twice by each worker: what a request sets must not be left behind."""
    server = start(h2fpm, site, pool_of(site), **{name: other for name, (_, other) in SETTINGS.items()})
    for _ in range(4):
        got = show(server)
        for name, (value, _) in SETTINGS.items():
            value = fill(site, value)
            assert got[name] == [value, False, value], name
        assert not got["exec"] and got["before"] and got["error"] is None
    assert not server.log_lines("Warning") and not server.log_lines("Deprecated")


def test_as_in_php_fpm(h2fpm, phpfpm):
    """The same answers from both, open_basedir's own rule included."""
    seen = []
    settings = {name: pair for name, pair in SETTINGS.items() if without_quotes(name)}
    for make in (h2fpm, phpfpm):
        # the settings name the directory, which php-fpm's harness makes itself
        made = harness.Site()
        try:
            prepare(made, {name: other for name, (_, other) in settings.items()})
            pool = pool_of(made, settings={name: value for name, (value, _) in settings.items()})
            server = make(pool=pool)
            got = show(server, script=str(made.www / "show.php"), DOCUMENT_ROOT=str(made.www))
            seen.append(json.dumps(got).replace(json.dumps(str(made.dir))[1:-1], "DIR"))
        finally:
            made.remove()
    assert seen[0] == seen[1]


def test_values_may_be_changed(site, h2fpm):
    settings = {"user_agent": "pool", "precision": "5"}
    server = start(h2fpm, site, pool_of(site, "php_value", settings), user_agent="mine")
    assert show(server)["user_agent"] == ["pool", True, "pool"]
    assert show(server)["precision"] == "5"
    (site.www / ".user.ini").write_text("user_agent = dir\nprecision = 7\n")
    server.stop()
    server.log_path.unlink()  # so that "ready" is the next one's
    server.start()
    assert show(server)["user_agent"] == ["dir", True, "pool"]  # ini_restore() goes back that far
    assert show(server)["precision"] == "7"


def test_the_admin_one_wins(site, h2fpm):
    pool = {
        "php_admin_value[user_agent]": "admin",
        "php_value[user_agent]": "pool",
        "php_admin_flag[display_errors]": "off",
        "php_flag[display_errors]": "on",
    }
    server = start(h2fpm, site, pool, user_agent="mine", display_errors="1")
    got = show(server)
    assert got["user_agent"] == KEPT
    assert got["display_errors"][1] is False and got["display_errors"][0] in ("", "0")


def test_user_ini_is_kept_out(site, h2fpm):
    """Its other settings count."""
    (site.www / ".user.ini").write_text("user_agent = dir\nprecision = 7\n")
    server = start(h2fpm, site)
    for uri in ("/show.php", "/sub/show.php"):
        got = show(server, uri)
        assert got["user_agent"] == KEPT and got["precision"] == "7"


# what a front end may call a script: the name and other parameters
NAMES = {
    "plain": ("{www}/show.php", {}),
    "dot": ("/.{www}/show.php", {}),
    "two slashes": ("/{www}/show.php", {}),
    "three slashes": ("//{www}/show.php", {}),
    "path info": ("{www}/show.php/a/b", {"PATH_INFO": "/a/b"}),
    "path info, two slashes": ("/{www}/show.php/a", {"PATH_INFO": "/a"}),
    "link": ("{dir}/link/show.php", {}),
    "relative": ("show.php", {}),
    "relative, dot": ("./show.php", {}),
    "relative, path info": ("show.php/a", {"PATH_INFO": "/a"}),
    "relative, below": ("sub/show.php", {}),
    "relative, as a setting": ("memory_limit/show.php", {}),
    "translated": (None, {"PATH_TRANSLATED": "/{www}/show.php"}),
    "both": ("{www}/show.php", {"PATH_TRANSLATED": "/{www}/show.php"}),
    "redirected": ("{www}/show.php", {"PATH_TRANSLATED": "/{www}/sub/show.php", "REDIRECT_URL": "/x"}),
}
MODES = {
    "by default": {},
    "without fix_pathinfo": {"php_admin_flag[cgi.fix_pathinfo]": "off"},
    "any extension": {"security.limit_extensions": ""},
    "user_dir": {"php_admin_value[user_dir]": "public_html"},
    "doc_root": {"php_admin_value[doc_root]": "{www}"},
}

UNFOUND = {
    "without fix_pathinfo": ("path info", "path info, two slashes", "relative, path info"),
    "doc_root": ("redirected",),
}


@pytest.mark.parametrize("mode", MODES)
def test_by_whatever_name(site, h2fpm, mode):
    os.symlink(site.www, site.dir / "link")
    pool = {"php_admin_value[user_agent]": "admin", "chdir": site.www}
    pool.update({name: fill(site, value) for name, value in MODES[mode].items()})
    site.script("memory_limit/wanted.json", '{"user_agent": "mine"}')
    site.script("memory_limit/show.php", SHOW)
    server = start(h2fpm, site, pool)
    answered = 0
    for name, (script, params) in NAMES.items():
        params = {key: fill(site, value) for key, value in params.items()}
        params["SCRIPT_FILENAME"] = script and fill(site, script)
        answer = server.get("/show.php", **params)
        if answer.status == 404:
            assert name in UNFOUND.get(mode, ()), name
            continue
        assert answer.status == 200, (name, answer)
        got = json.loads(answer.text)
        assert got["user_agent"] == KEPT, name
        if mode != "doc_root":
            assert got["path_info"] == params.get("PATH_INFO", ""), name
        answered += 1
    assert answered >= len(NAMES) - 3


@pytest.mark.parametrize("mode", MODES)
def test_names_that_php_finds_no_file_by(site, h2fpm, mode):
    """With doc_root it would run SCRIPT_NAME, and without the settings."""
    pool = {"php_admin_value[user_agent]": "admin", "chdir": site.www}
    pool.update({name: fill(site, value) for name, value in MODES[mode].items()})
    server = start(h2fpm, site, pool)
    for script in ("{www}/sub/../show.php", "../www/show.php", "", "{www}/none.php", None):
        answer = server.get("/show.php", SCRIPT_FILENAME=script and fill(site, script))
        assert answer.status == 404, (script, answer)
    got = show(server, PATH_TRANSLATED=fill(site, "{www}/sub/../show.php"))
    assert got["user_agent"] == KEPT


@pytest.mark.skipif(not harness.IS_ROOT, reason="only root may write to the root directory")
def test_in_the_root_directory(site, h2fpm):
    """Scripts there, and in a directory that is newer than the pool."""
    server = start(h2fpm, site)
    new = "/%s-new" % site.dir.name
    file = "/%s.php" % site.dir.name
    (site.www / ".user.ini").write_text("user_agent = dir\nprecision = 7\n")
    try:
        shutil.copytree(site.www, new)
        shutil.copy(site.www / "show.php", file)
        shutil.copy(site.www / "wanted.json", "/wanted.json")
        for script in (file, file + "/a"):
            got = show(server, script=script, DOCUMENT_ROOT="/", PATH_INFO=script[len(file) :])
            assert got["user_agent"] == KEPT
            assert got["script"] == "/." + file and got["root"] == "/"
        got = show(server, script=new + "/sub/show.php", DOCUMENT_ROOT=new)
        assert got["user_agent"] == KEPT and got["precision"] == "7"
        assert got["script"] == "/.%s/sub/show.php" % new and got["root"] == "/." + new
        assert show(server)["script"] == fill(site, "{www}/show.php")
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for path in (file, "/wanted.json"):
            if os.path.exists(path):
                os.unlink(path)


def test_too_many_for_one_argument(site, h2fpm):
    """Then a name is enough that covers every directory."""
    pool = {"php_admin_value[user_agent]": "admin"}
    pool.update({"php_admin_value[h2fpm.test%d]" % n: "x" * 700 for n in range(60)})
    server = start(h2fpm, site, pool)
    for script in ("{www}/show.php", "/{www}/show.php", "{www}/show.php/a"):
        got = show(server, script=fill(site, script))
        assert got["user_agent"] == KEPT
        assert got["script"].startswith("/./")


def test_nothing_is_complained_about(site, h2fpm):
    """Settings that PHP does not want to hear of again at each request; and
    opcache goes on as if there were none."""
    site.script("hits.php", "<?php echo json_encode(opcache_get_status(false)['opcache_statistics']);")
    settings = {
        "opcache.enable": "1",
        "opcache.file_update_protection": "0",
        "opcache.memory_consumption": "32",
        "opcache.revalidate_freq": "1",
        "opcache.validate_timestamps": "1",
        "iconv.internal_encoding": "UTF-8",
        "mbstring.internal_encoding": "UTF-8",
        "date.timezone": "Europe/Berlin",
        "zend.assertions": "-1",
        "include_path": ".",
        "log_errors": "1",
        "display_errors": "1",
        "error_reporting": "-1",
        "session.save_handler": "files",
        "pcre.jit": "1",
        "no.such.setting": "x",
    }
    server = start(h2fpm, site, dict(pool_of(site, settings=settings), **{"pm.max_children": 1}))
    for _ in range(5):
        assert show(server)["error"] is None
    status = json.loads(server.get("/hits.php").text)
    assert (status["hits"], status["misses"]) == (4, 2)
    assert not [line for line in server.log().splitlines() if "PHP" in line]
