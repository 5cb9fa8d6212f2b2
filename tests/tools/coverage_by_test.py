"""A pytest plugin for ``coverage run``: tells coverage which test is running.

Lines run by a test are recorded under its id, and those run by fixtures under its file, since tests share fixtures.
"""

import coverage


def pytest_runtest_setup(item):
    coverage.Coverage.current().switch_context(item.nodeid.partition("::")[0])


def pytest_runtest_call(item):
    coverage.Coverage.current().switch_context(item.nodeid)
