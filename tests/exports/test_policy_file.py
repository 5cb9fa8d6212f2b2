"""What is no policy of ours is said to be none."""

import json

import pytest

from ddpg import UsageError, load_policy
from ddpg.exports.policy_file import ABOUT


@pytest.mark.parametrize("about", [{}, {"kind": "numpy", "format": 1}, {"kind": "savedmodel"}])
def test_a_document_of_somebody_elses_is_no_policy(about, tmp_path):
    (tmp_path / ABOUT).write_text(json.dumps(about))
    with pytest.raises(UsageError) as caught:
        load_policy(tmp_path)
    assert str(tmp_path / ABOUT) in str(caught.value)
    assert "`ddpg export`" in str(caught.value)
