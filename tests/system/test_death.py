"""What the log says of a worker that died: how, how old, what it had served,
how much memory it had, what it was running, what it said last, and whether it
was the kernel that killed it for want of memory."""
import os
import pathlib
import re
import signal
import tempfile

import pytest

import fcgi
from harness import IS_ROOT, Held, Site, alive, wait_until

pytestmark = pytest.mark.alone

WANT_OF_MEMORY = "for want of memory"


def found(pattern, line):
    match = re.search(pattern, line)
    assert match, "nothing like %r in: %s" % (pattern, line)
    return match.group(1)


def served(line):
    return int(found(r"\b(\d+) requests? served\b", line))


def peak_mib(line):
    return float(found(r"\b([\d.]+) MiB resident at its peak\b", line))


def age_s(line):
    return float(found(r"after (\d+\.\d{3}) seconds from start", line))


def death_of(server, pid):
    return server.wait_log("child %d exited" % pid)[0]


def check_all_told(server, line, uri, method="POST"):
    """All but how it died and what it said."""
    path = uri.partition("?")[0]
    for needle in ("WARNING", "[pool www]", str(server.site.www) + path, uri, method):
        assert needle in line, (needle, line)
    assert 0 <= age_s(line) < 3600, line
    assert served(line) >= 0, line
    assert peak_mib(line) > 0, line


# ---- by itself ----

SEGV = """<?php
file_put_contents('php://stderr', "one thing\\nanother\\nthe end is near\\n");
posix_kill(posix_getpid(), SIGSEGV_NUMBER);
sleep(60);
""".replace("SIGSEGV_NUMBER", str(int(signal.SIGSEGV)))


def test_segfault_tells_everything(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    server.site.script("segv.php", SEGV)
    pids = [int(server.get("/pid.php").text) for _ in range(3)]
    assert len(set(pids)) == 1
    assert server.post("/segv.php?because=1", b"x").status == 502
    line = death_of(server, pids[0])
    check_all_told(server, line, "/segv.php?because=1")
    assert "signal 11 (SIGSEGV" in line, line
    assert served(line) == 3, line
    assert 4 < peak_mib(line) < 400, line
    assert "its last words: one thing | another | the end is near" in line, line
    assert WANT_OF_MEMORY not in line, line


def test_get_that_is_run_again_is_told_twice(h2fpm):
    server = h2fpm(pool={"pm.max_children": 2})
    server.site.script("segv.php", SEGV)
    assert server.get("/segv.php").status == 502
    wait_until(lambda: len(server.log_lines("exited", "/segv.php")) == 2, what="both deaths")
    for line in server.log_lines("exited", "/segv.php"):
        check_all_told(server, line, "/segv.php", "GET")
        assert "its last words: one thing | another | the end is near" in line, line


def test_only_the_last_lines_are_told(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1, "catch_workers_output": "no"})
    server.site.script(
        "talk.php",
        "<?php for ($i = 1; $i <= 50; $i++) file_put_contents('php://stderr', \"line $i\\n\");"
        "file_put_contents('php://stderr', \"odd \\033[1m\\n\\n\\nno newline\");"
        "posix_kill(posix_getpid(), 6);",
    )
    assert server.post("/talk.php", b"x").status == 502
    line = server.wait_log("exited", "/talk.php")[0]
    assert line.endswith("its last words: line 48 | line 49 | line 50 | odd \\x1b[1m | no newline"), line


def test_words_of_an_earlier_request_are_not_told(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    server.site.script("talk.php", "<?php file_put_contents('php://stderr', \"long ago\\n\"); echo getmypid();")
    pid = int(server.get("/talk.php").text)
    server.wait_log("long ago")
    assert server.post("/crash.php?signal=6&dir=%s" % server.site.data, b"x").status == 502
    line = death_of(server, pid)
    assert "long ago" not in line and served(line) == 1, line


EXITS = """#!/usr/bin/python3
import os, socket, sys
listener = socket.socket(fileno=0)
while True:
    conn, _ = listener.accept()
    while True:
        data = conn.recv(65536)
        if not data:
            break
        if data[1] == 9:  # FCGI_GET_VALUES: an empty FCGI_GET_VALUES_RESULT
            conn.sendall(bytes([1, 10, 0, 0, 0, 0, 0, 0]))
            continue
        print("cannot find my keys", file=sys.stderr, flush=True)
        os._exit(23)
"""


def test_exit_code_tells_everything(h2fpm):
    site = Site()
    worker = site.program("worker", EXITS)
    server = h2fpm(workdir=site, pool={"pm.max_children": 1, "worker.command": worker, "worker.spawn": "exec"})
    server.own_site = True
    pid = server.wait_workers(1)[0]
    assert server.post("/hello.php?keys", b"x").status == 502
    line = death_of(server, pid)
    check_all_told(server, line, "/hello.php?keys")
    assert "with code 23" in line, line
    assert served(line) == 0, line
    assert "its last words: cannot find my keys" in line, line
    assert WANT_OF_MEMORY not in line, line


# ---- killed ----


def test_kill_by_hand_is_not_laid_to_the_kernel(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    held = Held(server, "POST")
    os.kill(held.pid, signal.SIGKILL)
    assert held.conn.read_response().status == 502
    line = death_of(server, held.pid)
    check_all_told(server, line, "/gate.php")
    assert "signal 9 (SIGKILL)" in line and held.uri in line, line
    assert WANT_OF_MEMORY not in line, line


def test_idle_worker_killed_runs_nothing(h2fpm):
    server = h2fpm(pool={"pm.max_children": 1})
    pid = int(server.get("/pid.php").text)
    os.kill(pid, signal.SIGKILL)
    line = death_of(server, pid)
    assert "signal 9 (SIGKILL)" in line and served(line) == 1 and peak_mib(line) > 0, line
    assert "while it ran" not in line and WANT_OF_MEMORY not in line, line


# ---- by the kernel ----

LIMIT_BYTES = 256 << 20
# ?go=…: waits for that file first.
HOG = """<?php
ini_set('memory_limit', '-1');
file_put_contents('php://stderr', "hungry\\n");
while (isset($_GET['go']) && !file_exists($_GET['go'])) {
	usleep(10000);
	clearstatcache();
}
$all = [];
for ($i = 0; $i < 1024; $i++)
	$all[] = str_repeat('m', 1 << 20);
echo 'survived';
"""


def own_path(controller):
    """Our cgroup in the hierarchy of that controller; "": version 2's."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and ".." not in path:
            return path.removesuffix("/")
    return None


def mounted(path, version_1):
    """The directory of a cgroup of ours, or None: it is not mounted here."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split()
        root = root.removesuffix("/")
        right_one = kind == "cgroup" and "memory" in options.split(",") if version_1 else kind == "cgroup2"
        if right_one and path is not None and (path + "/").startswith(root + "/"):
            return pathlib.Path(point + path[len(root):])
    return None


class MemoryCgroup:
    """A cgroup of our own with a limit; version 1 or 2, wherever the memory
    controller is. It moves processes in and is gone at the end."""

    def __init__(self):
        self.dir = None
        try:
            if own_path("memory") is not None:
                self._make(mounted(own_path("memory"), True), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            else:
                self._make(self._parent_2(), "memory.max", "memory.swap.max")
        except OSError as error:
            self.remove()
            pytest.skip("no memory cgroup can be made: %s" % error)

    @staticmethod
    def _parent_2():
        """The nearest one above us that gives its children the controller."""
        here = mounted(own_path(""), False)
        while here is not None and (here / "cgroup.subtree_control").exists():
            if "memory" in (here / "cgroup.subtree_control").read_text().split():
                return here
            here = here.parent
        return None

    def _make(self, parent, limit, swap):
        if parent is None:
            raise FileNotFoundError("no cgroup hierarchy with the memory controller is mounted")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-test-", dir=parent))
        self.dir.chmod(0o755)  # the pool's user reads the counter
        (self.dir / limit).write_text(str(LIMIT_BYTES))
        if (self.dir / swap).exists():
            (self.dir / swap).write_text("0" if limit == "memory.max" else str(LIMIT_BYTES))

    def enter(self):
        """For the child of a fork."""
        (self.dir / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        name = "memory.events" if (self.dir / "memory.events").exists() else "memory.oom_control"
        return int(re.search(r"^oom_kill (\d+)$", (self.dir / name).read_text(), re.M).group(1))

    def remove(self):
        if self.dir is None:
            return
        wait_until(lambda: not (self.dir / "cgroup.procs").read_text(), what="an empty cgroup")
        self.dir.rmdir()
        self.dir = None


@pytest.fixture
def memory_cgroup():
    if not IS_ROOT:
        pytest.skip("a memory cgroup can be made by root only")
    cgroup = MemoryCgroup()
    yield cgroup
    cgroup.remove()


@pytest.fixture
def confined(memory_cgroup, h2fpm):
    """Starts h2fpm in that cgroup; it ends before the cgroup does."""

    def start(**pool):
        server = h2fpm(pool=pool, main={"watchdog.timeout": "60s"}, preexec=memory_cgroup.enter)
        server.site.script("hog.php", HOG)
        fds = pathlib.Path("/proc/%d/fd" % server.pool_pid)
        assert [fd for fd in fds.iterdir() if memory_cgroup.dir in fd.readlink().parents], "it reads no counter of ours"
        return server

    return start


def check_out_of_memory(server, pid):
    line = death_of(server, pid)
    check_all_told(server, line, "/hog.php")
    assert "signal 9 (SIGKILL)" in line and WANT_OF_MEMORY in line, line
    assert peak_mib(line) > 30, line
    assert "its last words: hungry" in line, line
    return line


def test_out_of_memory_is_told(confined, memory_cgroup):
    server = confined(**{"pm.max_children": 1})
    pid = int(server.get("/pid.php").text)
    assert server.post("/hog.php?much=1", b"x").status == 502
    assert memory_cgroup.kills() == 1
    line = check_out_of_memory(server, pid)
    assert "/hog.php?much=1" in line and served(line) == 1, line
    # and then somebody kills one by hand
    held = Held(server, "POST")
    os.kill(held.pid, signal.SIGKILL)
    assert held.conn.read_response().status == 502
    line = death_of(server, held.pid)
    assert "signal 9 (SIGKILL)" in line and WANT_OF_MEMORY not in line, line
    assert server.get().status == 200


def test_two_out_of_memory_at_once_are_both_told(confined, memory_cgroup):
    """The pool process sees both kills only when both are dead."""
    server = confined(**{"pm.max_children": 2})
    go = server.site.data / "go"
    pids, conns = server.wait_workers(2), []
    for _ in pids:
        conns.append(server.connect())
        params = server.params("/hog.php?go=%s" % go, "POST", CONTENT_LENGTH="1")
        conns[-1].send(fcgi.request(params, b"x"))
    wait_until(lambda: len(server.log_lines("hungry")) == 2, what="both scripts")
    pool = server.pool_pid
    os.kill(pool, signal.SIGSTOP)
    try:
        go.touch()
        wait_until(lambda: not any(alive(pid) for pid in pids), timeout=60, what="both dead")
    finally:
        os.kill(pool, signal.SIGCONT)
    assert [conn.read_response().status for conn in conns] == [502, 502]
    assert memory_cgroup.kills() == 2
    for pid in pids:
        check_out_of_memory(server, pid)


def test_kill_of_what_a_script_ran_is_not_the_workers_death(confined, memory_cgroup):
    server = confined(**{"pm.max_children": 1})
    server.site.script("segv.php", SEGV)
    server.site.script(
        "command.php",
        "<?php passthru(\"exec /usr/bin/python3 -c 'x = b\\\"m\\\" * (1 << 30)'\", $code); echo $code, ' ', getmypid();",
    )
    code, pid = server.get("/command.php").text.split()
    assert code != "0" and memory_cgroup.kills() == 1
    assert server.post("/segv.php", b"x").status == 502
    line = death_of(server, int(pid))
    assert "signal 11 (SIGSEGV" in line and WANT_OF_MEMORY not in line, line
