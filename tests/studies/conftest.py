"""A study whose cells a stub runs."""

import pytest
from small_studies import Stubbed


@pytest.fixture
def stubbed(tmp_path, monkeypatch):
    """A function that makes a study of these seeds, with further lines of its file."""
    return lambda seeds, more="": Stubbed(tmp_path, monkeypatch, seeds, more)
