"""Runs end without drawing their learning curve, unless a test looks at it: drawing costs as much as an agent."""

import contextlib

import pytest

from ddpg.runs import run_loop

FINISH_RUN = run_loop.finish_run


def _finish_without_drawing(run, agent, env_id):
    from ddpg.runs import plotting  # imports Matplotlib

    def stand_in(run, title):
        (run / "learning_curve.png").write_text(title)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plotting, "plot_learning_curve", stand_in)
        return FINISH_RUN(run, agent, env_id)


def leave_out_pictures():
    """Let every run in this process end with a text in place of its picture."""
    run_loop.finish_run = _finish_without_drawing


@contextlib.contextmanager
def drawn():
    """Let runs draw their learning curves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_loop, "finish_run", FINISH_RUN)
        yield
