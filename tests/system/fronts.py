"""The HTTP/2 front ends as etc/ sets them up: each is started from its example
with the test's names in it, within what its distribution's own configuration
would be, as far as that is needed. Nothing outside its directory is used."""
import pathlib
import shutil
import socket
import subprocess
import tempfile

from harness import IS_ROOT, POOL_USER, ROOT, Site, WebServer, free_port, wait_until

EXAMPLE = {
    "/run/h2fpm/www.sock": "%(socket)s",
    "/etc/ssl/certs/example.org.pem": "%(cert)s/cert.pem",
    "/etc/ssl/private/example.org.key": "%(cert)s/key.pem",
    "/var/www/example.org": "%(www)s",
}


class ExampleServer(WebServer):
    name = None
    example = None  # below etc/
    common = EXAMPLE
    replaced = {}  # what else the example must hold: with what it is replaced
    main = "%(example)s"  # the configuration around it
    keeps_connections = False
    logs_cut = None  # what it says of an answer cut short, where it does not tell the browser

    def __init__(self, server):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-%s-" % self.name))
        Site.give(self.dir)
        self.port = free_port()
        self.url = "https://localhost:%d" % self.port
        try:
            self._start(server)
        except BaseException:
            shutil.rmtree(self.dir, ignore_errors=True)
            raise

    def _start(self, server):
        names = {"socket": server.address, "cert": self.cert, "www": server.site.www, "dir": self.dir}
        names.update(port=self.port, example=self.dir / "example.conf")
        (self.dir / "example.conf").write_text(self._adapted(names))
        (self.dir / "main.conf").write_text(self.main % names)
        program = shutil.which(self.command[0], path="/usr/sbin:/usr/bin:/usr/local/bin")
        assert program, "%s is not installed (etc/deps.sh test)" % self.command[0]
        options = {"user": POOL_USER, "group": POOL_USER, "extra_groups": []} if IS_ROOT else {}
        with open(self.dir / "output", "wb") as output:
            self.process = subprocess.Popen(
                [program, *(part % names for part in self.command[1:])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.dir,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.dir)},
                **options,
            )
        try:
            wait_until(self._answers, what=self.name)
        except BaseException as error:
            self.process.kill()
            self.process.wait()
            raise AssertionError(self.log()) from error

    def _adapted(self, names):
        text = (ROOT / "etc" / self.example).read_text()
        for old, new in {**self.common, **self.replaced}.items():
            assert old in text, "%s has no %r" % (self.example, old)
            text = text.replace(old, new % names)
        return text.replace("example.org", "localhost")

    def log(self):
        paths = [self.dir / "error.log", self.dir / "output"]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())


class NginxExample(ExampleServer):
    name = "nginx"
    example = "nginx/h2fpm.conf"
    keeps_connections = True
    command = ["nginx", "-p", "%(dir)s", "-e", "%(dir)s/error.log", "-c", "%(dir)s/main.conf"]
    replaced = {
        "listen 443 ssl http2;": "listen 127.0.0.1:%(port)d ssl http2;",
        "listen [::]:443 ssl http2;": "",
        "include fastcgi_params;": "include /etc/nginx/fastcgi_params;",
    }
    main = """
daemon off;
worker_processes 1;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %(dir)s/body;
	fastcgi_temp_path %(dir)s/fastcgi;
	proxy_temp_path %(dir)s/proxy;
	uwsgi_temp_path %(dir)s/uwsgi;
	scgi_temp_path %(dir)s/scgi;
	include %(example)s;
}
"""


class LighttpdExample(ExampleServer):
    name = "lighttpd"
    example = "lighttpd/h2fpm.conf"
    logs_cut = "response already sent out, but backend returned error"
    command = ["lighttpd", "-D", "-f", "%(dir)s/main.conf"]
    replaced = {
        '$SERVER["socket"] == ":443"': '$SERVER["socket"] == "127.0.0.1:%(port)d"',
        '$HTTP["host"] == "example.org"': '$HTTP["host"] =~ "^localhost(:|$)"',
    }
    # Like Debian's, without its plain port.
    main = """
server.modules = ( "mod_indexfile", "mod_access" )
server.bind = "127.0.0.1"
server.port = %(port)d
server.document-root = "%(dir)s"
server.upload-dirs = ( "%(dir)s" )
server.errorlog = "%(dir)s/error.log"
server.feature-flags += ( "server.h2proto" => "enable" )
index-file.names = ( "index.php", "index.html" )
static-file.exclude-extensions = ( ".php" )
include "%(example)s"
server.modules += ( "mod_staticfile" )
"""


class ApacheExample(ExampleServer):
    name = "apache"
    example = "apache/h2fpm.conf"
    keeps_connections = True
    command = ["apache2", "-D", "FOREGROUND", "-d", "%(dir)s", "-f", "%(dir)s/main.conf"]
    replaced = {"<VirtualHost *:443>": "Listen 127.0.0.1:%(port)d\n<VirtualHost *:%(port)d>"}
    MODULES = ["mpm_event", "authz_core", "dir", "proxy", "proxy_fcgi", "ssl", "http2", "rewrite", "alias"]
    main = (
        "".join("LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n" % (name, name) for name in MODULES)
        + """
DefaultRuntimeDir %(dir)s
PidFile %(dir)s/apache.pid
Mutex file:%(dir)s default
ServerName localhost
ErrorLog %(dir)s/error.log
StartServers 1
<Directory />
	Require all denied
</Directory>
Include %(example)s
"""
    )


class CaddyExample(ExampleServer):
    name = "caddy"
    example = "caddy/h2fpm.caddy"
    logs_cut = "aborting with incomplete response"
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", "%(dir)s/main.conf"]
    replaced = {"example.org:443 {": "https://localhost:%(port)d {\n\tbind 127.0.0.1"}
    # Neither a port for redirections nor one to be told what to do.
    main = """
{
	admin off
	auto_https disable_redirects
	storage file_system %(dir)s
	servers {
		protocols h1 h2
	}
}
import %(example)s
"""


class H2oExample(ExampleServer):
    name = "h2o"
    example = "h2o/h2fpm.conf"
    logs_cut = "received unexpected record"
    command = ["h2o", "-m", "worker", "-c", "%(dir)s/example.conf"]
    replaced = {
        "user: www-data": "temp-buffer-path: %(dir)s",
        "/run/h2o.pid": "%(dir)s/h2o.pid",
        "/var/log/h2o/": "%(dir)s/",
        '"example.org:443"': '"localhost:%(port)d"',
        "port: 443": "host: 127.0.0.1\n      port: %(port)d",
    }


class HaproxyExample(ExampleServer):
    """Not among EVERY: it serves no files, and tells of no cancelled GET."""

    name = "haproxy"
    example = "haproxy/h2fpm.cfg"
    keeps_connections = True
    logs_cut = " SD-- "
    command = ["haproxy", "-db", "-f", "%(example)s"]
    common = {
        "/var/www/example.org": "%(www)s",
        "/etc/haproxy/example.org.pem": "%(dir)s/site.pem",
        "/run/haproxy/admin.sock": "%(dir)s/admin.sock",
        "log /dev/log local0": "log stdout format raw local0",
        "\tuser haproxy\n": "",
        "\tgroup haproxy\n": "",
        "bind :443": "bind 127.0.0.1:%(port)d",
        "bind :80": "bind unix@%(dir)s/plain.sock",
    }
    replaced = {"/run/h2fpm/www.sock": "%(socket)s"}

    def __init__(self, server, replaced=None):
        self.replaced = {**self.replaced, **(replaced or {})}
        super().__init__(server)

    def _start(self, server):
        pem = [(self.cert / name).read_text() for name in ("cert.pem", "key.pem")]
        (self.dir / "site.pem").write_text("".join(pem))
        super()._start(server)

    def tell(self, command):
        """What it answers on its socket for administrators, which gets its name a
        moment after the ports are open."""
        wait_until((self.dir / "admin.sock").exists, what="HAProxy's admin socket")
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(10)
            admin.connect(str(self.dir / "admin.sock"))
            admin.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def states(self):
        """{"backend/server": state}."""
        rows = [row.split(",") for row in self.tell("show stat").splitlines() if row]
        state = rows[0].index("status")
        return {"/".join(row[:2]): row[state] for row in rows[1:] if row[1] not in ("FRONTEND", "BACKEND")}


class HaproxyBalance(HaproxyExample):
    """In front of several h2fpm by TCP; the scripts are the first one's."""

    example = "haproxy/balance.cfg"

    def __init__(self, *servers):
        hosts = ["10.0.0.%d:9000" % (11 + n) for n in range(len(servers))]
        self.replaced = {host: "%s:%d" % server.address for host, server in zip(hosts, servers)}
        super().__init__(servers[0])


EVERY = [NginxExample, LighttpdExample, ApacheExample, CaddyExample, H2oExample]
