"""``ddpg train --diagnose`` writes diagnostics.csv, and ``ddpg plot RUN --diagnose`` draws it."""

import dataclasses
import json

import numpy as np
import pytest
from agent_options import TINY
from refusals import lacking, refuses

from ddpg import DDPGConfig, UsageError, train
from ddpg.checkpoints import atomic_write
from ddpg.cli.main import main
from ddpg.errors import FileFault
from ddpg.progress import format_number
from ddpg.runs import recorder
from ddpg.runs.found_runs import read_run
from ddpg.runs.plotting import diagnosis_text, plot_diagnostics, plot_learning_curve
from ddpg.runs.tables import read_table

SMALL = DDPGConfig(**TINY, learning_starts=20, gamma=0.5, updates_per_step=0.1)
RUN = {"seed": 1, "total_timesteps": 400, "evaluation_interval": 200, "evaluation_episodes": 1, "progress_bar": False}


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
    """A run of two episodes, with a row of diagnostics every 20 steps: more would take most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "ROWS", 20)
        return train("Pendulum-v1", SMALL, root=tmp_path_factory.mktemp("runs"), diagnose=True, **RUN)


@pytest.fixture
def undiagnosed(diagnosed, tmp_path):
    """The folder of that run's other files, in which a test writes diagnostics.csv."""
    for name in ("config.json", "evaluations.csv"):
        (tmp_path / name).write_bytes((diagnosed / name).read_bytes())
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures that are written."""
    figures = []
    write = atomic_write.write_figure
    monkeypatch.setattr(
        atomic_write, "write_figure", lambda path, figure: figures.append(figure) or write(path, figure)
    )
    return figures


@pytest.fixture
def figures(monkeypatch):
    """Collect the figures instead of drawing them, which takes a second."""
    found = []
    monkeypatch.setattr(atomic_write, "write_figure", lambda path, figure: found.append(figure) or path)
    return found


@pytest.mark.slow
def test_the_panels_show_the_columns_of_the_tables(diagnosed, drawn, tmp_path):
    path = plot_diagnostics(read_run(diagnosed), tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    returns, values, saturation, *networks = drawn[0].axes
    rows = read_table(diagnosed / "diagnostics.csv")
    assert len(rows) == 20
    column = {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}

    def check(line, name):
        np.testing.assert_array_equal(line.get_xdata(), column["timesteps"])
        np.testing.assert_array_equal(line.get_ydata(), column[name])

    episodes, evaluations = returns.get_lines()
    assert episodes.get_ydata().tolist() == [float(row["return"]) for row in read_table(diagnosed / "episodes.csv")]
    assert evaluations.get_xdata().tolist() == [200, 400]
    for line, name in zip(values.get_lines(), ("q_value", "discounted_return"), strict=True):
        check(line, name)
    (saturated,), metrics = saturation.get_lines(), read_table(diagnosed / "metrics.csv")
    for found, name in zip(saturated.get_data(), ("timesteps", "actions_saturated"), strict=True):
        assert found.tolist() == [float(row[name]) for row in metrics if row["actions_saturated"]]
    measures = "dormant_share", "feature_rank", "weight_norm", "gradient_norm", "effective_learning_rate"
    for axes, measure in zip(networks, measures, strict=True):
        solid = [line for line in axes.get_lines() if line.get_linestyle() == "-"]
        for line, network in zip(solid, ("actor", "critic"), strict=True):
            check(line, f"{network}_{measure}")
            assert line.get_label() == network
    dashed = [line for line in networks[0].get_lines() if line.get_linestyle() == "--"]
    for line, network in zip(dashed, ("actor", "critic"), strict=True):
        check(line, f"{network}_dead_share")


@pytest.mark.slow
def test_every_panel_is_labelled_and_all_share_the_x_axis(diagnosed, drawn, tmp_path):
    plot_diagnostics(read_run(diagnosed), tmp_path / "picture.svg")
    figure = drawn[0]
    assert "Pendulum-v1" in figure.get_suptitle()
    assert "seed 1" in figure.get_suptitle()
    assert all(axes.get_title(loc="left") and axes.get_ylabel() and axes.get_legend() for axes in figure.axes)
    assert [axes.get_xlabel() for axes in figure.axes] == [""] * 7 + ["timesteps"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_without_diagnose_nothing_is_diagnosed(diagnosed, tmp_path, capsys):
    run = train("Pendulum-v1", SMALL, root=tmp_path, **RUN | {"total_timesteps": 30, "evaluation_interval": 30})
    assert not (run / "diagnostics.csv").exists()
    with refuses(UsageError, str(run), "--diagnose"):
        plot_diagnostics(read_run(run), tmp_path / "picture.png")
    (tmp_path / "1").symlink_to(diagnosed)
    capsys.readouterr()
    assert main(["plot", str(tmp_path), "--diagnose", "-o", str(tmp_path / "picture.png")])
    assert "2 runs" in capsys.readouterr().err
    assert not (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_diagnose_must_be_a_bool(value, tmp_path):
    with refuses(UsageError, "diagnose"):
        train("Pendulum-v1", SMALL, root=tmp_path, diagnose=value, **RUN)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = (
        "--hidden 4 --batch-size 4 --learning-starts 20 --no-jit --evaluation-episodes 1 --no-progress-bar --diagnose"
    )
    main(["train", "Pendulum-v1", "--total-timesteps", "40", *options.split()])
    main(["plot", "runs", "--diagnose", "-o", "picture.png"])
    assert "picture.png" in capsys.readouterr().out
    main(["plot", "runs/Pendulum-v1/1", "--diagnose", "-o", "picture.pdf", "--json"])
    assert json.loads(capsys.readouterr().out) == {"picture": "picture.pdf"}
    assert (tmp_path / "picture.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--against second", "against='second' steps seconds"),
        ("--measure median", "measure='median' iqm mean"),
        ("--against seconds", "against='seconds' --diagnose"),
        ("--measure mean", "measure='mean' --diagnose"),
    ],
)
def test_options_of_curves_are_refused(flags, words, diagnosed, tmp_path, capsys):
    """Diagnostics are drawn for one run and against steps."""
    path = tmp_path / "picture.png"
    assert main(["plot", str(diagnosed), "--diagnose", *flags.split(), "-o", str(path)]) == 2
    assert not lacking(capsys.readouterr().err, words)
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("timesteps,q_value\n1,2\n", FileFault, "no column of a network"),
        ("timesteps,actor_weight_norm\n1,much\n", FileFault, "actor_weight_norm much"),
        ("timesteps,actor_weight_norm\n", UsageError, "no row yet"),
    ],
)
def test_a_damaged_table_is_refused(text, error, words, undiagnosed):
    (undiagnosed / "diagnostics.csv").write_text(text)
    with refuses(error, words):
        plot_diagnostics(read_run(undiagnosed), undiagnosed / "picture.png")
    assert not (undiagnosed / "picture.png").exists()


def test_a_table_with_one_network_and_empty_cells_is_drawn(undiagnosed, drawn):
    """As at the start of a run, before there are discounted returns."""
    (undiagnosed / "diagnostics.csv").write_text(
        "timesteps,q_value,q_weight_norm,q_dormant_share,q_dead_share\n1,,2.5,0.5,0.25\n2,,2.0,0.75,0.5\n"
    )
    plot_diagnostics(read_run(undiagnosed), undiagnosed / "picture.png")
    norms = next(axes for axes in drawn[0].axes if "weights" in axes.get_title(loc="left"))
    assert norms.get_lines()[0].get_ydata().tolist() == [2.5, 2.0]
    dormant = next(axes for axes in drawn[0].axes if "Dormant" in axes.get_title(loc="left"))
    shares = {line.get_linestyle(): line.get_ydata().tolist() for line in dormant.get_lines()}
    assert shares == {"-": [0.5, 0.75], "--": [0.25, 0.5]}


def test_a_single_row_is_drawn_as_points(undiagnosed, figures):
    """As at the start of a run: a line of one point has no length. Q is known in one row of two, the norm in both."""
    (undiagnosed / "diagnostics.csv").write_text(
        "timesteps,q_value,discounted_return,q_weight_norm,q_feature_rank\n1,,,2.5,\n2,4.0,,2.0,3\n"
    )
    plot_diagnostics(read_run(undiagnosed), undiagnosed / "picture.png")
    _, (q, unknown), _, (rank,), (norm,), *_ = [axes.get_lines() for axes in figures[0].axes]
    assert [line.get_marker() for line in (q, unknown, rank, norm)] == ["o", "None", "o", "None"]


def test_the_numbers_are_printed_as_a_table(undiagnosed):
    """A column for each quarter of the rows, five here; the evaluations are after 200 and 400 steps."""
    rows = "".join(f"{step},{-step},,0.{step},7.5\n" for step in (100, 150, 200, 300, 410))
    (undiagnosed / "diagnostics.csv").write_text(
        f"timesteps,q_value,discounted_return,q_dormant_share,q_weight_norm\n{rows}"
    )
    (undiagnosed / "metrics.csv").write_text("timesteps,seconds,actions_saturated\n150,1,\n160,1,0.5\n310,1,1.0\n")
    run = read_run(undiagnosed)
    cells = [line.split() for line in diagnosis_text(run).splitlines()]
    first, last = (format_number(value) for value in run.returns)
    assert cells == [
        ["timesteps", "150", "200", "300", "410"],
        ["mean_return", first, first, last],
        ["q_value", "-150", "-200", "-300", "-410"],
        ["actions_saturated", "50%", "50%", "100%"],
        ["q_dormant_share", "15%", "20%", "30%", "41%"],
        ["q_weight_norm", *["7.5"] * 4],
    ]


def write_table(folder, networks):
    """Write two rows of diagnostics: network k has a weight norm of k, then of k + 0.5."""
    norms = [",".join(str(k + add) for k in range(len(networks))) for add in (0, 0.5)]
    rows = [f"{step},1,2,{values}\n" for step, values in enumerate(norms, start=1)]
    header = ",".join(f"{network}_weight_norm" for network in networks)
    (folder / "diagnostics.csv").write_text(f"timesteps,q_value,discounted_return,{header}\n{''.join(rows)}")
    return read_run(folder)


def test_every_network_has_its_own_line(undiagnosed, figures):
    networks = ["actor", "critic", *(f"critic_{number}" for number in range(2, 9))]
    plot_diagnostics(write_table(undiagnosed, networks), undiagnosed / "picture.png")
    norms = next(axes for axes in figures[0].axes if "weights" in axes.get_title(loc="left"))
    lines = norms.get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[k, k + 0.5] for k in range(9)]
    assert [text.get_text() for text in norms.get_legend().get_texts()][-1] == "critic 8"
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9
    labels = [axes.yaxis.get_tick_params(which=ticks) for axes in figures[0].axes for ticks in ("major", "minor")]
    assert {label["labelsize"] for label in labels} == {8}  # those between powers of ten, too


@pytest.mark.parametrize(("networks", "label"), [(["actor", "critic"], "Q(s, μ(s))"), (["q"], "max Q(s, ·)")])
def test_the_label_of_the_value_estimate(networks, label, undiagnosed, figures):
    plot_diagnostics(write_table(undiagnosed, networks), undiagnosed / "picture.png")
    assert [line.get_label() for line in figures[0].axes[1].get_lines()] == [label, "discounted return from s on"]


@pytest.mark.slow
def test_a_long_title_fits(undiagnosed, drawn):
    run = write_table(undiagnosed, ["actor", "critic"])
    long = dataclasses.replace(run, document=run.document | {"env_id": "Long" * 40})
    plot_diagnostics(long, undiagnosed / "picture.png")
    title = drawn[0]._suptitle.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= drawn[0].bbox.x1


def test_a_long_title_of_a_learning_curve_fits(tmp_path, drawn):
    plot_learning_curve(tmp_path, f"DDPG on {'Long' * 40}, seed 0")
    title = drawn[0].axes[0].title.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= drawn[0].bbox.x1
