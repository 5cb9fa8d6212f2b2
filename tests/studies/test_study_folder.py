"""The stage and the state of a cell, as the files of its folder show them."""

from tests.small_studies import Stubbed, train_by_hand

HEADER = "timesteps,mean_return,std_return,success_rate"


def test_a_cell_that_was_interrupted_in_its_last_evaluation_is_resumed(tmp_path, monkeypatch):
    """Its checkpoint is at the goal, but its table ends before."""
    study = Stubbed(tmp_path, monkeypatch, 1)
    (folder,) = study.cell_folders
    train_by_hand(folder, [1.0, 3.0])
    table = folder.run / "evaluations.csv"
    for rows, stage, state in (
        ([], "resume", "interrupted"),
        (["50,1.0,1.5,"], "resume", "interrupted"),
        (["50,1.0,1.5,", "100,3.0,1.5,"], None, "finished"),
    ):
        table.write_text("\n".join([HEADER, *rows, ""]))
        assert (folder.stage, folder.state) == (stage, state)
    table.unlink()  # lost: training has ended, and resuming would find nothing left
    assert folder.stage is None
