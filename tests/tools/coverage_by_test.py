"""A plugin for pytest under ``coverage run``: tells coverage which test is running.

Lines that a test runs are noted under its id, those that its fixtures run under its file: a fixture may serve all of
them.
"""

import coverage


def pytest_runtest_setup(item):
    coverage.Coverage.current().switch_context(item.nodeid.partition("::")[0])


def pytest_runtest_call(item):
    coverage.Coverage.current().switch_context(item.nodeid)
