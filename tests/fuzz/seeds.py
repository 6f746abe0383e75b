#!/usr/bin/python3
"""Writes the seeds of the fuzz targets' corpora: one small input for every
rule of the wire. The other files there were found by fuzzing and kept for the
code that they reach; this script leaves them alone."""

import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR, DATA, GET_VALUES, RESULT, UNKNOWN = range(1, 12)
RESPONDER, AUTHORIZER = 1, 2


def record(kind, request_id, content=b"", padding=0, version=1):
    header = struct.pack(">BBHHBB", version, kind, request_id, len(content), padding, 0)
    return header + content + b"\x01" * padding


def length(n):
    return bytes([n]) if n < 128 else struct.pack(">I", n | 1 << 31)


def pair(name, value=b""):
    return length(len(name)) + length(len(value)) + name + value


def begin(request_id, flags=1, role=RESPONDER):
    return record(BEGIN, request_id, struct.pack(">HB5x", role, flags))


def request(request_id, flags=1):
    params = pair(b"SCRIPT_FILENAME", b"/a.php") + pair(b"QUERY_STRING")
    return (begin(request_id, flags) + record(PARAMS, request_id, params, 3) + record(PARAMS, request_id)
            + record(STDIN, request_id, b"body", 4) + record(STDIN, request_id))


def streams():
    """Conversations, for both record and mux."""
    ask = pair(b"FCGI_MAX_CONNS") + pair(b"FCGI_MPXS_CONNS") + pair(b"FCGI_MAX_REQS") + pair(b"X")
    yield "request", request(1)
    yield "two-requests", request(1) + request(1)
    yield "interleaved", begin(1) + begin(2) + record(PARAMS, 2, b"b") + record(PARAMS, 1) + record(PARAMS, 2)
    yield "abort", begin(1) + record(PARAMS, 1, b"p") + record(ABORT, 1) + begin(1)
    yield "abort-with-content", begin(1) + record(ABORT, 1, b"content") + record(STDIN, 1, b"", 0, 2)
    yield "no-stdin-yet", begin(1) + record(PARAMS, 1) + record(ABORT, 1)
    yield "get-values", record(GET_VALUES, 0, ask, 5) + request(1)
    yield "get-values-cut-pair", record(GET_VALUES, 0, ask[:-1])
    yield "get-values-with-id", record(GET_VALUES, 1, ask)
    yield "unknown-types", record(0, 0, b"x") + record(12, 0) + record(255, 9, b"content", 9) + begin(1)
    yield "authorizer", begin(3, 0, AUTHORIZER) + record(PARAMS, 3, b"p") + begin(3)
    yield "too-many", b"".join(begin(i) for i in range(1, 11))
    yield "begin-twice", begin(1) + begin(1)
    yield "begin-short", record(BEGIN, 1, b"\0\1\1")
    yield "never-begun", record(PARAMS, 9, b"p") + record(STDIN, 9) + record(DATA, 9, b"d") + record(ABORT, 9)
    yield "id-0", record(STDIN, 0, b"in")
    yield "stdin-early", begin(1) + record(STDIN, 1, b"in")
    yield "stdin-late", request(1) + record(STDIN, 1) + record(STDIN, 1, b"more")
    yield "params-late", begin(1) + record(PARAMS, 1) + record(PARAMS, 1) + record(PARAMS, 1, b"p")
    yield "data", begin(1) + record(DATA, 1, b"data") + record(PARAMS, 1)
    yield "response", begin(1) + record(STDOUT, 1, b"out")
    yield "end-from-client", record(END, 1, bytes(8))
    yield "version-2", request(1) + record(STDIN, 1, b"in", 0, 2)
    yield "http", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "padding-only", record(STDIN, 1, b"", 255) + record(STDIN, 1, b"", 255)
    yield "cut-header", request(1) + b"\1\1\0"
    yield "many-ids", b"".join(begin(i * 8000) for i in range(1, 8)) + request(65535)
    yield "values-too-long", record(GET_VALUES, 0, b"\1\0x" * 1400)
    yield "late-aborts", request(5) + record(ABORT, 5) + record(ABORT, 9) + request(5)


def blocks():
    """Blocks of pairs, for params."""
    for n in (0, 1, 126, 127, 128, 129, 300):
        yield f"name-{n}", pair(b"n" * n, b"v")
        yield f"value-{n}", pair(b"n", b"v" * n)
    yield "several", pair(b"A", b"1") + pair(b"", b"") + pair(b"B" * 130, b"2" * 130)
    yield "long-form", b"\x80\0\0\1\x80\0\0\2nvv"
    yield "huge-name", b"\xff\xff\xff\xff\0n"
    yield "huge-value", b"\1\xff\xff\xff\xffnv"
    yield "both-huge", b"\xff" * 8 + b"nv"
    yield "cut-length", b"\1\x80\0"
    yield "cut-value", pair(b"name", b"value")[:-1]


def write(target, name, data):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / f"seed-{name}").write_bytes(data)


def main():
    for i, (name, data) in enumerate(streams()):
        write("record", name, struct.pack(">H", len(data) * (i % 7) // 7) + data)
        write("mux", name, bytes([i % 3, 1 << i % 6, 0, 7 + i]) + data)
    # Streams that are answered stay open, and a second BEGIN_REQUEST waits.
    for i, name in enumerate(("two-requests", "late-aborts", "interleaved", "abort", "stdin-late", "begin-twice")):
        write("mux", f"answered-{name}", bytes([7 | 0x40 << i % 2, 0, 0, 9]) + dict(streams())[name] + request(1))
    for i, (name, data) in enumerate(blocks()):
        write("params", name, bytes([i * 3]) + data)


if __name__ == "__main__":
    main()
