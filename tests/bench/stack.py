"""What the measurements run against: h2fpm and php-fpm with the same pool, each
behind its own port of one nginx, all in one temporary directory."""
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TOP / "tests" / "system"))

from harness import is_zygote, packet_sockets  # noqa: E402

H2FPM = os.environ.get("H2FPM", str(TOP / "build" / "h2fpm"))
WORKERS = 8
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

POOL = """[global]
error_log = {log}
daemonize = no
{options}
[bench]
{user}
listen = {socket}
{pm}
php_admin_value[post_max_size] = 0
php_admin_value[enable_post_data_reading] = 0
php_admin_value[max_execution_time] = 0
{more}
"""
STATIC = {"pm": "static", "pm.max_children": WORKERS}

NGINX = """{user}
daemon off;
worker_processes 2;
worker_rlimit_nofile {files};
pid {dir}/nginx.pid;
error_log {dir}/nginx.log crit;
events {{ worker_connections {connections}; }}
http {{
	client_body_temp_path {dir}/tmp/body; proxy_temp_path {dir}/tmp/proxy; fastcgi_temp_path {dir}/tmp/fastcgi;
	uwsgi_temp_path {dir}/tmp/uwsgi; scgi_temp_path {dir}/tmp/scgi;
	access_log off;
	ssl_certificate {dir}/cert.pem;
	ssl_certificate_key {dir}/key.pem;
	http2_max_concurrent_streams 256;
	keepalive_requests 1000000;
	client_max_body_size 0;
	fastcgi_read_timeout 300s;
	fastcgi_max_temp_file_size 0;
	root {dir}/www;
	include /etc/nginx/fastcgi_params;
	fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
	# Kept-alive connections for h2fpm; php-fpm is at its best without.
	upstream h2fpm {{ server unix:{dir}/run/h2fpm.sock; keepalive 1024; keepalive_requests 1000000; }}
	upstream fpm {{ server unix:{dir}/run/fpm.sock; }}
	server {{
		listen 127.0.0.1:{h2fpm_port} ssl http2; listen 127.0.0.1:{h2fpm_plain};
		location ~ \\.php$ {{ fastcgi_pass h2fpm; fastcgi_keep_conn on; }}
	}}
	server {{
		listen 127.0.0.1:{fpm_port} ssl http2; listen 127.0.0.1:{fpm_plain};
		location ~ \\.php$ {{ fastcgi_pass fpm; }}
	}}
}}
"""


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for probe in held:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in held]
    for probe in held:
        probe.close()
    return ports


def read_stat(pid):
    """Command name, parent, CPU seconds."""
    text = pathlib.Path("/proc/%d/stat" % pid).read_text()
    name = text[text.index("(") + 1:text.rindex(")")]
    fields = text[text.rindex(")") + 2:].split()
    return name, int(fields[1]), (int(fields[11]) + int(fields[12])) * TICK_S


def read_status(pid, name):
    for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise KeyError(name)


def children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                name, parent, _ = read_stat(int(entry.name))
                if parent == pid:
                    found.append((int(entry.name), name))
    return found


class Server:
    """One of the two: where it answers and which processes it is."""

    def __init__(self, name, title, port, plain, child):
        self.name, self.title, self.child = name, title, child
        self.url = "https://127.0.0.1:%d/" % port
        self.plain_url = "http://127.0.0.1:%d/" % plain

    def brokers(self):
        """The pool processes of h2fpm."""
        return [pid for pid, _ in children(self.child.pid)]

    def broker(self):
        """The one that has workers."""
        for pid in self.brokers():
            if children(pid):
                return pid
        raise RuntimeError("h2fpm has no pool process with workers")

    def workers(self):
        if self.name != "h2fpm":
            return [pid for pid, _ in children(self.child.pid)]
        sockets = packet_sockets()
        pids = [pid for broker in self.brokers() for pid, _ in children(broker)]
        return [pid for pid in pids if not is_zygote(pid, sockets)]

    def processes(self):
        """All of them."""
        found, seen = [self.child.pid], 0
        while seen < len(found):
            found += [pid for pid, _ in children(found[seen])]
            seen += 1
        return found

    def await_workers(self, count, timeout=60):
        deadline = time.monotonic() + timeout
        while len(self.workers()) != count:
            if time.monotonic() > deadline:
                raise RuntimeError("%s: %d workers, not %d" % (self.title, len(self.workers()), count))
            time.sleep(0.02)


class Stack:
    """pool: settings of both programs' pool; more: further lines of h2fpm's
    file; only: the one program that is wanted; options: [global] lines."""

    def __init__(self, pool=None, more="", only=None, options=""):
        self.pool_settings, self.more, self.only, self.options = pool or STATIC, more, only, options
        self.started = []
        self.dir = None

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.started):
            self.stop(child)
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def stop(self, child):
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()

    def start(self, *command):
        child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, start_new_session=True,
                                 env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        self.started.append(child)
        return child

    def set_up(self):
        soft_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_files, soft_files))
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-bench.", dir="/tmp"))
        self.dir.chmod(0o711)
        for name in ("run", "tmp"):
            (self.dir / name).mkdir()
        shutil.copytree(TOP / "tests/bench/www", self.dir / "www")
        for path in (self.dir / "www").rglob("*"):
            path.chmod(0o644)
        for path in (self.dir / "run", self.dir / "tmp", self.dir / "www"):
            path.chmod(0o755)
        self.make_certificate()
        ports = free_ports(4)
        root = os.geteuid() == 0
        (self.dir / "nginx.conf").write_text(NGINX.format(
            dir=self.dir, user="user www-data;" if root else "", files=soft_files, connections=soft_files // 2,
            h2fpm_port=ports[0], h2fpm_plain=ports[1], fpm_port=ports[2], fpm_plain=ports[3]))
        programs = {"h2fpm": H2FPM, "fpm": "php-fpm8.2"}
        if self.only:
            programs = {self.only: programs[self.only]}
        child = {name: self.start(program, "-F", "-y", self.pool(name, root)) for name, program in programs.items()}
        self.start("nginx", "-p", self.dir, "-c", self.dir / "nginx.conf", "-e", self.dir / "nginx.log")
        self.h2fpm = Server("h2fpm", "h2fpm", ports[0], ports[1], child.get("h2fpm"))
        self.fpm = Server("fpm", "php-fpm 8.2", ports[2], ports[3], child.get("fpm"))
        self.servers = [server for server in (self.h2fpm, self.fpm) if server.child]
        for server in self.servers:
            server.socket = self.dir / "run" / (server.name + ".sock")
            self.await_answer(server)

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-keyout", self.dir / "key.pem",
                        "-out", self.dir / "cert.pem"], check=True, capture_output=True, timeout=60)

    def pool(self, name, root):
        user = "user = www-data\ngroup = www-data\nlisten.owner = www-data\nlisten.group = www-data" if root else ""
        path = self.dir / (name + ".ini")
        settings = "\n".join("%s = %s" % item for item in self.pool_settings.items())
        more = self.more.format(dir=self.dir, user=user) if name == "h2fpm" else ""
        path.write_text(POOL.format(log=self.log(name), options=self.options, user=user, pm=settings, more=more,
                                    socket=self.dir / "run" / (name + ".sock")))
        return path

    def log(self, name="h2fpm"):
        return self.dir / (name + ".log")

    def await_answer(self, server):
        deadline = time.monotonic() + 20
        while curl(server.url + "hello.php").stdout != "Hello\n":
            if server.child.poll() is not None or time.monotonic() > deadline:
                log = self.log(server.name)
                raise RuntimeError("%s does not answer:\n%s" % (server.title, log.read_text() if log.exists() else ""))
            time.sleep(0.1)


def curl(url, *options, timeout=300):
    return subprocess.run(["curl", "-sk", "--noproxy", "*", *options, url], capture_output=True, text=True,
                          timeout=timeout)
