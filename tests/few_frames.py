"""Videos of a few frames, for tests that do not look at them: drawing and encoding take most of a recording's time."""

import itertools

from ddpg.runs import rendering
from ddpg.runs.rendering_process import RenderingProcess

FRAMES = 20


def few_frames(monkeypatch, count=FRAMES):
    """Let every video end after ``count`` frames, rendered in this process or in another."""
    here, elsewhere = rendering._frames, RenderingProcess.frames

    def short(frames):
        def frames_of(*arguments):
            yield from itertools.islice(frames(*arguments), count)

        return frames_of

    monkeypatch.setattr(rendering, "_frames", short(here))
    monkeypatch.setattr(RenderingProcess, "frames", short(elsewhere))
