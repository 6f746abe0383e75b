"""A small HTTP/2 client over TLS: GETs, resets, and several at a time on one
connection, which curl does not let a test decide about. It knows of the answer
what is needed to await it: its data and its end, not its headers."""
import collections
import socket
import ssl
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
CANCEL = 8
WINDOW = 0x7FFFFFFF - 65535


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A field line without Huffman coding; both are short here."""
    name, value = name.encode(), value.encode()
    return b"\0" + length(name) + name + length(value) + value


def length(text):
    n = len(text)
    if n < 127:
        return bytes([n])
    assert n < 127 + 128
    return bytes([127, n - 127])


class Http2:
    def __init__(self, port, timeout=20):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", port), timeout)
        self.sock = context.wrap_socket(raw, server_hostname="localhost")
        assert self.sock.selected_alpn_protocol() == "h2"
        self.authority = "localhost:%d" % port
        self.next_id = 1
        self.received = b""
        self.body = collections.defaultdict(bytes)
        self.ended = set()
        self.refused = {}  # by stream: the error code
        self.room = collections.defaultdict(lambda: 65535)  # for data to send, by stream; 0: all
        settings = struct.pack(">HI", 4, 0x7FFFFFFF)
        self.sock.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, payload=settings)
            + frame(WINDOW_UPDATE, payload=struct.pack(">I", WINDOW))
        )

    def get(self, path):
        """Asks, and returns the stream's id."""
        return self._ask("GET", path, END_STREAM)

    def post(self, path, size):
        """The same; the body is left to send_data()."""
        return self._ask("POST", path, 0, ("content-length", str(size)))

    def _ask(self, method, path, flags, *more):
        stream, self.next_id = self.next_id, self.next_id + 2
        fields = [(":method", method), (":scheme", "https"), (":authority", self.authority), (":path", path), *more]
        block = b"".join(literal(*field) for field in fields)
        self.sock.sendall(frame(HEADERS, END_HEADERS | flags, stream, block))
        return stream

    def send_data(self, stream, data, end=False):
        """As the front end grants it room; end: this is the last of the body."""
        for at in range(0, max(len(data), 1), 16384):
            part = data[at : at + 16384]
            while self.room[stream] < len(part) or self.room[0] < len(part):
                self.read_frame()
            self.room[stream] -= len(part)
            self.room[0] -= len(part)
            last = end and at + len(part) == len(data)
            self.sock.sendall(frame(DATA, END_STREAM if last else 0, stream, part))

    def reset(self, stream):
        self.sock.sendall(frame(RST_STREAM, stream=stream, payload=struct.pack(">I", CANCEL)))

    def read_frame(self):
        while len(self.received) < 9 or len(self.received) < 9 + self._payload_len():
            chunk = self.sock.recv(65536)
            assert chunk, "the front end closed the connection"
            self.received += chunk
        end = 9 + self._payload_len()
        kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
        payload, self.received = self.received[9:end], self.received[end:]
        self._take(kind, flags, stream & 0x7FFFFFFF, payload)

    def _payload_len(self):
        return int.from_bytes(self.received[:3], "big")

    def _take(self, kind, flags, stream, payload):
        assert kind != GOAWAY or payload[4:8] == bytes(4), "GOAWAY: %r" % payload
        if kind == DATA:
            self.body[stream] += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)
        if kind == RST_STREAM:
            self.refused[stream] = int.from_bytes(payload, "big")
        if kind == WINDOW_UPDATE:
            self.room[stream] += int.from_bytes(payload, "big")
        if kind == PING and not flags & ACK:
            self.sock.sendall(frame(PING, ACK, payload=payload))
        if kind == SETTINGS and not flags & ACK:
            self.sock.sendall(frame(SETTINGS, ACK))

    def wait(self, *streams):
        """Awaits the ends of these answers, and returns their bodies."""
        while not self.ended.issuperset(streams):
            self.read_frame()
            assert not set(self.refused) & set(streams), "streams were reset: %r" % self.refused
        return [self.body[stream] for stream in streams]

    def wait_data(self, stream):
        """Awaits that some of an answer is there."""
        while not self.body[stream]:
            self.read_frame()
            assert stream not in self.refused

    def close(self):
        self.sock.close()
