"""What the parts of the bench share: tables, h2load, FastCGI by hand, sums over processes."""
import os
import pathlib
import re
import socket
import struct
import subprocess

from stack import TICK_S

ROUNDS = int(os.environ.get("ROUNDS", "3"))


def table(head, rows):
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  " + "  ".join(cells).rstrip(), flush=True)


def told(command):
    print("  $ " + " ".join(map(str, command)), flush=True)
    return list(map(str, command))


def h2load(server, script, *options, timeout=600, quiet=False):
    command = ["h2load", *map(str, options), server.url + script]
    text = subprocess.run(command if quiet else told(command), capture_output=True, text=True, timeout=timeout).stdout
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    requests = re.search(r"requests: (\d+) total.* (\d+) failed, (\d+) errored, (\d+) timeout", text)
    speed = re.search(r"finished in ([\d.]+)(us|ms|s), ([\d.]+) req/s", text)
    if not codes or not requests or not speed:
        raise RuntimeError("h2load said:\n" + text)
    return {"total": int(requests[1]), "ok": int(codes[1]), "5xx": int(codes[4]),
            "failed": int(requests[2]), "seconds": float(speed[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[speed[2]],
            "req_s": float(speed[3])}


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def fcgi_request(script, keep=True, query=""):
    """The bytes of a GET."""
    name = "/" + pathlib.Path(script).name
    params = {"REQUEST_METHOD": "GET", "SCRIPT_FILENAME": str(script), "SCRIPT_NAME": name, "REQUEST_URI": name,
              "QUERY_STRING": query, "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "HTTP/1.1"}
    pairs = b"".join(struct.pack(">II", len(key) | 1 << 31, len(value.encode()) | 1 << 31) + (key + value).encode()
                     for key, value in params.items())
    return (record(1, struct.pack(">HB5x", 1, int(keep))) + record(4, pairs) + record(4, b"") + record(5, b""))


def fcgi_connect(path, timeout=60):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout)
    sock.connect(str(path))
    return sock


def fcgi_answer(sock):
    """What a request wrote, read to its END_REQUEST."""
    data, out = b"", b""
    while True:
        while len(data) >= 8:
            kind, length, padding = data[1], int.from_bytes(data[4:6], "big"), data[6]
            if len(data) < 8 + length + padding:
                break
            if kind == 3:
                return out.decode()
            out += data[8:8 + length] if kind == 6 else b""
            data = data[8 + length + padding:]
        more = sock.recv(65536)
        if not more:
            raise RuntimeError("the connection was closed")
        data += more


def latencies_ms(server, count=200):
    """Of one client with one connection, each request after the other."""
    text = subprocess.run(["ab", "-q", "-k", "-n", str(count), "-c", "1", "-e", "/dev/stdout",
                           server.plain_url + "hello.php"], capture_output=True, text=True, timeout=120).stdout
    at = dict(re.findall(r"^(\d+),([\d.]+)$", text, re.M))
    return {"median": float(at["50"]), "p99": float(at["99"])}


def pss_mib(pids):
    """Proportional memory, which counts a shared page once over all of them."""
    total = 0
    for pid in pids:
        text = pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text()
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return total / 1024


def cpu_with_children(pids):
    """Seconds that they and the children they have waited for have used."""
    total = 0
    for pid in pids:
        text = pathlib.Path("/proc/%d/stat" % pid).read_text()
        total += sum(map(int, text[text.rindex(")") + 2:].split()[11:15]))
    return total * TICK_S
