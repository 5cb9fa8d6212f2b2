"""Draw ``docs/front.gif``: a cheetah and a humanoid, and Platform below, each with its steps and its return.

The folder that is named holds their policies, exported: ``HalfCheetah-v5``, ``Humanoid-v5`` and ``Platform-v0``::

    ddpg train HalfCheetah-v5 --recipe plus --seed 0 --total-timesteps 100000 --threads 1
    ddpg export runs/HalfCheetah-v5/1 --format numpy -o front/HalfCheetah-v5
    MUJOCO_GL=osmesa python docs/draw_front.py front

Nothing here imports TensorFlow, beside which Mesa's software renderer crashes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import ddpg
import ddpg_envs  # noqa: F401 - registers the environments

MARGIN, LABEL = 8, 40  # pixels
SECONDS, RATE = 6, 20
COLOURS = 112
EPISODES, SEED = 20, 1_000  # of the return in the label


class Panel(NamedTuple):
    """One agent: its environment, how it was trained, and the size of its picture."""

    name: str
    env_id: str
    trained: str
    width: int
    height: int


PANELS = (
    Panel("HalfCheetah-v5", "HalfCheetah-v5", "100,000 steps in 7 CPU minutes", 380, 260),
    Panel("Humanoid-v5", "Humanoid-v5", "60,000 steps in 8 CPU minutes", 380, 260),
    Panel("Platform-v0", "ddpg_envs/Platform-v0", "50,000 steps in 18 CPU seconds", 768, 178),
)


def pictures(panel: Panel, policy: Any) -> Iterator[np.ndarray]:
    """Yield ``RATE`` pictures a second of episodes of a policy, one after the other."""
    if panel.env_id.startswith("ddpg_envs/"):
        env = gym.make(panel.env_id, render_mode="rgb_array_list")
    else:
        env = gym.make(
            panel.env_id, render_mode="rgb_array", width=panel.width, height=panel.height, camera_name="track"
        )
    every = env.metadata["render_fps"] / RATE  # steps a picture, at the speed of the world
    episode = 0
    while True:
        observation, _ = env.reset(seed=SEED + episode)
        over, due, step = False, 0.0, 0
        while not over:
            action, _ = policy.predict(observation)
            observation, _, terminated, truncated, _ = env.step(action)
            over, step = terminated or truncated, step + 1
            if env.render_mode == "rgb_array_list":
                yield from env.render()
            elif step >= due:
                due += every
                yield env.render()
        episode += 1


def labelled(panel: Panel, picture: np.ndarray, returns: str) -> Image.Image:
    """Return a picture with the panel's name, training and return above it."""
    canvas = Image.new("RGB", (panel.width, panel.height + LABEL), "white")
    shown = Image.fromarray(picture).resize((panel.width, panel.height), Image.Resampling.LANCZOS)
    canvas.paste(shown, (0, LABEL))
    pen = ImageDraw.Draw(canvas)
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    bold, plain = (ImageFont.truetype(str(fonts / f"DejaVuSans{end}.ttf"), 14) for end in ("-Bold", ""))
    pen.text((2, 2), panel.name, "black", bold)
    pen.text((10 + pen.textlength(panel.name, bold), 2), panel.trained, "black", plain)
    pen.text((2, 20), returns, "black", plain)
    return canvas


def draw(folder: Path, path: Path) -> None:
    """Write the animation of the policies in ``folder``."""
    columns = []
    for panel in PANELS:
        policy = ddpg.load_policy(folder / panel.name)
        found = ddpg.evaluate(policy, gym.make(panel.env_id), episodes=EPISODES, seed=SEED).summary()
        print(panel.name, found)
        mean, low, high = (
            f"{found[key]:,.{2 if abs(found[key]) < 10 else 0}f}" for key in ("mean_return", "ci95_low", "ci95_high")
        )
        made = pictures(panel, policy)
        returns = f"return {mean} ({low} to {high}; {EPISODES} episodes)"
        columns.append([labelled(panel, next(made), returns) for _ in range(SECONDS * RATE)])
    left, _, below = PANELS
    size = below.width, left.height + below.height + 2 * LABEL + MARGIN
    corners = (0, 0), (left.width + MARGIN, 0), (0, left.height + LABEL + MARGIN)
    frames = []
    for row in zip(*columns, strict=True):
        frame = Image.new("RGB", size, "white")
        for corner, picture in zip(corners, row, strict=True):
            frame.paste(picture, corner)
        frames.append(frame)
    palette = _mosaic(frames[:: len(frames) // 8]).quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(path, save_all=True, append_images=small[1:], duration=1000 // RATE, loop=0, optimize=True)
    print(path, f"{path.stat().st_size / 1e6:.2f} MB")


def _mosaic(frames: list[Image.Image]) -> Image.Image:
    whole = Image.new("RGB", (frames[0].width, frames[0].height * len(frames)))
    for number, frame in enumerate(frames):
        whole.paste(frame, (0, number * frame.height))
    return whole


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(__file__).parent / "front.gif")
