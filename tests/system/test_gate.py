"""php-cgi as a zygote: what its workers have for an environment, what comes of
scripts of opcache.preload that meddle with it, and commands that are a shell
script or no php-cgi at all."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import OtherPool, PhpFpm, Site, alive, children, cpu_seconds, descendants, proc_stat, wait_until

both = pytest.mark.parametrize("spawn", ["zygote", "exec"])

# ---- the environment ----

SHOW = """<?php
exec('env', $child);
sort($child);
$local = [];
foreach (array_merge(json_decode($_GET['names']), array_keys(getenv())) as $name)
    $local[$name] = getenv($name, true);
$none = ['PHP_FCGI_CHILDREN', 'PHP_FCGI_MAX_REQUESTS', 'LD_PRELOAD', 'H2FPM_GATE', 'FCGI_ROLE'];
echo json_encode(['child' => $child, 'env' => $_ENV, 'all' => getenv(), 'local' => $local,
    'none' => array_map('getenv', $none)]);
"""

NAMES = ["PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "PWD", "TMPDIR", "MINE", "EMPTY", "H2FPM_GATE", "LD_PRELOAD"]
ENVIRONMENTS = {
    "none": {},
    "some": {"env[MINE]": "a value", "env[PATH]": "/usr/bin:/bin", "env[TMPDIR]": "/tmp"},
    "account": {"env[HOME]": "/nowhere", "env[USER]": "somebody"},
    "inherited": {"clear_env": "no", "env[MINE]": "x"},
}
# what is the shell's own, and what is a request's and differs anyway
NOISE = {"_", "SHLVL", "OLDPWD", "PWD"}
OF_THE_REQUEST = {"DOCUMENT_ROOT", "SCRIPT_FILENAME", "PATH_TRANSLATED", "REQUEST_TIME", "REQUEST_TIME_FLOAT"}
OURS = re.compile(r"H2FPM_|PHP_FCGI_|LD_PRELOAD$")


def show(server):
    server.site.script("show.php", SHOW)
    response = server.get("/show.php", QUERY_STRING="names=" + json.dumps(NAMES).replace(" ", ""))
    assert response.status == 200, response
    return json.loads(response.text)


def child_environment(seen):
    pairs = (line.partition("=") for line in seen["child"])
    return {name: value for name, _, value in pairs if name not in NOISE}


def same(seen):
    """Without what this request alone has."""
    mine = ("H2FPM_QUEUE_LENGTH", "H2FPM_QUEUE_WAIT_US")
    return {name: value for name, value in dict(seen).items() if name not in OF_THE_REQUEST and name not in mine}


@pytest.fixture
def model(phpfpm):
    """php-fpm with such settings; needs root as the pool's user does."""
    if not os.path.exists(PhpFpm.BINARY):
        pytest.skip("no php-fpm to compare with")
    return lambda settings: show(phpfpm(pool=settings))


@both
@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_environment_is_that_of_php_fpm(h2fpm, model, spawn, name, monkeypatch):
    monkeypatch.setenv("MINE", "of the master")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("PHP_FCGI_CHILDREN", "3")  # of no use to anybody here
    settings = {**ENVIRONMENTS[name], "php_admin_value[variables_order]": "EGPCS"}
    seen = show(h2fpm(pool={"worker.spawn": spawn, **settings}))
    monkeypatch.delenv("PHP_FCGI_CHILDREN")
    want = model(settings)
    ours = child_environment(seen)
    if spawn == "exec":
        assert ours.pop("PHP_FCGI_MAX_REQUESTS") == "0"  # read by php-cgi itself, so it cannot be hidden
        for of in (seen["env"], seen["all"], seen["local"]):
            of.pop("PHP_FCGI_MAX_REQUESTS", None)
        seen["none"][1] = False
    assert ours == child_environment(want)
    assert not [variable for variable in ours if OURS.match(variable)]
    for kind in ("env", "local", "all"):
        assert same(seen[kind]) == same(want[kind]), kind
    assert seen["none"] == want["none"]


def test_nothing_of_ours_is_left_in_proc(h2fpm):
    server = h2fpm(pool={"env[MINE]": "x"})
    environ = pathlib.Path("/proc/%d/environ" % server.wait_workers()[0]).read_bytes()
    names = [entry.split(b"=")[0].decode() for entry in environ.split(b"\0") if entry]
    assert "MINE" in names and not [name for name in names if OURS.match(name)], names


def test_php_ini_in_the_workers_directory_is_not_taken(h2fpm):
    """php-cgi by itself would, and whoever writes there would own the pool."""
    site = Site()
    (site.www / "php.ini").write_text("user_agent = not from here\n")
    server = h2fpm(workdir=site, pool={"chdir": site.www})
    server.own_site = True
    site.script("where.php", "<?php echo getcwd(), '|', ini_get('user_agent'), '|', php_ini_loaded_file();")
    cwd, agent, loaded = server.get("/where.php").text.split("|")
    assert cwd == str(site.www) and agent == "" and not loaded.startswith(str(site.www))


def harmless_library():
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False, env={"PATH": "/sbin:/usr/sbin"})
    found = re.search(r"libm\.so\.6 .*=> (\S+)", done.stdout)
    return found and os.path.realpath(found.group(1))


@both
def test_preload_of_the_pools_own_arrives(h2fpm, spawn):
    library = harmless_library() or pytest.skip("no libm.so.6")
    server = h2fpm(pool={"worker.spawn": spawn, "env[LD_PRELOAD]": library, "env[MINE]": "x"})
    seen = show(server)
    assert seen["local"]["LD_PRELOAD"] == library
    assert child_environment(seen)["LD_PRELOAD"] == library
    maps = pathlib.Path("/proc/%d/maps" % server.workers()[0]).read_text()
    assert library in maps
    server.site.script("maps.php", "<?php passthru('cat /proc/self/maps');")
    mapped = server.get("/maps.php").text
    assert library in mapped and "h2fpm-gate" not in mapped


# ---- opcache.preload ----

SEND = """
$c = FFI::cdef('int close(int fd); long send(int fd, const void *data, size_t size, int flags);');
function packet($kind, $order) { return pack('VVV', ord($kind), $order, 0); }
"""
# With these it starts all the same.
HARMLESS = {
    "fork": "$pid = pcntl_fork(); if ($pid === 0) exit(0); pcntl_waitpid($pid, $status);",
    "fork that is left": "if (pcntl_fork() === 0) exit(0);",
    "fork that goes its own way": "if (pcntl_fork() === 0) { posix_setsid(); if (pcntl_fork() === 0) exit(0); exit(0); }",
    "system": "system('true'); exec('env', $lines); if (preg_grep('/H2FPM|LD_PRELOAD/', $lines)) exit(9);",
    "php://fd": "@fopen('php://fd/3', 'w'); @fopen('/proc/self/fd/3', 'w');",
    "rubbish": SEND + "$c->send(3, 'rubbish', 7, 0); $c->send(3, str_repeat('x', 5000), 5000, 0);",
    "unknown kinds": SEND + "foreach (['Z', 'S', chr(0)] as $k) $c->send(3, packet($k, 1), 12, 0);",
    "born for no order": SEND + "$c->send(3, packet('B', 7), 12, 0);",
    "failed for no order": SEND + "$c->send(3, packet('F', 7), 12, 0);",
    "loaded again": SEND + "$c->send(3, packet('L', 0), 12, 0);",
    "ready too early": SEND + "$c->send(3, packet('R', 0), 12, 0); usleep(300000);",
}
# With these it does not, and this is what the log says.
FATAL = {
    "exit": ("exit(3);", "did not start: it exited"),
    "fatal error": ("nonsense();", "did not start: it exited with code"),
    "crash": ("posix_kill(getmypid(), SIGSEGV);", "did not start: it exited on signal 11"),
    "closed": (SEND + "$c->close(3);", "did not start: it exited"),
    "closed and another in its place": (SEND + "$c->close(3); $GLOBALS['f'] = fopen('/dev/zero', 'r');", "did not start"),
    "closed, and goes on": (SEND + "$c->close(3); sleep(60);", "did not start: it closed its link"),
    "an empty packet, and goes on": (SEND + "$c->send(3, '', 0, 0); sleep(60);", "did not start: it closed its link"),
    "talks without end": (SEND + "while (true) $c->send(3, 'x', 1, 0);", "it was not ready within worker.start_timeout"),
    "too slow": ("sleep(60);", "it was not ready within worker.start_timeout"),
}


def preload_pool(site, code, name="preload.php"):
    site.script(name, "<?php\n" + code + "\n")
    return {"php_admin_value[opcache.preload]": site.www / name, "worker.start_timeout": "2s"}


def two_pools(h2fpm, code):
    """[www] without, [other] with such a script."""
    server = h2fpm(start=False)
    pool = preload_pool(server.site, code)
    other = OtherPool(server, **pool)
    server.start()
    return server, other


@pytest.mark.parametrize("what", sorted(HARMLESS))
def test_preload_script_that_meddles_is_borne(h2fpm, what):
    server, other = two_pools(h2fpm, HARMLESS[what])
    pids = {int(other.get("/pid.php", timeout=60).text) for _ in range(4)}
    assert server.get().status == 200
    assert not server.log_lines("worker.spawn"), server.log()
    assert not server.log_lines("ERROR"), server.log()
    for pid in pids:
        assert proc_stat(proc_stat(pid)[1]) is not None and proc_stat(pid)[1] in server.pool_pids()
    if what == "rubbish":
        assert server.log_lines("[pool other]", "sent what no gate sends")
    if what == "born for no order":
        assert server.log_lines("[pool other]", "claims to be a worker that nobody ordered")


@pytest.mark.parametrize("what", sorted(FATAL))
def test_preload_script_that_spoils_it_says_why_and_backs_off(h2fpm, what):
    code, line = FATAL[what]
    server, other = two_pools(h2fpm, code)
    server.wait_log("[pool other]", line, timeout=60)
    server.wait_log("[pool other]", "in a row died at their start", timeout=60)
    pools = server.pool_pids()
    before = sum(cpu_seconds(pid) for pid in pools)
    lines = len(server.log_lines("[pool other]"))
    assert [server.get().status for _ in range(20)] == [200] * 20
    assert lines < 60, server.log()
    assert sum(cpu_seconds(pid) for pid in pools) - before < 1
    assert set(server.pool_pids()) == set(pools)
    assert not server.log_lines("[pool www]"), server.log()


def test_child_that_a_preload_script_leaves_behind_is_no_zygote_and_ends_with_the_pool(h2fpm):
    left = "if (pcntl_fork() === 0) { posix_setsid(); if (pcntl_fork() === 0) { sleep(1000); } exit(0); }"
    server, other = two_pools(h2fpm, left)
    for _ in range(4):
        assert other.get("/pid.php", timeout=60).status == 200
    strangers = [pid for pid in descendants(server.master) if not children(pid) and (proc_stat(pid) or "-")[0] == "S"]
    server.stop()
    wait_until(lambda: not [pid for pid in strangers if alive(pid)], what="none of %r" % strangers)


# ---- a script before php-cgi ----

EXPORTS = "PHP_FCGI_CHILDREN=4 PHP_FCGI_MAX_REQUESTS=3\nexport PHP_FCGI_CHILDREN PHP_FCGI_MAX_REQUESTS\n"
WRAPPERS = {
    "exec": "#!/bin/sh\n" + EXPORTS + 'exec php-cgi "$@"\n',
    "child": "#!/bin/sh\n" + EXPORTS + 'php-cgi "$@"\nstatus=$?\nexit $status\n',
    "busy": "#!/bin/sh\n" + EXPORTS + 'id >/dev/null; (true); x=$(env | wc -l)\nexec env MINE=wrapped php-cgi "$@"\n',
}


def programs(server):
    """Of all that it has started: {pid: name of the program}."""
    found = {}
    for pid in descendants(server.master):
        try:
            found[pid] = os.path.basename(os.readlink("/proc/%d/exe" % pid))
        except OSError:
            pass
    return found


def wrapped(h2fpm, text, **pool):
    site = Site()
    command = site.program("php-wrapper", text)
    pool = {name.replace("__", "."): value for name, value in pool.items()}
    server = h2fpm(workdir=site, pool={"worker.command": command, **pool})
    server.own_site = True
    return server


@pytest.mark.parametrize("how", sorted(WRAPPERS))
def test_wrapper_makes_a_zygote_all_the_same(h2fpm, how):
    server = wrapped(h2fpm, WRAPPERS[how], **{"php_admin_value[user_agent]": "passed on"})
    workers = set(server.wait_workers(2))
    with server.connect() as conn:
        pids = {int(conn.request(server.params("/pid.php")).text) for _ in range(20)}
    assert pids <= workers == set(server.workers()), "none ends after 3 requests"
    php = [pid for pid, name in programs(server).items() if name.startswith("php-cgi")]
    assert len(php) == 3 and workers < set(php), "one zygote, two workers"
    assert server.get("/ini.php?name=user_agent").text.find("passed on") >= 0
    server.stop()
    wait_until(lambda: not [pid for pid in php if alive(pid)], what="no php-cgi left of %r" % php)


def test_wrapper_that_is_killed_takes_its_php_cgi_along(h2fpm):
    """While PHP starts: nobody else would end it."""
    site = Site()
    command = site.program("php-wrapper", WRAPPERS["child"])
    pool = {"worker.command": command, **preload_pool(site, "sleep(1000);")}
    server = h2fpm(workdir=site, pool=pool)
    server.own_site = True
    server.wait_log("it was not ready within worker.start_timeout", timeout=60)
    server.wait_log("in a row died at their start", timeout=60)
    wait_until(lambda: sum(name.startswith("php-cgi") for name in programs(server).values()) <= 1)


# Ends twice before it gets to php-cgi.
UNSTEADY = """#!/bin/sh
echo >>%s
[ $(wc -l <%s) -gt 2 ] || exit 1
exec php-cgi "$@"
"""


def test_wrapper_that_fails_at_first_makes_a_zygote_later(h2fpm):
    site = Site()
    tries = site.data / "tries"
    command = site.program("php-wrapper", UNSTEADY % (tries, tries))
    server = h2fpm(workdir=site, pool={"worker.command": command})
    server.own_site = True
    server.wait_workers(2, timeout=30)
    assert len(server.zygotes()) == 1 and "worker.spawn" not in server.log()


# ---- no php-cgi ----

# Says what it was started with, and that it is no php-cgi.
COUNTER = """#!/bin/sh
env >>%s
exec sleep 1000
"""


def test_program_that_is_no_php_gets_no_children_variable(h2fpm):
    site = Site()
    seen = site.data / "seen"
    command = site.program("php-something", COUNTER % seen)
    server = h2fpm(workdir=site, pool={"worker.command": command, "worker.start_timeout": "1s"})
    server.own_site = True
    server.wait_log("WARNING", "worker.spawn", timeout=60)
    wait_until(lambda: seen.read_text().count("PHP_FCGI_MAX_REQUESTS=0") >= 2)
    assert "PHP_FCGI_CHILDREN" not in seen.read_text()
