"""Where h2fpm listens and whom it lets in."""
import grp
import os
import pwd
import socket
import stat

import pytest

import fcgi
from harness import IS_ROOT, POOL_USER, free_port, have_ipv6, proc_status, wait_until


def refused_start(server, *needles):
    """It must end with 78 or 70 and say why; nothing may be left running."""
    server.start(wait=False)
    status = server.process.wait(15)
    text = server.all_output()
    server.process = None
    assert status in (70, 78), (status, text)
    for needle in needles:
        assert str(needle) in text, text
    assert "ready to handle connections" not in text


@pytest.mark.parametrize("mode,expected", [(None, 0o660), ("0600", 0o600), ("0666", 0o666)])
def test_unix_socket_has_the_mode(h2fpm, mode, expected):
    server = h2fpm(pool={"listen.mode": mode})
    assert stat.S_IMODE(os.stat(server.socket).st_mode) == expected
    assert server.get().status == 200


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_unix_socket_has_the_owner(h2fpm):
    server = h2fpm(pool={"listen.owner": POOL_USER, "listen.group": POOL_USER})
    info = os.stat(server.socket)
    assert (info.st_uid, info.st_gid) == (pwd.getpwnam(POOL_USER).pw_uid, grp.getgrnam(POOL_USER).gr_gid)


@pytest.mark.skipif(not IS_ROOT, reason="only root drops to another user")
def test_pool_and_workers_run_as_the_pools_user(h2fpm):
    uid = str(pwd.getpwnam(POOL_USER).pw_uid)
    server = h2fpm()
    for pid in [server.pool_pid, *server.wait_workers(2)]:
        status = proc_status(pid)
        assert status["Uid"].split() == [uid] * 4, pid
        assert "0" not in status["Groups"].split(), status["Groups"]


@pytest.mark.skipif(not IS_ROOT, reason="only root may run as root")
def test_root_pool_needs_the_option(h2fpm):
    refused_start(h2fpm(start=False, pool={"user": "root", "group": "root"}))
    server = h2fpm(options=["-R"], pool={"user": "root", "group": "root"})
    assert server.get().status == 200


def test_tcp_address_and_port(h2fpm):
    server = h2fpm(listen="127.0.0.1:%d" % free_port())
    assert server.get().status == 200
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_bare_port(h2fpm):
    port = free_port()
    server = h2fpm(listen="127.0.0.1:%d" % port, pool={"listen": str(port)})
    assert server.get().status == 200


@pytest.mark.skipif(not have_ipv6(), reason="no IPv6 here")
def test_ipv6_address_and_port(h2fpm):
    server = h2fpm(listen="[::1]:%d" % free_port("::1"))
    assert server.address[0] == "::1"
    assert server.get().status == 200


def test_tcp_port_can_be_taken_again_at_once(h2fpm):
    listen = "127.0.0.1:%d" % free_port()
    for _ in range(2):
        server = h2fpm(listen=listen)
        assert server.get().status == 200
        server.stop()


def test_taken_port_is_told(h2fpm):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused_start(h2fpm(start=False, listen="127.0.0.1:%d" % port), port, "already in use")


def test_stale_socket_is_replaced(h2fpm):
    server = h2fpm(start=False)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(server.socket)
    server.start()
    assert server.get().status == 200


def test_live_socket_of_another_is_refused_and_kept(h2fpm):
    first = h2fpm()
    second = h2fpm(start=False)
    second.settings["listen"] = first.socket
    second.write_conf()
    refused_start(second, first.socket)
    assert first.get().status == 200


def test_regular_file_in_the_sockets_place_is_kept(h2fpm):
    server = h2fpm(start=False)
    with open(server.socket, "w", encoding="ascii") as file:
        file.write("precious")
    refused_start(server, server.socket)
    with open(server.socket, encoding="ascii") as file:
        assert file.read() == "precious"


def test_missing_directory_of_the_socket_is_told(h2fpm):
    server = h2fpm(start=False, pool={"listen": "/no/such/directory/www.sock"})
    refused_start(server, "/no/such/directory/www.sock")


def test_allowed_client_is_served(h2fpm):
    server = h2fpm(listen="127.0.0.1:%d" % free_port(), pool={"listen.allowed_clients": "10.1.2.3,127.0.0.1"})
    assert server.get().status == 200


def test_denied_client_is_closed_and_logged(h2fpm):
    port = free_port()
    server = h2fpm(listen="127.0.0.1:%d" % port, pool={"listen.allowed_clients": "127.0.0.2"})
    with server.connect() as conn:
        try:
            conn.send(fcgi.request(server.params()))
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert conn.closed_by_peer()
    assert server.wait_log("127.0.0.1")
    with socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        s.connect(("127.0.0.1", port))
        s.settimeout(10)
        s.sendall(fcgi.request(server.params()))
        assert s.recv(1000)


def test_denied_client_is_told_although_a_script_was_just_denied(h2fpm):
    """Each kind of message has a limit of its own, so that none hides another."""
    port = free_port()
    server = h2fpm(listen="127.0.0.1:%d" % port, pool={"listen.allowed_clients": "127.0.0.2"})
    with socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.2", 0)) as allowed:
        allowed.sendall(fcgi.request(server.params("/up/evil.jpg")))
        assert b"403" in allowed.recv(1000)
    with server.connect() as refused:
        assert refused.closed_by_peer()
    assert server.wait_log("security.limit_extensions")
    assert server.wait_log("Connection disallowed: IP address '127.0.0.1'")


def test_two_pools_on_two_sockets(h2fpm):
    server = h2fpm(start=False)
    other = str(server.site.run / "api.sock")
    user = "user = %s\ngroup = %s\n" % (POOL_USER, POOL_USER) if IS_ROOT else ""
    server.more = "[api]\nlisten = %s\npm = static\npm.max_children = 1\nenv[WHO] = api\n%s" % (other, user)
    server.write_conf()
    server.start()
    wait_until(lambda: len(server.pool_pids()) == 2, what="two pool processes")
    assert server.get("/hello.php").status == 200
    with fcgi.Conn(other) as conn:
        assert b'["api",' in conn.request(server.params("/getenv.php?name=WHO")).body
    assert b"[false,false,null]" in server.get("/getenv.php?name=WHO").body
    server.stop()
    assert not os.path.exists(other)
