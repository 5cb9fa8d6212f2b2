"""Flags in the text of pages are not broken after their hyphens."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "docs" / "extensions" / "flags.py"


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("--allow-import module", True),
        ("ddpg train ENV --dataset FILE", True),
        ("-o FILE", True),
        ("td_target", False),
        ("Pendulum-v1", False),
        ("tests/networks/test_own_layers.py --verbose", False),  # a single span would be too wide for a phone
    ],
)
def test_code_with_flags_is_broken_only_between_words(code, kept):
    spec = importlib.util.spec_from_file_location("flags", FILE)
    flags = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(flags)
    assert flags.has_flags(code) == kept
    css = (FILE.parents[1] / "static" / "site.css").read_text(encoding="utf-8")
    assert "code.flags .pre {\n  white-space: nowrap;" in css
    assert '"flags"' in (FILE.parents[1] / "conf.py").read_text(encoding="utf-8")
