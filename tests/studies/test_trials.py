"""Tuning trials in a journal: proposals, results, pruning, and a journal truncated or damaged."""

import json
import re

import pytest
from refusals import refuses

from ddpg.errors import FileFault
from ddpg.studies.search_space import Choices, Range
from ddpg.studies.trials import Trials

SPACE = {
    "tau": Range(0.001, 0.1, log=True, whole=False),
    "n_steps": Range(1, 5, log=False, whole=True),
    "norm": Choices([None, "layer"]),
}


def opened(tmp_path, **options):
    return Trials(tmp_path / "journal", SPACE, **{"seed": 3, **options})


def test_proposals_are_in_the_space_and_depend_on_the_seed(tmp_path):
    found = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        trials = Trials(tmp_path / name, SPACE, seed)
        found[name] = []
        for number in range(14):  # the first ten at random
            trial = trials.ask()
            assert (trial.number, trial.state) == (number, "running")
            assert 0.001 <= trial.changes["tau"] <= 0.1
            assert trial.changes["n_steps"] in range(1, 6)
            assert trial.changes["norm"] in (None, "layer")
            trials.complete(number, -trial.changes["tau"])
            found[name].append(trial.changes)
    assert found["a"] == found["b"]
    assert found["a"] != found["c"]
    assert len({one["tau"] for one in found["a"]}) == 14


def test_a_restart_does_not_change_proposals(tmp_path):
    straight, again = (Trials(tmp_path / name, SPACE, 3) for name in ("straight", "again"))
    for number in range(14):
        trial = straight.ask()
        again = Trials(tmp_path / "again", SPACE, 3)
        assert again.ask().changes == trial.changes
        for trials in (straight, again):
            trials.complete(number, -trial.changes["tau"])


def test_finished_trials_keep_their_state_value_and_reason(tmp_path):
    trials = opened(tmp_path)
    for _ in range(5):
        trials.ask()
    trials.report(0, 1, 2.0)
    trials.report(0, 2, 4.0)
    trials.complete(0, 4.0)
    trials.report(1, 1, 9.0)
    trials.prune(1)
    trials.prune(2, "refused: it cannot be")
    trials.fail(3, "bad\nluck")
    for found in (trials, opened(tmp_path)):
        assert [(one.state, one.value, one.returns, one.reason) for one in found.all()] == [
            ("complete", 4.0, {1: 2.0, 2: 4.0}, None),
            ("pruned", 9.0, {1: 9.0}, None),
            ("pruned", None, {}, "refused: it cannot be"),
            ("failed", None, {}, "bad\\nluck"),
            ("running", None, {}, None),
        ]
        assert found.best.number == 0


def test_the_first_of_equal_trials_is_the_best(tmp_path):
    trials = opened(tmp_path)
    assert trials.best is None
    for number, value in enumerate((1.0, 5.0, 5.0)):
        trials.ask()
        trials.complete(number, value)
    assert trials.best.number == 1


@pytest.mark.parametrize("pruning", [True, False])
def test_a_trial_below_the_median_of_five_is_pruned(pruning, tmp_path):
    trials = opened(tmp_path, pruning=pruning)
    for number in range(5):
        trials.ask()
        for evaluation in (1, 2):
            trials.report(number, evaluation, float(number))  # the median is 2
        trials.complete(number, float(number))
    for number, value, below in ((5, 1.9, True), (6, 2.1, False)):
        trials.ask()
        trials.report(number, 1, value)
        assert trials.should_prune(number) == (below and pruning)


def test_the_base_configuration_is_tried_first_if_it_is_in_the_space(tmp_path):
    base = {"tau": 0.005, "n_steps": 2, "norm": None, "gamma": 0.9}
    trials = opened(tmp_path)
    for outside in ({"tau": 0.5}, {"n_steps": 6}, {"norm": "batch"}):
        assert not trials.enqueue_base(base | outside)
    assert trials.enqueue_base(base)
    again = opened(tmp_path)  # killed before the trial was proposed
    assert again.enqueue_base(base)
    assert again.all() == []
    assert again.ask().changes == {"tau": 0.005, "n_steps": 2, "norm": None}
    assert opened(tmp_path).enqueue_base(base)
    assert again.ask().changes["tau"] != 0.005


def test_a_journal_truncated_anywhere_is_continued(tmp_path):
    trials = opened(tmp_path)
    trials.ask()
    trials.complete(0, 1.0)
    begun = (tmp_path / "journal").stat().st_size
    asked = trials.ask().changes
    whole = (tmp_path / "journal").read_bytes()
    for end in range(begun, len(whole), 41):
        (tmp_path / "journal").write_bytes(whole[:end])
        again = opened(tmp_path)
        assert all(one.params for one in again._study.get_trials() if one.state.name == "RUNNING")
        numbers = [trial.number for trial in again.all()]
        assert numbers[0] == 0
        if len(numbers) == 1:  # its proposal was incomplete, and is repeated
            proposed = again.ask()
            assert (proposed.number, proposed.changes) == (1, asked)
        again.complete(again.all()[-1].number, 2.0)
        assert [trial.state for trial in opened(tmp_path).all()] == ["complete", "complete"]


@pytest.mark.parametrize(
    "line",
    [
        "this is no JSON",
        "[]",
        "{}",
        '{"op_code": 99}',
    ],
)
def test_invalid_lines_in_a_journal_are_a_one_line_error(line, tmp_path):
    opened(tmp_path).ask()
    with (tmp_path / "journal").open("a") as file:
        file.write(f"{line}\n{line}\n")
    with refuses(FileFault, "--root"):
        opened(tmp_path)


def test_a_value_outside_the_space_is_a_one_line_error(tmp_path):
    opened(tmp_path).ask()
    path = tmp_path / "journal"
    text = path.read_text()
    value = re.search(r'"param_name":"n_steps","param_value_internal":(\d)', text)
    path.write_text(text[: value.start(1)] + "9" + text[value.end(1) :])
    with refuses(FileFault, "9 1 5"):
        opened(tmp_path)


@pytest.mark.parametrize("wrong", ["true", '"4.0"', "[4.0]"])
@pytest.mark.parametrize("field", ["intermediate_value", "values"])
def test_a_return_in_a_journal_that_is_no_number_is_a_one_line_error(field, wrong, tmp_path):
    trials = opened(tmp_path)
    trials.ask()
    trials.report(0, 1, 4.0)
    trials.complete(0, 4.0)
    path, value = tmp_path / "journal", {"intermediate_value": "4.0", "values": "[4.0]"}[field]
    text = path.read_text()
    assert f'"{field}":{value}' in text
    path.write_text(text.replace(f'"{field}":{value}', f'"{field}":{value.replace("4.0", wrong)}'))
    with refuses(FileFault, "--root"):
        opened(tmp_path)


def test_nothing_in_a_journal_is_unpickled(tmp_path, monkeypatch):
    import pickle

    def refuse(*_, **__):
        raise AssertionError("a pickle is read or written")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    trials = opened(tmp_path)
    for number in range(25):  # Optuna makes a snapshot of some storages every hundred lines
        trials.ask()
        trials.complete(number, 1.0)
    assert len(opened(tmp_path).all()) == 25
    assert all(json.loads(line) for line in (tmp_path / "journal").read_text().splitlines())


DAMAGE = [b"\x00\xff\xfe garbage", b"{", b"[[[[" * 2000, b'{"op_code": 1' + b"0" * 5000 + b"}", b""]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_journal_damaged_anywhere_is_refused_in_one_line_or_continued(damage, tmp_path):
    trials = opened(tmp_path)
    for number in range(3):
        trials.ask()
        trials.report(number, 1, float(number))
        trials.complete(number, float(number))
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    refusals = []
    for at, line in enumerate(lines):
        path.write_bytes(b"".join([*lines[:at], damage + line[len(line) // 2 :], *lines[at + 1 :]]))
        try:
            again = opened(tmp_path)
            again.ask()
            assert again.best is None or again.best.value in (0.0, 1.0, 2.0)
        except FileFault as fault:
            refusals.append(str(fault))
    assert refusals
    assert all(str(path) in refusal and "\n" not in refusal for refusal in refusals)
