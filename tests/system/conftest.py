"""Fixtures: each gives a fresh program and, after the test, stops it and
checks that it left nothing behind."""
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import harness  # noqa: E402

PEERS = harness.ROOT / "tests" / "peers"


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: not beside other tests (tests/run)")


def pytest_sessionstart(session):
    if not os.access(harness.BINARY, os.X_OK):
        pytest.exit("no h2fpm at %s (make builds it, H2FPM names another)" % harness.BINARY, 2)
    # the tests' own clients need many descriptors
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.fixture(scope="session")
def shared_dir():
    path = pathlib.Path(tempfile.mkdtemp(prefix="h2fpm-shared-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def peers(shared_dir):
    """The misbehaving workers, built: peers["raw"] is a program's path."""
    built = {}
    for source in sorted(PEERS.glob("*.c")):
        out = shared_dir / source.stem
        flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O1"]
        subprocess.run(["cc", *flags, "-o", str(out), str(source), "-lfcgi"], check=True, timeout=120)
        out.chmod(0o755)
        built[source.stem] = out
    return built


def _closing(make):
    made = []

    def factory(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]

    return made, factory


def _close_all(made):
    errors = []
    for thing in reversed(made):
        try:
            thing.close()
        except Exception as error:  # each one must be closed
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture
def h2fpm(request):
    """h2fpm(pool={...}) starts one; at the end it must stop with status 0 and
    leave no process, socket or spool file."""
    made, factory = _closing(harness.H2fpm)
    yield factory
    if getattr(request.node, "failed", False):
        for server in made:
            print("---- log of %s\n%s" % (server.conf, server.all_output()))
    _close_all(made)


@pytest.fixture(scope="session")
def certificate(shared_dir):
    """cert.pem and key.pem for localhost: their directory."""
    harness.make_certificate(shared_dir)
    (shared_dir / "key.pem").chmod(0o644)
    harness.WebServer.cert = shared_dir
    return shared_dir


@pytest.fixture
def nginx(certificate):
    made, factory = _closing(harness.Nginx)
    yield factory
    _close_all(made)


@pytest.fixture
def phpfpm():
    made, factory = _closing(harness.PhpFpm)
    yield factory
    _close_all(made)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True
