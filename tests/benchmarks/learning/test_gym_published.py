"""Comparison with published values in five Gym tasks: means, points of reading, and the Pareto front."""

import pytest
from learning_cells import cell

from benchmarks.learning import gym_published
from benchmarks.learning.gym_published import Agent, Score
from benchmarks.learning.normalised import REFERENCES


def scored(env_id, share):
    random, reference = REFERENCES[env_id]
    return random + share * (reference - random)


def runs(recipe="plus", study="table", shares=(0.1, 0.2, 0.3, 0.5, 0.4)):
    """A run of 500 steps per task, evaluated every 100 steps: the fourth evaluation is before the cooldown."""
    return [
        cell(study, env_id, recipe, 0, [scored(env_id, share * place) for share in shares])
        for place, env_id in enumerate(REFERENCES, 1)
    ]


def test_our_runs_are_read_before_the_cooldown_and_at_the_end():
    """Scores of the tasks are 1, 2 ... 5 times that of the first, so the mean is 3 times that."""
    found = gym_published.ours(runs())
    early, late = found["`plus`, any time"], found["`plus`, budget known"]
    assert early.scores == {400: (pytest.approx(3 * 0.5), None)}  # one seed
    assert late.scores[500].mean == pytest.approx(3 * 0.4)
    hopper = [scored("Hopper-v5", 2 * share) for share in (0.4, 0.5)]
    assert late.hopper == pytest.approx(hopper[0] / hopper[1])


def v4_runs(seed, *shares, recipe="averaged"):
    """Runs planned for a million steps, evaluated every 50,000; the second evaluation is the one that counts."""
    return [
        cell(gym_published.V4_STUDY, env_id.replace("v5", "v4"), recipe, seed, scores, asked=1_000_000, every=50_000)
        for env_id in REFERENCES
        for scores in [[scored(env_id, share) for share in shares]]
    ]


def test_runs_in_v4_are_read_after_100_000_and_300_000_steps_of_a_million():
    """Scores of 0.5 and 0.7 after 100,000, and 1.1 after 300,000 of the first seed; the third has not come so far."""
    cells = [*v4_runs(0, 0, 0.5, 0.4, 0.9, 0.4, 1.1), *v4_runs(1, 0, 0.7), *v4_runs(2, 0.4)]
    agent = gym_published.ours(cells)[gym_published.V4]
    assert {steps: score.mean for steps, score in agent.scores.items()} == pytest.approx({100_000: 0.6, 300_000: 1.1})
    assert agent.seeds == "2, 1 at 300,000"
    hopper = [scored("Hopper-v5", share) for share in (0.5, 0.7, 0.6, 1.1)]
    place = 2 + [*REFERENCES].index("Hopper-v5")
    early, late = gym_published.v4_table(cells).split("\n\n")
    seeds, mean, kept, dips, *others = early.splitlines()[2:]
    assert seeds.split("|")[place].strip() == f"{hopper[0]:,.0f}, {hopper[1]:,.0f}"
    assert mean.split("|")[place].strip() == f"{hopper[2]:,.0f}"
    assert next(line for line in others if line.startswith("| SimbaV2 |")).split("|")[place].strip() == "2,821"
    assert [line.split("|")[place].strip() for line in (kept, dips)] == ["1.00", ""]  # none after the largest
    late = [line.split("|")[place].strip() for line in late.splitlines()[2:6]]
    assert late[0] == f"{hopper[3]:,.0f}"
    assert late[2:] == ["1.00", "0.50"]  # after 0.9, of 0.4 and 1.1 one is below 60 % of 1.1
    (row,) = (line for line in gym_published.table(cells).splitlines() if gym_published.V4 in line)
    assert "| 2, 1 at 300,000 | 0.60 (0." in row
    assert "| 1.10 |  |" in row  # an interval needs a second seed


def test_runs_of_humanoids_preset_today_have_a_row_of_their_own():
    today = [run for run in v4_runs(0, 0, 0.9, recipe="preactivation") if run.env_id == "Humanoid-v4"]
    cells = [*v4_runs(0, 0, 0.5), *today]
    assert gym_published.ours(cells)[gym_published.V4].scores[100_000].mean == pytest.approx(0.5)
    before, *_, row = gym_published.v4_table(cells).split("| SimbaV2")[0].splitlines()[2:]
    place = 2 + [*REFERENCES].index("Humanoid-v5")
    expected = [f"{scored('Humanoid-v5', share):,.0f}" for share in (0.5, 0.9)]
    assert [line.split("|")[place].strip() for line in (before, row)] == expected
    assert "Humanoid's preset today" in row


def test_the_sentence_about_v4_needs_a_run_of_every_task():
    cells = v4_runs(0, 0, 0.6)
    assert "100,000 steps into" in gym_published.v4_sentence(cells)
    assert "a normalised mean of 0.60 over" in gym_published.v4_sentence(cells)
    assert "SimbaV2 0.71, CrossQ 0.74" in gym_published.v4_sentence(cells)
    longer = gym_published.v4_sentence(v4_runs(0, 0, 0.6, 0, 0, 0, 1.2))
    assert "100,000 and 300,000 steps into" in longer
    assert "SimbaV2 0.71 and 1.27, CrossQ 0.74 and 1.30" in longer
    assert gym_published.V4 not in gym_published.ours(cells[:4])
    assert gym_published.v4_sentence(cells[:4]) == ""


def test_our_mean_needs_a_finished_run_in_every_task():
    *most, last = runs()
    assert gym_published.ours(most) == {}
    assert gym_published.ours([*most, cell("table", last.env_id, "plus", 0, [1, 2], asked=900)]) == {}
    assert gym_published.ours(runs(study="long")) == {}
    assert gym_published.ours(runs(recipe="another")) == {}


def test_a_published_mean_needs_every_task(tmp_path):
    """A has the scores 1, 1, 1, 1 and 2: 1.2. B lacks a task; C has only a mean."""
    path = tmp_path / "published.csv"
    lines = ["method,task,steps,measure,value,seeds,source"]
    for place, env_id in enumerate(REFERENCES):
        task = env_id.removesuffix("-v5")
        lines += [f"A,{task},100000,return,{scored(env_id, 1 + (place == 4))},7,x"]
        lines += [f"B,{task},100000,return,1,7,x"] if place else []
    lines += ["A,Hopper,1000000,last / largest,0.5,7,x", "A,HalfCheetah,,GMAC a step,9,,x"]
    lines += ["C,,300000,normalised,1.5,,y"]
    path.write_text("\n".join(lines) + "\n")
    found = gym_published.published(path)
    assert found["A"] == Agent({100_000: (pytest.approx(1.2), None)}, 0.5, 9.0, "7")
    assert found["B"].scores == {}
    assert found["C"] == Agent({300_000: Score(1.5)}, None, None, "")


def test_the_committed_means():
    """Computed independently from the published files."""
    found = gym_published.published()
    means = {
        name: [round(score.mean, 2) for score in found[name].scores.values()] for name in ("SimbaV2", "CrossQ", "MR.Q")
    }
    assert means == {"SimbaV2": [0.71, 1.27, 1.62], "CrossQ": [0.74, 1.3, 1.47], "MR.Q": [0.61, 1.02, 1.46]}


def test_the_front_has_the_agents_that_score_higher_than_all_cheaper_ones():
    agents = {
        name: Agent({100_000: Score(score)}, None, gmac, "")
        for name, gmac, score in (("cheap", 1, 0.5), ("worse", 2, 0.4), ("better", 3, 0.6), ("as good", 4, 0.6))
    }
    assert gym_published.front(agents) == ["cheap", "better"]


def test_the_table_says_at_which_step_our_runs_are_read():
    lines = gym_published.table(runs()).splitlines()
    assert lines[2].startswith("| `plus`, any time | 1 | 1.50 at 400 |  |  | 0.33 |  |")
    assert any(line.startswith("| FlashSAC |  | 0.89 | 1.47 | 1.77 | 10.50 |") for line in lines)


def test_runs_without_a_cooldown_are_read_at_the_end():
    """`td3` has no cooldown, so a longer run would return the same at that step."""
    assert list(gym_published.ours(runs(recipe="td3"))) == ["`td3`, any time"]
    assert gym_published.ours(runs(recipe="td3"))["`td3`, any time"].scores[500].mean == pytest.approx(3 * 0.4)


def test_the_multiply_adds_of_td3_by_hand():
    """Two critics 23-400-300-1 in every update, an actor 17-400-300-6 in half of them, on 256 rows.

    Outputs of one unit are sums, not products. For y: forward passes of the actor and both critics. Critics' step: for
    each a forward pass, the weights' gradients, and the gradients between layers. Actor's step: forward passes of the
    actor and a critic, back through the critic to the action, the actor's weights, and between its layers.
    """
    actor, critic, between = 17 * 400 + 400 * 300 + 300 * 6, 23 * 400 + 400 * 300, 400 * 300
    critics = actor + 2 * critic + 2 * (2 * critic + between)
    actors = actor + critic + (between + 6 * 400) + actor + (between + 300 * 6)
    assert gym_published.gmac("td3") == pytest.approx(256 * (critics + actors / 2) / 1e9)
