"""The model of workers and learner: its fit, its predictions, and the page with its tables."""

import numpy as np
import pytest
from refusals import refuses

from benchmarks import scaling_model, workers
from benchmarks.scaling_model import Learner, Model, Workers, fit, page, round_, weight_bytes


def test_the_fit_recovers_the_parameters_of_exact_rates():
    made = Workers(100.0, 0.05)
    found = fit([1, 2, 4, 8], [made.steps(count) for count in (1, 2, 4, 8)])
    assert (found.rate, found.loss) == (pytest.approx(100.0, rel=1e-4), pytest.approx(0.05, rel=1e-3))
    assert made.steps(5) == pytest.approx(500 / 1.2)
    assert fit([1, 2, 4], [100.0, 210.0, 430.0]).loss == pytest.approx(
        0.0, abs=1e-6
    )  # rates that grow faster than linearly are noise


def test_a_learner_s_time_is_that_of_updates_publishing_and_storing():
    """A step takes 2 updates of 1/100 s, a hundredth of 0.5 s, and 1/200 s: 0.03 s."""
    assert Learner(100.0, 0.5, 200.0).steps(2.0) == pytest.approx(1 / 0.03)


def test_the_bytes_of_an_actor_s_weights():
    """17-64-64-6: 18 · 64 + 65 · 64 + 65 · 6 numbers of 4 bytes."""
    assert weight_bytes((64, 64)) == 4 * (1152 + 4160 + 390)


def test_the_table_has_the_smaller_rate_and_names_the_limit():
    """One worker makes 100 steps/s and a learner 250, so the learner limits ten workers."""
    learner = Learner(250.0, 0.0, np.inf)
    learners = dict.fromkeys(scaling_model.LEARNERS, learner)
    text = page(Model({"ray": [(1, 100.0)]}, {"ray": Workers(100.0, 0.1)}, {"ray": learners}, 200.0))
    assert "| ray | 100 | 10.0 % | 0.0 ms | 250 steps/s | 2.5 workers | 250 steps/s | 2.5 workers |" in text
    assert "| 1 | 100 | 100 | 100 |" in text
    assert "| 10 |  | 526 | 1,000 |" in text
    # The learner limits 10 times 100 steps/s to 250; 22.8 kB are fetched 2.5 times per second, 250 · 200 bytes sent.
    assert "| 2 | 200 | workers | 0.046 MB/s |" in text
    assert "| 10 | 250 | learner | 0.057 MB/s |" in text
    assert "| 0.05 MB/s |" in text
    assert round_(1234.5) == "1,230"


def test_returns_are_stored_without_times(tmp_path):
    head = "env,config,seed,step,measure,value\n"
    rows = ["E,two,1,9,final_mean_return,-3.0", "E,two,0,9,final_mean_return,-1.00004", "E,two,0,9,last_seconds,7.0"]
    (tmp_path / "results.csv").write_text(head + "\n".join(rows) + "\n")
    kept = workers.returns_of(tmp_path)
    assert [row["value"] for row in kept] == ["-3.0000", "-1.0000"]
    assert workers.table(kept).splitlines()[2:] == ["| E | two | -1.0, -3.0 | -2.0 |"]


def test_ray_accepts_the_page_s_cluster_file():
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    import yaml
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = scaling_model.PAGE.read_text(encoding="utf-8").split("```{code-block} yaml\n")[1].split("```")[0]
    validate_config(prepare_config(yaml.safe_load(text)))
    with refuses(Exception, "idle_minutes"):
        validate_config(prepare_config(yaml.safe_load(text) | {"idle_minutes": 2}))


def test_the_model_is_drawn(tmp_path):
    scaling_model.draw(scaling_model.read(), tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
