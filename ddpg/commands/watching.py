"""``ddpg record`` and ``ddpg watch``."""

import dataclasses
import json
import os
from typing import Any

from ddpg.answers import stdout_kept
from ddpg.commands.base import InItsEnvironment, WithJson, find_here, load
from ddpg.commands.looking import WHICH
from ddpg.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch(InItsEnvironment):
    """Episodes of a trained policy in a window."""

    episodes: int = option(1, "how many")
    seed: int | None = option(None, "of the environment; none: from the run's")
    checkpoint: str = option("latest", WHICH, metavar="WHICH")

    def __call__(self) -> None:
        """Show them."""
        self.check_checkpoint(self.checkpoint)
        find_here(*self.allow_import)
        load("ddpg.runs.watching")
        from ddpg.runs.watching import watch_run

        watch_run(
            self.run,
            episodes=self.episodes,
            which=self.checkpoint,
            seed=self.seed,
            allow_import=self.allow_import,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(WithJson, Watch):
    """Episodes of a trained policy as a GIF or a video."""

    output: str | None = option(
        None, "a .gif or .mp4; none: video.gif in the run directory", aliases=("-o",), metavar="FILE"
    )

    def __call__(self) -> None:
        """Write them."""
        with stdout_kept(self.json):
            summary = self._recorded()
        print(json.dumps(summary) if self.json else f"{summary['path']}: {summary['env_id']}, seed {summary['seed']}")

    def _recorded(self) -> dict[str, Any]:
        self.check_checkpoint(self.checkpoint)
        find_here(*self.allow_import)
        load("ddpg.runs.watching")
        from ddpg.runs.watching import record_run

        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            # pygame looks for a screen, and complains, to draw in memory
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        return record_run(
            self.run,
            self.output,
            episodes=self.episodes,
            which=self.checkpoint,
            seed=self.seed,
            allow_import=self.allow_import,
        )
