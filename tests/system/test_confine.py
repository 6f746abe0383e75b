"""What a worker is left with: its user and groups, no capability, its root,
its limits and its environment. By fork from a zygote and by exec alike."""
import grp
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess

import pytest

from harness import IS_ROOT, POOL_USER, ROOT, OtherPool, Site, alive, proc_status, wait_until

as_root = pytest.mark.skipif(not IS_ROOT, reason="only root can change users and roots")
both = pytest.mark.parametrize("spawn", ["zygote", "exec"])
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")
CAP_SYS_CHROOT = 1 << 18


def capabilities(pid):
    status = proc_status(pid)
    return {int(status[name], 16) for name in CAPABILITIES}


def worker_of(server, **extra):
    """A worker that has served a request, and so is all that it will be."""
    response = server.get("/pid.php", **extra)
    assert response.status == 200, response
    return int(response.text)


def is_dumpable(pid):
    """The kernel gives /proc/PID of one that is not to root."""
    return os.stat("/proc/%d/mem" % pid).st_uid == int(proc_status(pid)["Uid"].split()[1])


def soft_and_hard(pid, name):
    lines = pathlib.Path("/proc/%d/limits" % pid).read_text().splitlines()
    return next(tuple(line[26:].split()[:2]) for line in lines if line.startswith(name))


# ---- who it is ----


def user_with_groups():
    for user in pwd.getpwall():
        if user.pw_uid != 0 and len(set(os.getgrouplist(user.pw_name, user.pw_gid))) > 1:
            return user
    return None


@as_root
@both
@pytest.mark.parametrize("given", ["name", "number"])
def test_user_group_and_supplementary_groups(h2fpm, spawn, given):
    user = user_with_groups() or pwd.getpwnam(POOL_USER)
    group = grp.getgrnam("nogroup")
    name, group_name = (user.pw_name, group.gr_name) if given == "name" else (user.pw_uid, group.gr_gid)
    site = Site()
    for path in (site.spool, site.data):
        os.chown(path, user.pw_uid, -1)
    server = h2fpm(workdir=site, pool={"worker.spawn": spawn, "user": name, "group": group_name})
    server.own_site = True
    want = set(os.getgrouplist(user.pw_name, group.gr_gid))
    for pid in (worker_of(server), server.pool_pid, *server.zygotes()):
        status = proc_status(pid)
        assert set(map(int, status["Uid"].split())) == {user.pw_uid}
        assert set(map(int, status["Gid"].split())) == {group.gr_gid}
        assert set(map(int, status["Groups"].split())) == want


@as_root
@both
def test_no_capability_and_none_to_be_had(h2fpm, spawn):
    server = h2fpm(pool={"worker.spawn": spawn})
    for pid in (worker_of(server), server.pool_pid, *server.zygotes()):
        assert capabilities(pid) == {0}


def test_without_root_it_is_whoever_started_it(h2fpm):
    if IS_ROOT:
        pytest.skip("this is root")
    server = h2fpm(pool={"worker.spawn": "zygote", "chroot": "/"})
    assert int(proc_status(worker_of(server))["Uid"].split()[0]) == os.getuid()


# ---- another root ----

LOOK = """<?php
chdir('/www');
$seen = ['file' => __FILE__, 'cwd' => getcwd(), 'root' => scandir('/'), 'pid' => getmypid()];
for ($i = 0; $i < 50; $i++)
    chdir('..');
$seen['above'] = scandir('.');
foreach (['/absolute', '/relative', '/../secret', '/www/../../secret'] as $path)
    $seen['reached'][$path] = @file_get_contents($path);
$seen['server'] = array_intersect_key($_SERVER, array_flip(['PATH_INFO', 'SCRIPT_FILENAME', 'SCRIPT_NAME']));
$seen['opcache'] = function_exists('opcache_get_status') && is_array(opcache_get_status());
$seen['agent'] = ini_get('user_agent');
ini_set('user_agent', 'mine');
$seen['agent after'] = ini_get('user_agent');
echo json_encode($seen);
"""

# The classic ways out, with the C library's own functions.
BREAK_OUT = """<?php
$c = FFI::cdef('int chroot(const char *path); int chdir(const char *path); int fchdir(int fd);');
mkdir('/tmp/deeper');
$seen['chroot'] = $c->chroot('/tmp/deeper');
for ($fd = 0; $fd < 300; $fd++) {
    if ($c->fchdir($fd) !== 0)
        continue;
    for ($i = 0; $i < 50; $i++)
        $c->chdir('..');
    $seen['by descriptor'] = scandir('.');
}
rmdir('/tmp/deeper');
echo json_encode($seen);
"""


class Jail:
    """A root for workers, with nothing of PHP's in it, beside a secret."""

    def __init__(self):
        self.site = Site()
        self.root = self.site.dir / "jail"
        shutil.copytree(self.site.www, self.root / "www")
        (self.root / "tmp").mkdir()
        self.root.chmod(0o755)
        Site.give(self.root / "tmp")
        (self.site.dir / "secret").write_text("secret")
        (self.root / "absolute").symlink_to(self.site.dir / "secret")
        (self.root / "relative").symlink_to("../secret")
        self.script("www/look.php", LOOK)
        self.script("www/break.php", BREAK_OUT)
        self.script("top.php", LOOK)

    def script(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o644)

    def names(self):
        return sorted([".", ".."] + os.listdir(self.root))


@pytest.fixture
def jail():
    """To be asked for before h2fpm, which then ends first."""
    made = Jail()
    yield made
    made.site.remove()


@pytest.fixture
def jailed(jail, h2fpm):
    def start(**pool):
        pool = {name.replace("__", "."): value for name, value in pool.items()}
        return h2fpm(workdir=jail.site, pool={"chroot": jail.root, **pool})

    return start


def inside(server, path, **extra):
    response = server.get(path, script="/www" + path, DOCUMENT_ROOT="/www", **extra)
    assert response.status == 200, response
    return response.text


@as_root
def test_chroot_is_all_that_a_script_sees(jailed, jail):
    server = jailed(worker__spawn="zygote", chdir="/tmp")
    seen = json.loads(inside(server, "/look.php"))
    assert (seen["file"], seen["cwd"]) == ("/www/look.php", "/www")
    assert seen["root"] == seen["above"] == jail.names()
    assert set(seen["reached"].values()) == {False}
    assert os.readlink("/proc/%d/root" % seen["pid"]) == str(jail.root)
    assert os.readlink("/proc/%d/root" % server.wait_zygote()) == "/"
    # what is left to the pool's own process is what new workers need
    assert capabilities(seen["pid"]) == {0}
    assert capabilities(server.pool_pid) == {CAP_SYS_CHROOT}


@as_root
def test_chdir_is_within_the_chroot(jailed, jail):
    server = jailed(chdir="/tmp")
    pid = int(inside(server, "/pid.php"))
    server.stop()
    assert not alive(pid)
    other = jailed(chdir="/www/up")
    conn = other.connect()
    conn.request(other.params("/nothing.php", script="/www/nothing.php", DOCUMENT_ROOT="/www"))
    pids = other.wait_workers()
    # php-cgi goes to a script's directory and back
    assert {os.readlink("/proc/%d/cwd" % p) for p in pids} == {str(jail.root / "www" / "up")}
    conn.close()


@as_root
def test_chroot_cannot_be_left_by_the_known_ways(jailed, jail):
    server = jailed(**{"php_admin_value[ffi.enable]": "1"})
    seen = json.loads(inside(server, "/break.php"))
    assert seen["chroot"] == -1
    assert seen.get("by descriptor") in (None, jail.names())


@as_root
@pytest.mark.parametrize("validate_root", ["0", "1"])
def test_opcache_works_within_a_chroot(jailed, jail, validate_root):
    settings = {"php_admin_value[opcache.file_update_protection]": "0"}  # new files too
    settings["php_admin_value[opcache.validate_root]"] = validate_root
    server = jailed(**settings)
    for path in ("/look.php", "/look.php", "/hello.php"):
        inside(server, path)
    assert json.loads(inside(server, "/look.php"))["opcache"]
    jail.script("www/state.php", "<?php echo json_encode(array_keys(opcache_get_status()['scripts']));")
    assert "/www/look.php" in json.loads(inside(server, "/state.php"))


@as_root
def test_pools_with_the_same_path_in_two_roots_keep_them_apart(jail, h2fpm):
    other_root = jail.site.dir / "jail2"
    (other_root / "www").mkdir(parents=True)
    (other_root / "www" / "who.php").write_text("<?php echo 'two';")
    jail.script("www/who.php", "<?php echo 'one';")
    server = h2fpm(workdir=jail.site, start=False, pool={"chroot": jail.root})
    other = OtherPool(server, chroot=other_root)
    server.start()
    for _ in range(4):
        assert (inside(server, "/who.php"), inside(other, "/who.php")) == ("one", "two")


@as_root
def test_paths_known_from_outside_are_forgotten_within_a_chroot(jailed, jail):
    """A preload script's: the same path is another file within."""
    base = jail.site.dir
    (base / "real").mkdir()
    (base / "real" / "one.php").write_text("<?php class One {}")
    (base / "link").symlink_to("real")
    jail.site.script("preload.php", "<?php require '%s/link/one.php';" % base)
    within = "%s/link/two.php" % base
    (jail.root / within[1:]).parent.mkdir(parents=True)
    jail.script(within[1:], "<?php echo __FILE__, class_exists('One') ? ' and One' : '';")
    server = jailed(**{"php_admin_value[opcache.preload]": jail.site.www / "preload.php"})
    assert server.get("/two.php", script=within, DOCUMENT_ROOT="/").text == within + " and One"


@as_root
def test_path_info_within_a_chroot(jailed):
    server = jailed()
    seen = json.loads(inside(server, "/look.php/extra/path", PATH_INFO="/extra/path"))
    assert seen["server"]["PATH_INFO"] == "/extra/path"
    assert seen["server"]["SCRIPT_FILENAME"] == "/www/look.php"


@as_root
@pytest.mark.parametrize("script", ["/www/look.php", "/top.php"])
def test_admin_values_hold_within_a_chroot(jailed, script):
    server = jailed(**{"php_admin_value[user_agent]": "admin"})
    response = server.get(script, script=script, DOCUMENT_ROOT="/")
    assert response.status == 200, response
    seen = json.loads(response.text)
    assert (seen["agent"], seen["agent after"]) == ("admin", "admin")


@as_root
def test_path_from_outside_is_no_script(jailed, jail):
    server = jailed()
    for script in (jail.root / "www" / "look.php", jail.site.www / "hello.php", "/../www/hello.php"):
        assert server.get("/hello.php", script=str(script)).status == 404 or str(script).startswith("/..")


@pytest.fixture(scope="session")
def static_program(shared_dir):
    out, source = shared_dir / "static-responder", ROOT / "tests" / "peers" / "lasting.c"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-static", "-o", str(out), str(source), "-lfcgi"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        pytest.skip("cannot link statically")
    return out


@as_root
def test_exec_runs_the_program_that_is_inside(jailed, jail, static_program):
    shutil.copy(static_program, jail.root / "responder")
    (jail.root / "responder").chmod(0o755)
    server = jailed(worker__spawn="exec", worker__command="/responder")
    pid = int(server.get("/hello.php", script="/www/hello.php", DOCUMENT_ROOT="/www").text.split()[0])
    assert os.readlink("/proc/%d/root" % pid) == os.readlink("/proc/%d/cwd" % pid) == str(jail.root)
    assert capabilities(pid) == {0}


@as_root
def test_exec_without_the_program_inside_says_so(jail, h2fpm):
    """Its pool is left out, or it cannot start a worker; the others serve."""
    server = h2fpm(workdir=jail.site, start=False)
    OtherPool(server, chroot=jail.root, worker__spawn="exec", worker__command="/usr/bin/php-cgi")
    server.start()
    wait_until(lambda: re.search(r"(?m)^.*/usr/bin/php-cgi.*No such file or directory", server.all_output()))
    assert server.get().status == 200


@as_root
def test_chroot_that_goes_away_costs_new_workers_only(jailed, jail):
    server = jailed()
    old = set(server.wait_workers())
    assert inside(server, "/hello.php")
    jail.root.rename(jail.site.dir / "gone")
    victim = max(old)
    os.kill(victim, 9)
    server.wait_log("chroot: No such file or directory")
    server.wait_log("WARNING", "in a row died at their start", "the next one is started in")
    assert inside(server, "/pid.php") == str(min(old))
    (jail.site.dir / "gone").rename(jail.root)
    server.wait_workers(without=[victim], timeout=60)
    assert len(server.log_lines("chroot: No such file or directory")) < 20


# ---- what it may do ----


@as_root
@both
@pytest.mark.parametrize("dumpable", ["yes", "no"])
def test_dumpable(h2fpm, spawn, dumpable):
    """What an exec undoes is a core limit of 0 instead."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text()
    server = h2fpm(pool={"worker.spawn": spawn, "process.dumpable": dumpable})
    pid = worker_of(server)
    if spawn == "zygote":
        # the zygote too: who can trace it has all workers to come
        assert {is_dumpable(p) for p in [pid, *server.zygotes()]} == {dumpable == "yes"}
    elif dumpable == "no":
        assert soft_and_hard(pid, "Max core file size") == ("0", "0")
    assert pathlib.Path("/proc/sys/kernel/core_pattern").read_text() == pattern


@both
@pytest.mark.parametrize("setting", ["yes", "no"])
def test_no_new_privs(h2fpm, spawn, setting):
    server = h2fpm(pool={"worker.spawn": spawn, "process.no_new_privs": setting})
    assert proc_status(worker_of(server))["NoNewPrivs"] == ("1" if setting == "yes" else "0")


@as_root
def test_no_new_privs_within_a_chroot(jailed):
    server = jailed(process__no_new_privs="yes")
    pid = int(inside(server, "/pid.php"))
    assert proc_status(pid)["NoNewPrivs"] == "1"
    assert capabilities(pid) == {0}


@as_root
@both
def test_priority_is_the_workers_and_the_pool_process_is_ahead(h2fpm, spawn):
    server = h2fpm(pool={"worker.spawn": spawn, "process.priority": 5})
    assert os.getpriority(os.PRIO_PROCESS, worker_of(server)) == 5
    assert os.getpriority(os.PRIO_PROCESS, server.pool_pid) < 5


@both
def test_file_and_core_limits(h2fpm, spawn):
    server = h2fpm(pool={"worker.spawn": spawn, "rlimit_files": 321, "rlimit_core": 0})
    pid = worker_of(server)
    assert soft_and_hard(pid, "Max open files") == ("321", "321")
    assert soft_and_hard(pid, "Max core file size") == ("0", "0")


@as_root
@both
@pytest.mark.parametrize("core", ["unlimited", "8192"])
def test_core_limit_above_the_hard_one(h2fpm, spawn, core):
    if not int(proc_status(os.getpid())["CapEff"], 16) & 1 << 24:
        pytest.skip("without CAP_SYS_RESOURCE")
    settings = {"worker.spawn": spawn, "rlimit_core": core, "process.dumpable": "yes"}
    server = h2fpm(main={"rlimit_core": 4096}, pool=settings)
    assert soft_and_hard(worker_of(server), "Max core file size") == (core, core)


@pytest.mark.parametrize("wrong", [{"rlimit_core": "many"}, {"rlimit_core": "-5"}, {"rlimit_files": "0x"}])
def test_limit_that_is_none_leaves_its_pool_out(h2fpm, wrong):
    server = h2fpm(start=False)
    OtherPool(server, **wrong)
    server.start()
    assert server.get().status == 200
    assert len(server.pool_pids()) == 1
    name = next(iter(wrong))
    assert [line for line in server.all_output().splitlines() if name in line and "ERROR" in line]


@pytest.mark.skipif(os.path.exists("/sys/module/apparmor"), reason="there is AppArmor")
@both
def test_hat_without_apparmor_is_an_error(h2fpm, spawn):
    """Never a worker that is less confined than it was meant to be."""
    server = h2fpm(start=False)
    other = OtherPool(server, apparmor_hat="hat", worker__spawn=spawn)
    server.start()
    wait_until(lambda: re.search(r"(?m)^.*\[pool other\].*apparmor_hat", server.all_output()))
    assert server.get().status == 200
    if os.path.exists(other.address):
        assert other.get().status == 503
