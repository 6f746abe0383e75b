"""Turnover under circumstances that a test must arrange: process.max without a
free place, reloads that meet failures or one another, processes that die at an
unhappy moment."""
import os
import signal

import pytest


# ---- process.max ----


@pytest.mark.parametrize("spawn", ["auto", "exec"])
def test_reload_replaces_all_where_process_max_leaves_no_place(h2fpm, spawn):
    server = h2fpm(main={"process.max": 2}, pool={"worker.spawn": spawn})
    old = server.wait_workers(2)
    os.kill(server.master, signal.SIGUSR2)
    server.wait_workers(2, without=old, timeout=60)
    assert server.get().status == 200


def test_lifetime_counts_where_process_max_leaves_no_place(h2fpm):
    server = h2fpm(main={"process.max": 2}, pool={"worker.max_lifetime": "1s"})
    old = server.wait_workers(2)
    server.wait_workers(2, without=old, timeout=60)
