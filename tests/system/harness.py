"""Starts and looks at the real programs: h2fpm, nginx, and (as the model to
compare with) php-fpm. Everything lives in a temporary directory of its own
that the pool's user can reach, on Unix sockets or on ports that were free."""
import errno
import fcntl
import os
import pathlib
import pwd
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import termios
import time

import fcgi

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = os.path.abspath(os.environ.get("H2FPM", str(ROOT / "build" / "h2fpm")))
IS_ROOT = os.geteuid() == 0
POOL_USER = "www-data"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# a sanitizer's own memory would drown what is measured
SANITIZED = os.path.exists(BINARY) and b"__asan_init" in pathlib.Path(BINARY).read_bytes()


def wait_until(condition, timeout=15, what=None):
    """Awaits a true value of condition() and returns it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s: %s" % (timeout, what or condition))
        time.sleep(0.02)


_reserved = []  # sockets


def _reserve(port):
    """Until we end, against all other runs: whoever has the name has the port."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind("\0h2fpm-test-port-%d" % port)
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    return True


def free_port(host="127.0.0.1"):
    """One of those that the kernel gives to nobody who did not ask for it."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(range(10240, max(first_given, 10240 + 1000)), 1000):
        with socket.socket(family) as s:
            try:
                s.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            if _reserve(port):
                return port
    raise AssertionError("no free port")


def unread(conn):
    """How much of what was sent the other end has not read yet: of a Unix socket
    only, as TCP's counts what is on its way."""
    assert conn.sock.family == socket.AF_UNIX
    return struct.unpack("i", fcntl.ioctl(conn.sock, termios.TIOCOUTQ, bytes(4)))[0]


def wait_taken(*conns):
    """Awaits that requests are read, which are in the queue then, or run."""
    wait_until(lambda: not any(map(unread, conns)), what="all requests read")


def have_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


# ---- /proc ----


def proc_status(pid):
    fields = {}
    for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.strip()
    return fields


def proc_stat(pid):
    """(state, ppid, cpu seconds), or None when the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, encoding="latin-1") as file:
            rest = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return rest[0], int(rest[1]), (int(rest[11]) + int(rest[12])) / CLOCK_TICKS


def alive(pid):
    stat = proc_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def family_tree():
    """{pid: [(a child's pid, its state)…]} of the whole machine."""
    tree = {}
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        stat = proc_stat(pid)
        if stat:
            tree.setdefault(stat[1], []).append((pid, stat[0]))
    return tree


def children(pid):
    return [child for child, state in family_tree().get(pid, []) if state not in "ZX"]


def descendants(pid):
    tree = family_tree()

    def below(pid):
        alive = [child for child, state in tree.get(pid, []) if state not in "ZX"]
        return [one for child in alive for one in [child, *below(child)]]

    return below(pid)


def cpu_seconds(pid):
    return proc_stat(pid)[2]


def is_pool_process(pid):
    try:
        return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().startswith(b"h2fpm: pool ")
    except OSError:
        return False


def zombies(pid):
    """Descendants that are dead and were not waited for."""
    tree = family_tree()

    def below(pid):
        return [one for child, state in tree.get(pid, []) for one in ([child] if state in "ZX" else below(child))]

    return sorted(below(pid))


def packet_sockets():
    """Inodes of the machine's SOCK_SEQPACKET sockets."""
    rows = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {"socket:[%s]" % row[6] for row in rows if row[4] == "0005"}


def is_zygote(pid, sockets):
    """A pool's child that takes orders from it over such a socket."""
    try:
        fds = ["/proc/%d/fd/%s" % (pid, fd) for fd in os.listdir("/proc/%d/fd" % pid)]
    except OSError:
        return False
    for fd in fds:
        try:
            if os.readlink(fd) in sockets:
                return True
        except OSError:
            pass
    return False


def check_peak_memory(pid, limit_kib):
    peak = int(proc_status(pid)["VmHWM"].split()[0])
    assert SANITIZED or peak < limit_kib, "%d KiB of memory" % peak


# ---- temporary directories ----


class Site:
    """A directory the pool's user can use: www/ with the scripts, run/ for
    sockets, spool/ for bodies, data/ for what scripts write."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-test-"))
        self.dir.chmod(0o755)
        self.www = self.dir / "www"
        shutil.copytree(HERE / "www", self.www)
        for path in [self.www, *self.www.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        for name in ("run", "spool", "data", "logs"):
            (self.dir / name).mkdir()
            self.give(self.dir / name)
        self.run, self.spool, self.data, self.logs = (self.dir / n for n in ("run", "spool", "data", "logs"))

    @staticmethod
    def give(path):
        """To the pool's user."""
        path.chmod(0o755)
        if IS_ROOT:
            user = pwd.getpwnam(POOL_USER)
            os.chown(path, user.pw_uid, user.pw_gid)

    def script(self, name, text):
        path = self.www / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
        return path

    def program(self, name, text):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


# ---- FastCGI servers ----


class Server:
    """What tests ask of a running FastCGI server, whoever it is."""

    address = None
    site = None

    def params(self, uri="/hello.php", method="GET", script=None, **extra):
        path, _, query = uri.partition("?")
        params = {
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_PROTOCOL": "HTTP/2.0",
            "SERVER_SOFTWARE": "test",
            "SERVER_NAME": "localhost",
            "SERVER_ADDR": "127.0.0.1",
            "SERVER_PORT": "443",
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_PORT": "40000",
            "REQUEST_METHOD": method,
            "REQUEST_URI": uri,
            "QUERY_STRING": query,
            "DOCUMENT_ROOT": str(self.site.www),
            "DOCUMENT_URI": path,
            "SCRIPT_NAME": path,
            "SCRIPT_FILENAME": str(self.site.www) + path if script is None else script,
        }
        params.update(extra)
        return {name: value for name, value in params.items() if value is not None}

    def connect(self, **options):
        return fcgi.Conn(self.address, **options)

    def get(self, uri="/hello.php", timeout=20, **extra):
        with self.connect(timeout=timeout) as conn:
            return conn.request(self.params(uri, **extra), keep=False)

    def post(self, uri, body, timeout=60, **extra):
        extra.setdefault("CONTENT_LENGTH", str(len(body)))
        extra.setdefault("CONTENT_TYPE", "application/octet-stream")
        with self.connect(timeout=timeout) as conn:
            return conn.request(self.params(uri, "POST", **extra), body, keep=False)

    def start_get(self, uri, **extra):
        """Sends a request and leaves the answer to the caller."""
        conn = self.connect()
        conn.send(fcgi.request(self.params(uri, **extra), keep=True))
        return conn


def limit_files(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def limit_file_size(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class H2fpm(Server):
    """One h2fpm with one pool, [www]. Pool directives are given as a dict;
    names that are not given have the defaults below."""

    def __init__(self, workdir=None, listen=None, pool=None, more="", main=None, options=(), preexec=None, start=True):
        self.site = workdir or Site()
        self.own_site = workdir is None
        self.socket = str(self.site.run / "www.sock")
        self.address = self.socket if listen is None else self._parse(listen)
        self.log_path = self.site.logs / "error.log"
        self.access_path = self.site.logs / "access.log"
        self.conf = self.site.dir / "pool.ini"
        self.global_settings = {
            "error_log": self.log_path,
            "log_level": "notice",
            "daemonize": "no",
            "watchdog.timeout": "4s",
        }
        self.global_settings.update(main or {})
        self.settings = {
            "listen": listen or self.socket,
            "pm": "static",
            "pm.max_children": 2,
            "access.log": self.access_path,
            "request.spool_dir": self.site.spool,
            "catch_workers_output": "yes",
        }
        if IS_ROOT and "-R" not in options:
            self.settings.update({"user": POOL_USER, "group": POOL_USER})
        if IS_ROOT and listen is None:
            self.settings.update({"listen.owner": POOL_USER, "listen.group": POOL_USER})
        self.settings.update(pool or {})
        self.more = more
        self.options = list(options)
        self.preexec = preexec
        self.process = None
        self.seen = set()
        self.write_conf()
        if start:
            try:
                self.start()
            except BaseException:
                self.kill()
                self.site.remove()
                raise

    @staticmethod
    def _parse(listen):
        host, _, port = str(listen).rpartition(":")
        return (host.strip("[]") or "127.0.0.1", int(port))

    def write_conf(self):
        lines = ["[global]"]
        lines += ["%s = %s" % item for item in self.global_settings.items() if item[1] is not None]
        lines += ["[www]"]
        lines += ["%s = %s" % item for item in self.settings.items() if item[1] is not None]
        self.conf.write_text("\n".join(lines) + "\n" + self.more + "\n")

    def launch(self, *arguments, **options):
        """Runs the binary with other arguments to its end."""
        return subprocess.run(
            [BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=30, check=False, **options
        )

    def start(self, wait=True):
        self.output = open(self.site.logs / "output", "ab")
        self.process = subprocess.Popen(
            [BINARY, "-F", *self.options, "-y", str(self.conf)],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            preexec_fn=self.preexec,
        )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError("exit %d at start:\n%s" % (self.process.returncode, self.all_output()))
            return "ready to handle connections" in self.log()

        wait_until(ready, what="ready to handle connections")
        wait_until(lambda: self.pool_pids(), what="a pool process")

    # what it says

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_lines(self, *needles):
        return [line for line in self.log().splitlines() if all(str(n) in line for n in needles)]

    def wait_log(self, *needles, timeout=15):
        return wait_until(lambda: self.log_lines(*needles), timeout, "a log line with %r in:\n%s" % (needles, self.log()))

    def all_output(self):
        output = self.site.logs / "output"
        return self.log() + (output.read_text(errors="replace") if output.exists() else "")

    def access_lines(self):
        return self.access_path.read_text(errors="replace").splitlines() if self.access_path.exists() else []

    def wait_access(self, count):
        wait_until(lambda: len(self.access_lines()) >= count, what="%d access log lines" % count)
        return self.access_lines()

    # its processes

    @property
    def master(self):
        return self.process.pid

    def pool_pids(self):
        """Without what a dead one left to the master, which is killed at once."""
        pids = [pid for pid in children(self.master) if is_pool_process(pid)]
        self.seen.update(pids)
        return pids

    @property
    def pool_pid(self):
        pids = self.pool_pids()
        assert len(pids) == 1, "pool processes: %r" % pids
        return pids[0]

    def connections(self):
        """Inodes of the pool's ends of those that are open, over its Unix socket."""
        rows = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
        return {row[6] for row in rows if row[5] == "03" and row[7:] == [self.address]}

    def _pool_children(self, zygotes):
        sockets = packet_sockets()
        pids = [pid for pool in self.pool_pids() for pid in children(pool)]
        self.seen.update(pids)
        return [pid for pid in pids if is_zygote(pid, sockets) == zygotes and alive(pid)]

    def workers(self):
        return self._pool_children(zygotes=False)

    def zygotes(self):
        return self._pool_children(zygotes=True)

    def wait_zygote(self, without=()):
        """Awaits that there is one zygote alone, none of those."""

        def right():
            pids = self.zygotes()
            return pids[0] if len(pids) == 1 and pids[0] not in without else None

        return wait_until(right, what="a zygote:\n" + self.log())

    def wait_workers(self, count=None, without=(), timeout=15):
        """Awaits so many workers, none of them among without."""
        count = self.settings["pm.max_children"] if count is None else count

        def right():
            pids = self.workers()
            return (pids,) if len(pids) == count and not set(pids) & set(without) else None

        return wait_until(right, timeout, "%d workers" % count)[0]

    def idle_pids(self):
        """Pids that answer, by asking until each worker has."""
        return {int(self.get("/pid.php").text) for _ in range(2)}

    # its end

    def stop(self, how=signal.SIGTERM, status=0, timeout=15):
        """Stops it and checks that nothing of it is left."""
        if self.process is None:
            return
        try:
            if self.process.poll() is None:
                self.seen.update(descendants(self.master))
                self.process.send_signal(how)
            got = self.process.wait(timeout)
            assert got == status, "exit %r, not %r:\n%s" % (got, status, self.all_output())
            self.check_nothing_left()
        finally:
            self.kill()

    def check_nothing_left(self, sockets=True):
        wait_until(lambda: not [p for p in self.seen if alive(p)], what="no process left of %r" % self.seen)
        if sockets and isinstance(self.address, str):
            assert not os.path.exists(self.address), "socket file left"
        assert list(self.site.spool.iterdir()) == [], "spool files left"

    def kill(self):
        """For the end of a test that failed: whatever still runs goes."""
        if self.process is None:
            return
        for pid in [self.master] + sorted(self.seen):
            ours = pid == self.master or self._is_ours(pid)
            if ours and alive(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait(10)
        self.output.close()
        self.process = None

    def _is_ours(self, pid):
        """A pid may have been reused: ours names our directory or our master
        in its parents."""
        try:
            command = pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
            files = os.readlink("/proc/%d/exe" % pid)
        except OSError:
            return False
        return b"h2fpm" in command or "php-cgi" in files or str(self.site.dir) in files

    def close(self):
        try:
            self.stop()
        finally:
            if self.own_site:
                self.site.remove()


class OtherPool(Server):
    """A further pool of a server that is not started yet: a section is added
    to its file."""

    def __init__(self, server, name="other", **pool):
        self.site = server.site
        self.address = str(self.site.run / (name + ".sock"))
        settings = {"listen": self.address, "pm": "static", "pm.max_children": 2, "catch_workers_output": "yes"}
        settings["request.spool_dir"] = self.site.spool
        if IS_ROOT:
            settings.update({"user": POOL_USER, "group": POOL_USER})
            settings.update({"listen.owner": POOL_USER, "listen.group": POOL_USER})
        settings.update({key.replace("__", "."): value for key, value in pool.items()})
        server.more += "\n[%s]\n" % name + "\n".join("%s = %s" % item for item in settings.items())
        server.write_conf()


class PhpFpm(Server):
    """php-fpm itself on the same scripts, where a test asks the model."""

    BINARY = shutil.which("php-fpm8.2") or "/usr/sbin/php-fpm8.2"

    def __init__(self, pool=None):
        self.site = Site()
        self.address = str(self.site.run / "fpm.sock")
        self.access_path = self.site.logs / "access.log"
        settings = {"listen": self.address, "pm": "static", "pm.max_children": 2, "access.log": self.access_path}
        if IS_ROOT:
            settings.update({"user": POOL_USER, "group": POOL_USER})
        settings.update(pool or {})
        conf = self.site.dir / "fpm.conf"
        lines = ["[global]", "error_log = %s" % (self.site.logs / "error.log"), "daemonize = no", "[www]"]
        lines += ["%s = %s" % item for item in settings.items()]
        conf.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen([self.BINARY, "-F", "-y", str(conf)], stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(self.address), what="php-fpm's socket")

    def access_lines(self):
        return self.access_path.read_text(errors="replace").splitlines()

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.site.remove()


# ---- HTTP/2 front ends ----


class WebServer:
    """What tests ask of a running HTTP/2 front end, whoever it is."""

    cert = None  # a directory; made once by conftest
    dir = None
    port = None
    url = None
    process = None

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError("the web server ended: " + self.log())
        try:
            socket.create_connection(("127.0.0.1", self.port), 2).close()
            return True
        except OSError:
            return False

    def log(self):
        path = self.dir / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def curl(self, uri, *arguments, timeout=60):
        """(status, headers, body) of a request over HTTP/2."""
        head, body = self.dir / "head", self.dir / "body.out"
        command = ["curl", "-sk", "--http2", "--max-time", str(timeout), "-D", str(head), "-o", str(body)]
        command += ["-w", "%{http_version} %{http_code}", *map(str, arguments), self.url + uri]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout + 5, check=False)
        assert done.returncode == 0, "curl: exit %d %s %s" % (done.returncode, done.stderr, self.log())
        version, status = done.stdout.split()
        assert version == "2", "not HTTP/2: " + version
        headers = {}
        for line in head.read_text().splitlines():
            name, colon, value = line.partition(": ")
            if colon:
                headers[name.lower()] = value
        return int(status), headers, body.read_bytes() if body.exists() else b""

    def h2load(self, uri, requests, clients, streams, timeout=120):
        """{'2xx': n, '5xx': n, 'failed': n, …} of a run of h2load."""
        command = ["h2load", "-n", requests, "-c", clients, "-m", streams, self.url + uri]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=True
        )
        return parse_h2load(done.stdout)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        finally:
            self.process.kill()
            shutil.rmtree(self.dir, ignore_errors=True)


# ---- nginx ----

NGINX_CONF = """
%(user)s
worker_processes 1;
worker_rlimit_nofile %(files)d;
daemon off;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log;
events { worker_connections 4096; }
http {
	access_log off;
	client_max_body_size 0;
	client_body_temp_path %(dir)s/body;
	fastcgi_temp_path %(dir)s/fastcgi;
	proxy_temp_path %(dir)s/proxy;
	uwsgi_temp_path %(dir)s/uwsgi;
	scgi_temp_path %(dir)s/scgi;
	types { text/plain txt; }
	upstream php {
		%(upstream)s
		keepalive %(keepalive)d;
		keepalive_requests 1000000;
	}
	server {
		listen 127.0.0.1:%(port)d ssl http2 backlog=4096;
		server_name localhost;
		http2_max_concurrent_streams 1000;
		keepalive_requests 1000000;
		ssl_certificate %(cert)s/cert.pem;
		ssl_certificate_key %(cert)s/key.pem;
		root %(www)s;
		location / {
			fastcgi_pass php;
			fastcgi_keep_conn on;
			fastcgi_request_buffering %(request_buffering)s;
			fastcgi_buffering %(buffering)s;
			fastcgi_read_timeout 60s;
			%(more)s
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_param QUERY_STRING $query_string;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param CONTENT_TYPE $content_type;
			fastcgi_param CONTENT_LENGTH $content_length;
			fastcgi_param SCRIPT_NAME $fastcgi_script_name;
			fastcgi_param REQUEST_URI $request_uri;
			fastcgi_param DOCUMENT_URI $document_uri;
			fastcgi_param DOCUMENT_ROOT $document_root;
			fastcgi_param SERVER_PROTOCOL $server_protocol;
			fastcgi_param HTTPS $https if_not_empty;
			fastcgi_param REMOTE_ADDR $remote_addr;
			fastcgi_param REMOTE_PORT $remote_port;
			fastcgi_param SERVER_NAME $server_name;
		}
	}
}
"""


class Nginx(WebServer):
    """nginx with TLS and HTTP/2 in front of a FastCGI server."""

    def __init__(self, server, keepalive=8, request_buffering="on", buffering="on", tries=1):
        """tries > 1: a GET without an answer is tried again, so often in all."""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-nginx-"))
        self.dir.chmod(0o755)
        self.port = free_port()
        self.url = "https://localhost:%d" % self.port
        upstream = "unix:" + server.address if isinstance(server.address, str) else "%s:%d" % server.address
        values = {
            "user": "user %s;" % POOL_USER if IS_ROOT else "",
            "dir": self.dir,
            "upstream": "server %s max_fails=0;\n" % upstream * tries if tries > 1 else "server %s;" % upstream,
            "more": "fastcgi_next_upstream error timeout invalid_header;" if tries > 1 else "",
            "keepalive": keepalive,
            "port": self.port,
            "cert": self.cert,
            "www": server.site.www,
            "request_buffering": request_buffering,
            "buffering": buffering,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        }
        (self.dir / "nginx.conf").write_text(NGINX_CONF % values)
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen(
            [nginx, "-p", str(self.dir), "-e", str(self.dir / "error.log"), "-c", str(self.dir / "nginx.conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, what="nginx: " + self.log())


def parse_h2load(text):
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    totals = re.search(r"requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    assert codes and totals, "h2load said:\n" + text
    found = dict(zip(("2xx", "3xx", "4xx", "5xx"), map(int, codes.groups())))
    found.update(zip(("total", "succeeded", "failed", "errored", "timeout"), map(int, totals.groups())))
    return found


def make_certificate(directory):
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [*command.split(), "-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")],
        check=True,
        capture_output=True,
        timeout=60,
    )
    ssl.create_default_context().load_cert_chain(directory / "cert.pem", directory / "key.pem")


class Held:
    """A request whose script waits until it is released: the way to keep a
    worker busy without a sleep."""

    count = 0

    def __init__(self, server, method="GET", keep=True, wait=True, **extra):
        Held.count += 1
        self.id = "held%d" % Held.count
        self.dir = server.site.data
        self.uri = "/gate.php?dir=%s&id=%s" % (self.dir, self.id)
        self.conn = server.connect()
        body = b"x=1" if method == "POST" else b""
        if body:
            extra.update(CONTENT_LENGTH=str(len(body)), CONTENT_TYPE="application/x-www-form-urlencoded")
        self.conn.send(fcgi.request(server.params(self.uri, method, **extra), body, keep=keep))
        if wait:
            self.pid = self.wait_started()[0]

    def started(self):
        """Pids of the workers that began it."""
        return [int(path.suffix[1:]) for path in self.dir.glob(self.id + ".started.*")]

    def wait_started(self, count=1):
        return wait_until(lambda: len(self.started()) >= count and self.started(), what="script %s started" % self.id)

    def release(self):
        (self.dir / (self.id + ".go")).touch()

    def finish(self):
        self.release()
        return self.conn.read_response()


def pattern(size, seed="x"):
    """What www/download.php sends."""
    import hashlib

    block = b"".join(hashlib.sha256(b"%s:%d" % (seed.encode(), n)).digest() for n in range(2048))
    return (block * (size // len(block) + 1))[:size]
