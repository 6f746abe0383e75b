"""The gate alone, in a program that does what php-cgi does, with the test in
the broker's place."""
import ctypes
import errno
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess

import pytest

from harness import BINARY, IS_ROOT, children, proc_stat, wait_until, zombies

GATE = pathlib.Path(BINARY).with_name("gate.so")
LINK_FD, SPARE_FD = 3, 4
EX_OK, EX_CONFIG = 0, 78
PACKET = struct.Struct("=IIi")
NOBODY_ELSE = 54321  # a user with no other process

PREFORKER = """
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>
int executor_globals;
int php_module_startup(void) { return 0; }
static void clean_up(int sig) { (void)sig; kill(0, SIGTERM); }
static void say_goodbye(void) { (void)!write(2, "g", 1); }
static void on_term(int sig) { (void)sig; }
/* As php-cgi: takes connections until SIGTERM, reads a byte from each. */
static int serve(const char *what)
{
	struct sigaction action = {.sa_handler = on_term};
	char c;
	sigaction(SIGTERM, &action, NULL);
	atexit(say_goodbye);
	if (strcmp(what, "opens a file") == 0)
		open("/dev/null", O_RDONLY);
	for (;;) {
		(void)!write(2, "a", 1);
		int fd = accept(0, NULL, NULL);
		if (fd < 0)
			return errno == EINTR ? 9 : 8;
		(void)!write(2, "c", 1);
		while (read(fd, &c, 1) < 0 && errno == EINTR)
			;
		close(fd);
	}
}
int main(int argc, char **argv)
{
	siginfo_t info;
	if (argc > 1 && strcmp(argv[1], "daemon") == 0 && fork() == 0) {
		setsid();
		if (fork() == 0)
			_exit(0);
		_exit(0);
	}
	waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
	if (!getenv("PHP_FCGI_CHILDREN"))
		return 3;
	setsid();
	signal(SIGTERM, clean_up);
	if (fork() != 0)
		return 4; /* the gate never lets it */
	if (getenv("PHP_FCGI_CHILDREN") || getenv("H2FPM_GATE"))
		return 5;
	if (argc > 2)
		return serve(argv[2]);
	char c;
	return write(2, "w", 1) == 1 && read(0, &c, 1) >= 0 ? 6 : 7;
}
"""


@pytest.fixture(scope="session")
def preforker(shared_dir):
    if not GATE.exists():
        pytest.skip("no gate.so beside h2fpm")
    source, out = shared_dir / "preforker.c", shared_dir / "preforker"
    source.write_text(PREFORKER)
    subprocess.run(["cc", "-rdynamic", "-O1", "-o", str(out), str(source)], check=True, timeout=60)
    gate = shared_dir / "gate.so"
    gate.write_bytes(GATE.read_bytes())
    out.chmod(0o755)
    gate.chmod(0o755)
    return out, gate


def adopt_orphans(on):
    assert ctypes.CDLL(None, use_errno=True).prctl(36, int(on), 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


class Zygote:
    """Takes the broker's place."""

    def __init__(self, program, *arguments, preexec=None, **environ):
        adopt_orphans(True)
        path, gate = program
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.link.settimeout(20)
        environ = {"H2FPM_GATE": str(os.getpid()), "LD_PRELOAD": str(gate), "H2FPM_PRELOAD": "/nowhere", **environ}

        def place():
            os.dup2(theirs.fileno(), LINK_FD)
            os.dup2(os.open("/dev/null", os.O_RDONLY), SPARE_FD)
            if preexec:
                preexec()

        self.process = subprocess.Popen(
            [path, *arguments], env=environ, preexec_fn=place, pass_fds=(LINK_FD, SPARE_FD), close_fds=True
        )
        theirs.close()

    def hear(self):
        """(kind, order, error, the sender's pid)"""
        data, control, _, _ = self.link.recvmsg(100, 1000)
        if not data:
            return None
        kind, order, error = PACKET.unpack(data)
        pids = [struct.unpack("=iII", c[2])[0] for c in control if c[1] == socket.SCM_CREDENTIALS]
        return chr(kind), order, error, pids[0]

    def ready(self):
        assert [self.hear()[0], self.hear()[0]] == ["L", "R"]
        return self

    def order(self, number, *fds, kind="S"):
        socket.send_fds(self.link, [PACKET.pack(ord(kind), number, 0)], list(fds))

    def close(self):
        self.link.close()
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()


@pytest.fixture
def zygote(preforker):
    made = []

    def start(*arguments, **options):
        made.append(Zygote(preforker, *arguments, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()
    adopt_orphans(False)  # other tests' orphans are to go to another session


def ends():
    """The worker's ends, (0, 2), and ours."""
    mine, zero = socket.socketpair()
    read, write = os.pipe()
    return (zero.fileno(), write), (mine, zero, read, write)


def bear(z, number):
    """An order, and the worker that answers it, as our child."""
    fds, (mine, zero, read, write) = ends()
    z.order(number, *fds)
    kind, got, _, pid = z.hear()
    assert (kind, got) == ("B", number)
    zero.close()
    os.close(write)
    return pid, mine, read


def test_gate_makes_each_ordered_worker_our_child(zygote):
    z = zygote().ready()
    for number in (1, 2, 70000):
        pid, mine, read = bear(z, number)
        assert os.read(read, 1) == b"w"
        assert proc_stat(pid)[1] == os.getpid()
        assert os.getpgid(pid) == os.getpgid(z.process.pid) and os.getsid(pid) == os.getsid(0)
        assert children(z.process.pid) == []
        mine.close()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
        assert os.read(read, 1) == b""  # nobody else holds it
        os.close(read)
    assert z.close() == EX_OK


def test_gate_ends_its_process_when_the_broker_is_gone(zygote):
    assert zygote().ready().close() == EX_OK


@pytest.mark.parametrize("what", ["short", "long", "kind", "no descriptors", "one descriptor"])
def test_gate_takes_no_other_order(zygote, what):
    z = zygote().ready()
    fds, mine = ends()
    if what == "short":
        z.link.send(b"S")
    elif what == "kind":
        z.order(1, *fds, kind="X")
    elif what == "no descriptors":
        z.link.send(PACKET.pack(ord("S"), 1, 0))
    elif what == "one descriptor":
        z.order(1, fds[0])
    else:
        z.link.send(PACKET.pack(ord("S"), 1, 0) + b"x")
    assert z.hear() is None
    assert z.close() == EX_OK
    assert mine


@pytest.mark.skipif(not IS_ROOT, reason="only root can be a user of its own")
def test_gate_says_when_it_cannot_fork(zygote):
    def limit():
        os.setresuid(NOBODY_ELSE, NOBODY_ELSE, NOBODY_ELSE)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    z = zygote(preexec=limit).ready()
    for number in (1, 2):
        fds, mine = ends()
        z.order(number, *fds)
        assert z.hear()[:3] == ("F", number, errno.EAGAIN)
        assert mine
    assert z.close() == EX_OK


@pytest.mark.skipif(not IS_ROOT, reason="only root can be a user of its own")
def test_gate_says_when_the_one_in_between_cannot_fork(zygote):
    def limit():
        os.setresuid(NOBODY_ELSE, NOBODY_ELSE, NOBODY_ELSE)
        resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))

    z = zygote(preexec=limit).ready()
    for number in (1, 2):
        fds, mine = ends()
        z.order(number, *fds)
        assert z.hear()[:3] == ("F", number, errno.EAGAIN)
        assert mine
    assert children(z.process.pid) == []
    assert z.close() == EX_OK


def test_gate_ends_a_worker_that_it_cannot_confine(zygote):
    z = zygote(H2FPM_CHDIR="/nowhere").ready()
    pid, mine, read = bear(z, 1)
    assert os.read(read, 100) == b"chdir: No such file or directory\n"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == EX_CONFIG
    os.close(read)
    mine.close()


def test_gate_is_not_in_children_of_before(zygote):
    """They call setsid() and fork() as php-cgi does, before it."""
    z = zygote("daemon").ready()
    pid, mine, read = bear(z, 1)
    assert os.read(read, 1) == b"w"
    wait_until(lambda: zombies(z.process.pid) == [])  # they are waited for as well
    mine.close()
    os.waitpid(pid, 0)
    os.close(read)
    assert z.close() == EX_OK


def bear_server(z, listener):
    read, write = os.pipe()
    z.order(1, listener.fileno(), write)
    kind, number, _, pid = z.hear()
    assert (kind, number) == ("B", 1)
    os.close(write)
    return pid, read


def read_to_end(fd):
    with open(fd, "rb") as file:
        return file.read()


LEAVE = signal.SIGRTMIN + 5


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


def left(pid, read):
    """How it ended, and what it said before."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), read_to_end(read)


@pytest.mark.parametrize("what, goes", [("nothing", (0, b"")), ("opens a file", (9, b"g"))])
def test_idle_worker_leaves_at_once_unless_it_holds_something(zygote, listener, what, goes):
    """Without the program's own end where there is nothing to take leave of."""
    pid, read = bear_server(zygote("-", what).ready(), listener)
    assert os.read(read, 1) == b"a"
    wait_until(lambda: proc_stat(pid)[0] == "S", what="it waits in accept()")
    os.kill(pid, LEAVE)
    assert left(pid, read) == goes


@pytest.mark.parametrize("what, goes", [("nothing", (0, b"a")), ("opens a file", (9, b"ag"))])
def test_worker_with_a_connection_leaves_when_it_is_closed(zygote, listener, what, goes):
    with socket.socket(socket.AF_UNIX) as client:
        pid, read = bear_server(zygote("-", what).ready(), listener)
        client.connect(listener.getsockname())
        assert os.read(read, 1) + os.read(read, 1) == b"ac"
        wait_until(lambda: proc_stat(pid)[0] == "S", what="it waits for a byte")
        os.kill(pid, LEAVE)
    assert left(pid, read) == goes
