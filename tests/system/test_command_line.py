"""Options, exit codes, and what a bad configuration is told."""
import subprocess

import pytest

from harness import BINARY, IS_ROOT, Site, wait_until


@pytest.fixture
def site():
    made = Site()
    yield made
    made.remove()


def run(*arguments, **options):
    return subprocess.run(
        [BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=20, check=False, **options
    )


def good(site, extra="", main=""):
    path = site.dir / "pool.ini"
    user = "user = www-data\n" if IS_ROOT else ""
    text = "[global]\ndaemonize = no\n%s\n[www]\nlisten = %s/w.sock\npm = static\npm.max_children = 1\n%s%s\n"
    path.write_text(text % (main, site.run, user, extra))
    return path


def test_version_and_help():
    done = run("-v")
    assert done.returncode == 0 and "h2fpm" in done.stdout
    done = run("-h")
    assert done.returncode == 0 and "-y" in done.stdout + done.stderr
    assert run("--version").stdout == run("-v").stdout


@pytest.mark.parametrize("bad", [["-Z"], ["--no-such-option"], ["-y"]])
def test_unknown_option_is_64(bad):
    done = run(*bad)
    assert done.returncode == 64 and done.stderr


def test_configuration_test_of_a_good_one(site):
    done = run("-t", "-y", good(site))
    assert done.returncode == 0, done.stderr
    assert "successful" in done.stdout + done.stderr
    assert list(site.run.iterdir()) == [], "a test opened the socket"


def test_configuration_test_tells_every_mistake_with_its_line(site):
    path = good(site, "no.such.name = 1\nrequest_terminate_timeout = soon\npm.max_children = many\n")
    lines = path.read_text().splitlines()
    for start in (["-t"], ["-F"]):
        done = run(*start, "-y", path)
        assert done.returncode == 78
        told = done.stderr.splitlines()
        for name in ("no.such.name", "request_terminate_timeout = soon", "pm.max_children = many"):
            number = next(i for i, line in enumerate(lines, 1) if line.startswith(name))
            word = name.split(" ")[0]
            assert [t for t in told if ":%d:" % number in t and word in t], (name, told)
    assert list(site.run.iterdir()) == []


@pytest.mark.parametrize("missing", ["listen", "pm", "pm.max_children"])
def test_mandatory_directives(site, missing):
    path = good(site)
    lines = [line for line in path.read_text().splitlines() if not line.startswith(missing + " =")]
    path.write_text("\n".join(lines) + "\n")
    done = run("-t", "-y", path)
    assert done.returncode == 78 and missing in done.stderr


@pytest.mark.parametrize(
    "extra", ["pm = dynamix", "pm.max_children = 0", "pm.max_children = -1", "clear_env = maybe"]
)
def test_bad_values_are_refused(site, extra):
    done = run("-t", "-y", good(site, extra))
    assert done.returncode == 78 and extra.split(" ")[0] in done.stderr, done.stderr


def with_second_pool(site, extra):
    path = good(site)
    user = "user = www-data\n" if IS_ROOT else ""
    text = "[second]\nlisten = %s/second.sock\npm = static\npm.max_children = 1\n%s%s\n"
    path.write_text(path.read_text() + text % (site.run, user, extra))
    return path


# what the file's reader finds, and what only the system can tell
BROKEN_POOL = ["clear_env = maybe", "access.log = /no/such/dir/access.log"]


@pytest.mark.parametrize("extra", BROKEN_POOL)
@pytest.mark.parametrize("options", [["-t"], ["-t", "--strict"], ["-F", "--strict"]], ids=" ".join)
def test_one_pools_mistake_fails_a_test_and_a_strict_start(site, options, extra):
    done = run(*options, "-y", with_second_pool(site, extra))
    assert done.returncode == 78
    assert extra.split(" ")[0] in done.stderr and "left out" not in done.stderr, done.stderr
    assert list(site.run.iterdir()) == []


def test_strict_minds_nothing_in_a_good_file(site):
    assert "--strict" in run("-h").stdout
    done = run("--strict", "-t", "-y", with_second_pool(site, ""))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "spare, wrong",
    [
        ((), "pm.min_spare_servers"),
        ((0, 3), "pm.min_spare_servers = 0"),
        ((3, 2), "pm.max_spare_servers = 2"),
        ((1, 9), "pm.max_spare_servers = 9"),
        ((2, 3, 4), "pm.start_servers = 4"),
        ((2, 3), None),
        ((2, 3, 2), None),
    ],
)
def test_dynamic_needs_spare_workers_that_fit(site, spare, wrong):
    names = ("pm.min_spare_servers", "pm.max_spare_servers", "pm.start_servers")
    lines = ["pm = dynamic", "pm.max_children = 4"] + ["%s = %d" % pair for pair in zip(names, spare)]
    done = run("-t", "-y", good(site, "\n".join(lines)))
    assert done.returncode == (78 if wrong else 0), done.stderr
    assert (wrong or "successful") in done.stderr


def test_missing_file_is_78(site):
    done = run("-t", "-y", site.dir / "none.ini")
    assert done.returncode == 78 and "none.ini" in done.stderr


def test_file_without_a_pool_is_78(site):
    path = site.dir / "empty.ini"
    path.write_text("[global]\ndaemonize = no\n")
    assert run("-t", "-y", path).returncode == 78


def test_unwritable_error_log_is_told(site):
    done = run("-F", "-y", good(site, main="error_log = /no/such/dir/error.log"))
    assert done.returncode in (70, 78) and "/no/such/dir/error.log" in done.stderr


def test_forced_stderr_gets_the_log(h2fpm):
    server = h2fpm(options=["-O"], start=False, main={"error_log": None})
    server.start(wait=False)
    wait_until(lambda: "ready to handle connections" in server.all_output())
    assert server.get().status == 200
