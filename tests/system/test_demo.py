"""The demo as a person meets it: etc/demo/run.sh, which make run ends in, and
its page in a real browser. Self-contained: the demo makes its own directory."""
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from harness import free_port

pytestmark = pytest.mark.alone

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("H2FPM", ROOT / "build" / "h2fpm")).resolve()
SCRIPT = ROOT / "etc" / "demo" / "run.sh"
START_S = 40
STOP_S = 20


def processes():
    """pid: (parent, state), of all that can be seen."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = (int(fields[1]), fields[0])
            except (OSError, IndexError):
                pass  # it has just ended
    return found


def descendants(root):
    every = processes()
    family, fresh = set(), {root}
    while fresh:
        family |= fresh
        fresh = {pid for pid, (parent, _) in every.items() if parent in fresh} - family
    return family - {root}


def await_true(condition, timeout_s, what):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited %d s for: %s" % (timeout_s, what)
        time.sleep(0.05)


def name_of(pid):
    try:
        return pathlib.Path("/proc/%d/comm" % pid).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended: what the script waits with does


class Demo:
    def __init__(self, port, user=None):
        env = {**os.environ, "PORT": str(port), "H2FPM": str(BINARY)}
        # A wrong answer about a leak at the end is not this test's business.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        command = ["env", "--default-signal", str(SCRIPT)]
        if user:
            command = ["setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", *command]
        self.url = "https://localhost:%s/" % port
        self.said = ""
        self.child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, start_new_session=True)
        self.family = set()
        self.dir = None

    def read(self, timeout_s):
        """More of what it says; False at its end."""
        if select.select([self.child.stdout], [], [], timeout_s)[0]:
            chunk = os.read(self.child.stdout.fileno(), 65536)
            self.said += chunk.decode("utf-8", "replace")
            return bool(chunk)
        return True

    def await_address(self):
        deadline = time.monotonic() + START_S
        while not re.search(r"Access log .*/access\.log\n", self.said):
            assert self.read(0.2), "the demo ended:\n" + self.said
            assert time.monotonic() < deadline, "no address:\n" + self.said
        assert self.url.rstrip("/") in self.said
        self.dir = pathlib.Path(re.search(r"(/tmp/h2fpm-demo\.\w+)/access\.log", self.said).group(1))
        self.family = descendants(self.child.pid)

    def named(self, name):
        """The oldest of the family with this command name."""
        pids = [pid for pid in self.family if name_of(pid) == name]
        assert pids, "no %s among %s" % (name, self.family)
        return min(pids)

    def await_end(self):
        deadline = time.monotonic() + STOP_S
        while self.read(0.2):
            assert time.monotonic() < deadline, "it does not end:\n" + self.said
        return self.child.wait(timeout=STOP_S)

    def check_nothing_left(self):
        assert not self.dir.exists(), "files left: %s" % sorted(self.dir.rglob("*"))
        await_true(lambda: not self.left(), 5, "the end of %s\n%s" % (self.left(), self.said))

    def left(self):
        """Those that still run: a zombie is its new parent's to reap."""
        every = processes()
        return {pid: every[pid] for pid in self.family if pid in every and every[pid][1] != "Z"}

    def close(self):
        if self.child.poll() is None:
            self.family |= descendants(self.child.pid)
            self.child.terminate()
            try:
                self.child.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.child.stdout.close()


@pytest.fixture
def demo():
    made = []

    def start(*args, **kwargs):
        made.append(Demo(*args, **kwargs))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="h2fpm-browser-")
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-dev-shm-usage",
                 "disable-background-networking", "disable-component-update", "disable-sync",
                 "ignore-certificate-errors", "no-proxy-server", "user-data-dir=" + profile):
        options.add_argument("--" + flag)
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


def page_data(driver):
    return driver.execute_script("return Object.assign({}, document.body.dataset)")


def await_finished(driver, of):
    await_true(lambda: page_data(driver).get("of") == str(of) and page_data(driver)["state"] in ("done", "error"), 60,
               "%d tiles" % of)
    data = page_data(driver)
    assert data["state"] == "done", driver.execute_script("return document.getElementById('status').textContent")
    return data


def check_tiles(driver, of):
    data = await_finished(driver, of)
    assert data["arrived"] == str(of)
    assert data["protocol"] == "h2"
    assert data["connections"] == "1"
    pictures = "return [...document.querySelectorAll('.tile img')].filter(i => i.complete && i.naturalWidth).length"
    await_true(lambda: driver.execute_script(pictures) == of, 10, "%d pictures" % of)
    waits = driver.execute_script("return [...document.querySelectorAll('#rows td:nth-child(4)')].map(c => c.textContent)")
    assert len(waits) == of
    assert all(re.fullmatch(r"\d+\.\d", wait) for wait in waits), "h2fpm tells no queue wait: %s" % waits[:5]
    return int(data["workers"])


def choose(driver, name, value):
    driver.find_element("css selector", "input[name=%s][value='%s'] + span" % (name, value)).click()


def test_every_switch_shows_all_tiles_over_one_h2_connection(demo, browser):
    running = demo(free_port())
    running.await_address()
    browser.get(running.url)
    workers = {144: check_tiles(browser, 144)}
    for of in (1, 8, 32, 144):
        choose(browser, "of", of)
        workers[of] = check_tiles(browser, of)
    assert workers[1] == 1
    assert workers[144] > 1
    browser.execute_script("document.querySelector('.tile').dataset.seen = 'before'")
    browser.find_element("id", "again").click()
    await_true(lambda: browser.execute_script("return !document.querySelector('.tile').dataset.seen"), 10, "new tiles")
    check_tiles(browser, 144)
    choose(browser, "show", "heat")
    assert page_data(browser)["show"] == "heat"
    log = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert log == []


def test_bad_queries_are_refused_as_text(demo):
    running = demo(free_port())
    running.await_address()
    for query in ("of=7", "of=144&tile=144", "seed=<script>", "work=-1", "of[]=1", "work=99999999999999999999"):
        answer = subprocess.run(["curl", "-sk", "-g", "-w", "\n%{http_code} %{content_type}", "--noproxy", "*",
                                 running.url + "tile.php?" + query], capture_output=True, text=True, timeout=20)
        status = answer.stdout.splitlines()[-1]
        assert status.lower() == "400 text/plain; charset=utf-8", query + answer.stdout
        assert "<script>" not in answer.stdout


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_nothing_is_left(demo, signum):
    running = demo(free_port())
    running.await_address()
    assert len(running.family) > 3
    os.kill(running.child.pid, signum)
    assert running.await_end() == 0, running.said
    running.check_nothing_left()


def test_ctrl_c_reaches_the_whole_foreground_group(demo):
    running = demo(free_port())
    running.await_address()
    os.killpg(running.child.pid, signal.SIGINT)
    assert running.await_end() == 0, running.said
    running.check_nothing_left()


@pytest.mark.parametrize("victim, survivor", [("nginx", "h2fpm"), ("h2fpm", "nginx")])
def test_either_of_the_two_dying_ends_the_other_with_the_reason(demo, victim, survivor):
    running = demo(free_port())
    running.await_address()
    assert running.named(survivor)
    os.kill(running.named(victim), signal.SIGKILL)
    assert running.await_end() == 1
    assert "%s ended (status 137)" % victim in running.said
    assert "Killed" not in running.said, "the shell's own word on it"
    running.check_nothing_left()


def test_a_taken_port_is_told_and_nothing_is_left(demo):
    before = set(pathlib.Path("/tmp").glob("h2fpm-demo.*"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        running = demo(port)
        assert running.await_end() == 1
    assert "port %d is taken" % port in running.said
    assert re.search(r"PORT=\d+ make run", running.said)
    left = set(pathlib.Path("/tmp").glob("h2fpm-demo.*")) - before  # or of another demo, which ends, too
    await_true(lambda: not any(path.exists() for path in left), 60, "the end of %s" % left)


def test_a_port_that_is_no_number_is_told(demo):
    running = demo("80x")
    assert running.await_end() == 1
    assert "PORT must be a number" in running.said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_an_ordinary_user_runs_it_too(demo):
    reader = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "test", "-x"]
    for needed in (SCRIPT, BINARY):
        if subprocess.run([*reader, str(needed)], timeout=10).returncode != 0:
            pytest.skip("%s is not for everyone to run" % needed)
    running = demo(free_port(), user="www-data")
    running.await_address()
    os.kill(running.child.pid, signal.SIGINT)
    assert running.await_end() == 0, running.said
    running.check_nothing_left()
