"""The parts about multiplexing: raw FastCGI, many requests on a connection."""
import json
import os
import re
import statistics
import struct
import subprocess
import threading
import time

from stack import TOP, Stack, read_status
from tools import table, told

import fcgi  # tests/system, which stack has put on the path

REQUESTS = int(os.environ.get("CROWD", "1000000"))
FLOOD_S = int(os.environ.get("FLOOD_S", "30"))
FLOOD_RATE = 10000
SAMPLES = 10


def params(stack, uri, **more):
    path, _, query = uri.partition("?")
    return {"REQUEST_METHOD": "GET", "SCRIPT_FILENAME": str(stack.dir / "www") + path, "SCRIPT_NAME": path,
            "REQUEST_URI": uri, "QUERY_STRING": query, "SERVER_PROTOCOL": "HTTP/2.0", "REMOTE_ADDR": "192.0.2.1", **more}


def request(stack, uri, request_id, **more):
    return fcgi.request(params(stack, uri, **more), request_id=request_id)


def last_words(stack):
    """What the pool counted, once it has stopped."""
    stack.stop(stack.h2fpm.child)
    text = stack.log().read_text()
    return {name: int(re.search(r"(\d+) " + name, text)[1]) for name in
            ("finished", "cancelled", "requests held back", "answers spilled")}


DEBUG = "log_level = debug"


# ---- crowd ----


def crowd():
    """a million requests over 16 multiplexed connections, 5 % aborted, every byte checked; the broker's memory"""
    with Stack(only="h2fpm") as stack:
        program = stack.dir / "crowd"
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, TOP / "tests/peers/crowd.c"], check=True)
        broker = stack.h2fpm.broker()
        command = told([program, "-a", stack.h2fpm.socket, "-s", stack.dir / "www/crowd.php", "-c", 16, "-m", 32,
                        "-n", REQUESTS, "-A", 5])
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        memory = [read_status(broker, "RssAnon")]
        while child.poll() is None:
            time.sleep(REQUESTS / 250000)
            memory.append(read_status(broker, "RssAnon"))
        out, errors = child.communicate()
        if child.returncode != 0:
            raise RuntimeError("crowd said: " + errors)
        result = {**json.loads(out), "memory_kib": memory}
        table(["requests", "answered", "aborted", "wrong", "req/s", "median ms", "p99 ms"],
              [[result["requests"], result["answered"], result["aborted"], 0, "%.0f" % result["req_s"],
                result["median_ms"], result["p99_ms"]]])
        table(["broker's memory, KiB", "before", "first", "largest", "last"],
              [["anonymous", memory[0], memory[1], max(memory), memory[-1]]])
        return result


# ---- beside ----

LARGE_BYTES = 50 << 20


def large_when_small_are_done(stack, large):
    """One connection, 100 requests in one write: how much of the large answer
    had come when the 99 small ones were complete."""
    with fcgi.Conn(str(stack.h2fpm.socket)) as conn:
        conn.send(b"".join(request(stack, "/bytes.php?n=%d" % (LARGE_BYTES if n == large else 1024), n)
                           for n in range(1, 101)))
        left, got, at_done = set(range(1, 101)) - {large}, 0, None
        pending = b""
        while True:
            data, at = pending + conn.sock.recv(1 << 20), 0
            while len(data) - at >= 8:
                _, kind, request_id, length, padding = struct.unpack_from("!BBHHBx", data, at)
                if len(data) - at < 8 + length + padding:
                    break
                at += 8 + length + padding
                if kind == fcgi.STDOUT and request_id == large:
                    got += length
                if kind == fcgi.END and request_id == large:
                    return got if at_done is None else at_done
                if kind == fcgi.END:
                    left.discard(request_id)
                    if not left:
                        at_done = got
            pending = data[at:]


def beside():
    """99 answers of 1 KB and one of 50 MB on one connection: how far the large one was when the others were done"""
    with Stack(only="h2fpm") as stack:
        result = {name: [large_when_small_are_done(stack, large) for _ in range(5)]
                  for name, large in (("first", 1), ("in the middle", 50), ("last", 100))}
        table(["the large one is asked for", "MB of it, worst of 5", "share"],
              [[name, "%.2f" % (max(seen) / 1e6), "%.1f %%" % (100 * max(seen) / LARGE_BYTES)]
               for name, seen in result.items()])
        return result


# ---- flood ----


def attack(stack, delay_s, seconds):
    """FLOOD_RATE requests a second on four connections, each given up delay_s later. For a process of its own."""
    conns = [fcgi.Conn(str(stack.h2fpm.socket)) for _ in range(4)]
    for conn in conns:
        conn.sock.setblocking(False)
    out, waiting, opened, began = [b""] * 4, [], 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        while opened < passed * FLOOD_RATE:
            to, request_id = opened % 4, opened // 4 % 65535 + 1
            out[to] += request(stack, "/hello.php", request_id, REMOTE_PORT=str(6000 + to))
            if delay_s == 0:
                out[to] += fcgi.record(fcgi.ABORT, request_id)
            else:
                waiting.append((passed + delay_s, to, request_id))
            opened += 1
        due = next((n for n, (when, _, _) in enumerate(waiting) if when > passed), len(waiting))
        for _, to, request_id in waiting[:due]:
            out[to] += fcgi.record(fcgi.ABORT, request_id)
        del waiting[:due]
        for to, conn in enumerate(conns):
            try:
                out[to] = out[to][conn.sock.send(out[to]):] if out[to] else b""
            except BlockingIOError:
                pass
            try:
                while conn.sock.recv(1 << 18):
                    pass
                raise RuntimeError("the flood's connection was closed")
            except BlockingIOError:
                pass
        time.sleep(0.0005)
    return opened


def in_child(work):
    """Its number, from a process of its own, so that two do not share an interpreter's lock."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write_end, str(work()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return int(text)


def visits(stack, stop, found):
    with fcgi.Conn(str(stack.h2fpm.socket)) as conn:
        while not stop.is_set():
            began = time.perf_counter()
            conn.send(request(stack, "/hello.php", 1, REMOTE_PORT="5000"))
            assert conn.read_response().status == 200
            found.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.01)


def latencies_during(stack, work):
    stop, found = threading.Event(), []
    visitor = threading.Thread(target=visits, args=(stack, stop, found))
    visitor.start()
    try:
        done = work()
    finally:
        stop.set()
        visitor.join()
    found.sort()
    return done, {"count": len(found), "median": statistics.median(found), "p99": found[len(found) * 99 // 100]}


def flood():
    """10,000 requests a second opened and aborted; a visitor beside them, and how many scripts were started"""
    result, rows = {}, []
    for delay_ms in (0, 1, 5, 20):
        with Stack(only="h2fpm", options=DEBUG) as stack:
            _, before = latencies_during(stack, lambda: time.sleep(5))
            opened, during = latencies_during(
                stack, lambda: in_child(lambda: attack(stack, delay_ms / 1e3, FLOOD_S)))
            counted = last_words(stack)
        # Each script that was started has either finished or been cancelled after its start.
        scripts = counted["finished"] - before["count"] - during["count"]
        result[delay_ms] = {"opened": opened, "scripts": scripts, "before": before, "during": during, **counted}
        rows.append(["%d ms" % delay_ms, opened, scripts, "%.2f %%" % (100 * scripts / opened),
                     "%.2f/%.2f" % (before["median"], during["median"]), "%.2f/%.2f" % (before["p99"], during["p99"])])
    table(["given up after", "opened", "answered in time", "share", "visitor's median ms", "p99"], rows)
    return result


# ---- slow ----


def slow():
    """32 answers of 10 MB for a client that does not read; a visitor beside it, 8 workers"""
    with Stack(only="h2fpm", options=DEBUG) as stack:
        _, before = latencies_during(stack, lambda: time.sleep(5))
        with fcgi.Conn(str(stack.h2fpm.socket)) as conn:
            conn.send(b"".join(request(stack, "/bytes.php?n=%d" % (10 << 20), n) for n in range(1, 33)))
            time.sleep(5)  # the workers' work on these is another matter
            _, during = latencies_during(stack, lambda: time.sleep(5))
        counted = last_words(stack)
    table(["visitor", "median ms", "p99 ms"], [["alone", "%.2f" % before["median"], "%.2f" % before["p99"]],
                                               ["beside", "%.2f" % during["median"], "%.2f" % during["p99"]]])
    return {"before": before, "during": during, **counted}


PARTS = {part.__name__: part for part in (crowd, beside, flood, slow)}
