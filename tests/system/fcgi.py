"""A FastCGI client for tests: it writes any bytes, whole or cut, and reads
records one by one, so that a test can be as polite or as rude as it needs.
It knows nothing of h2fpm; php-fpm answers it too."""
import socket
import struct
import time

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR, DATA, GET_VALUES, GET_VALUES_RESULT, UNKNOWN_TYPE = range(1, 12)
RESPONDER, AUTHORIZER, FILTER = 1, 2, 3
KEEP_CONN = 1
REQUEST_COMPLETE, CANT_MPX_CONN, OVERLOADED, UNKNOWN_ROLE = range(4)
MAX_CONTENT = 65535


def record(kind, request_id, content=b"", padding=0, version=1):
    header = struct.pack("!BBHHBB", version, kind, request_id, len(content), padding, 0)
    return header + content + b"\0" * padding


def begin(request_id=1, keep=True, role=RESPONDER):
    return record(BEGIN, request_id, struct.pack("!HB5x", role, KEEP_CONN if keep else 0))


def length(n, long=False):
    return struct.pack("!I", n | 0x80000000) if n > 127 or long else bytes([n])


def pair(name, value):
    name = name.encode() if isinstance(name, str) else name
    value = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return length(len(name)) + length(len(value)) + name + value


def pairs(params):
    items = params.items() if isinstance(params, dict) else params
    return b"".join(pair(name, value) for name, value in items)


def stream(kind, request_id, data, end=True, size=MAX_CONTENT, padding=0):
    out = [record(kind, request_id, data[i : i + size], padding) for i in range(0, len(data), size)]
    if end:
        out.append(record(kind, request_id))
    return b"".join(out)


def request(params, body=b"", request_id=1, keep=True):
    """One whole request as bytes."""
    return (
        begin(request_id, keep)
        + stream(PARAMS, request_id, pairs(params))
        + stream(STDIN, request_id, body)
    )


class Closed(Exception):
    """The server closed where a record was expected."""


class Spoiled(Closed):
    """A record of version 0 came: how h2fpm marks an answer that it cannot
    complete, as nginx may take a plain close for a whole one."""


class Response:
    """What came for one request id. ended: END_REQUEST was read."""

    def __init__(self):
        self.stdout = b""
        self.stderr = b""
        self.ended = False
        self.app_status = None
        self.protocol_status = None

    @property
    def complete(self):
        return self.ended and self.protocol_status == REQUEST_COMPLETE

    @property
    def head(self):
        return self.stdout.replace(b"\r\n", b"\n").partition(b"\n\n")[0].decode("latin-1")

    @property
    def headers(self):
        found = {}
        for line in self.head.split("\n"):
            name, colon, value = line.partition(":")
            if colon:
                found[name.strip().lower()] = value.strip()
        return found

    @property
    def status(self):
        return int(self.headers.get("status", "200").split()[0])

    @property
    def body(self):
        cuts = [(self.stdout.find(sep), len(sep)) for sep in (b"\r\n\r\n", b"\n\n")]
        cuts = [cut for cut in cuts if cut[0] >= 0]
        if not cuts:
            return b""
        at, size = min(cuts)
        return self.stdout[at + size :]

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def __repr__(self):
        return "<Response %r stderr=%r ended=%s status=%s/%s>" % (
            self.stdout[:300],
            self.stderr[:300],
            self.ended,
            self.app_status,
            self.protocol_status,
        )


class Conn:
    """One connection to address: a path, or a (host, port) pair."""

    def __init__(self, address, timeout=20, receive_buffer=None):
        if isinstance(address, str):
            family = socket.AF_UNIX
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.pending = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Leaves without a goodbye: over TCP the server reads ECONNRESET."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_cut(self, data, cuts, pause=0.0):
        """Sends data in pieces that end at the offsets cuts."""
        at = 0
        for cut in sorted(set(cuts)) + [len(data)]:
            if cut > at:
                self.sock.sendall(data[at:cut])
                at = cut
                if pause:
                    time.sleep(pause)

    def _need(self, size):
        while len(self.pending) < size:
            try:
                data = self.sock.recv(1 << 18)
            except ConnectionResetError as error:
                raise Closed("reset") from error
            if not data:
                raise Closed("closed with %d bytes of a record read" % len(self.pending))
            self.pending += data

    def read_record(self):
        """(type, id, content)."""
        self._need(8)
        version, kind, request_id, size, padding = struct.unpack("!BBHHBx", bytes(self.pending[:8]))
        if version == 0:
            raise Spoiled("a record of version 0")
        assert version == 1, "version %d from the server" % version
        self._need(8 + size + padding)
        content = bytes(self.pending[8 : 8 + size])
        del self.pending[: 8 + size + padding]
        return kind, request_id, content

    def read_response(self, request_id=1, into=None):
        """Reads up to END_REQUEST, or raises Closed."""
        response = into or Response()
        stdout, stderr = [response.stdout], [response.stderr]
        try:
            while not response.ended:
                kind, got_id, content = self.read_record()
                assert got_id == request_id, "record of type %d for id %d" % (kind, got_id)
                if kind == STDOUT:
                    stdout.append(content)
                elif kind == STDERR:
                    stderr.append(content)
                elif kind == END:
                    response.app_status, response.protocol_status = struct.unpack("!IB3x", content)
                    response.ended = True
                else:
                    raise AssertionError("record of type %d" % kind)
        finally:
            response.stdout, response.stderr = b"".join(stdout), b"".join(stderr)
        return response

    def read_until_closed(self, request_id=1):
        """What came before the server closed; ended is False when it was cut.
        Nothing but the close may follow a mark that the answer is cut."""
        response = Response()
        try:
            self.read_response(request_id, into=response)
        except Spoiled:
            assert len(self.pending) == 8 and self.closed_by_peer()
        except Closed:
            pass
        return response

    def request(self, params, body=b"", request_id=1, keep=True):
        self.send(request(params, body, request_id, keep))
        return self.read_response(request_id)

    def closed_by_peer(self):
        """Waits (the connection's timeout) for the end; True when it came
        without another byte."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def quiet(self, seconds=0.3):
        """True when nothing, not even the end, comes for so long."""
        if self.pending:
            return False
        before = self.sock.gettimeout()
        self.sock.settimeout(seconds)
        try:
            self.sock.recv(1, socket.MSG_PEEK)
            return False
        except socket.timeout:
            return True
        finally:
            self.sock.settimeout(before)


class Mux:
    """Several requests on one connection: sorts what comes by request id and
    checks that an id is open when something comes for it, and no longer after
    its END_REQUEST."""

    def __init__(self, conn):
        self.conn = conn
        self.open = {}  # id: Response
        self.order = []  # (type, id, length) as it came
        self.values = []  # contents of management records

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.conn.close()

    def start(self, request_id, data):
        """data: the first bytes of a request, at the least its BEGIN_REQUEST."""
        self.expect(request_id)
        self.conn.send(data)

    def expect(self, request_id):
        assert request_id not in self.open
        response = self.open[request_id] = Response()
        response.stdout = bytearray()  # until it has ended
        return response

    def request(self, request_id, params, body=b"", keep=True):
        self.start(request_id, request(params, body, request_id, keep))

    def send(self, data):
        self.conn.send(data)

    def abort(self, request_id):
        self.conn.send(record(ABORT, request_id))

    def take(self):
        """One record; the response if it was its end."""
        kind, request_id, content = self.conn.read_record()
        self.order.append((kind, request_id, len(content)))
        if request_id == 0:
            self.values.append((kind, content))
            return None
        response = self.open[request_id]
        if kind == STDOUT:
            response.stdout += content
        elif kind == STDERR:
            response.stderr += content
        else:
            assert kind == END, "record of type %d" % kind
            response.app_status, response.protocol_status = struct.unpack("!IB3x", content)
            response.ended = True
            response.stdout = bytes(response.stdout)
            del self.open[request_id]
        return response if response.ended else None

    def wait(self, *ids):
        """The responses of these ids (default: of all that are open)."""
        wanted = {request_id: self.open[request_id] for request_id in ids or list(self.open)}
        while not all(response.ended for response in wanted.values()):
            self.take()
        return list(wanted.values()) if len(ids) != 1 else wanted[ids[0]]
