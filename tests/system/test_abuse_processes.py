"""What bad luck and ill will do to the processes of a pool, and that all are accounted for afterwards."""
import os
import signal
import threading

from harness import wait_until


class Visitors:
    """Ask without end, so that workers come and go."""

    def __init__(self, server, count=4):
        self.server, self.over, self.wrong = server, threading.Event(), []
        self.threads = [threading.Thread(target=self.ask) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def ask(self):
        with self.server.connect(timeout=60) as conn:
            while not self.over.is_set():
                response = conn.request(self.server.params("/hello.php"))
                if response.status != 200:
                    self.wrong.append(response)


def test_worker_in_birth_when_its_zygote_ends_does_not_stay_behind(h2fpm):
    """It is nobody's then: nothing would ever be sent to it, and nothing would end it."""
    server = h2fpm(pool={"pm.max_children": 4, "pm.max_requests": 1, "worker.spawn": "zygote"})
    server.wait_workers(4)
    with Visitors(server) as visitors:
        for _ in range(5):
            old = server.wait_zygote()
            os.kill(server.master, signal.SIGUSR2)
            server.wait_zygote(without=[old])
    assert not visitors.wrong
    wait_until(lambda: len(server.workers()) == 4, what="four workers, and no other:\n" + server.log())
