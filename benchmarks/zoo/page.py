"""The zoo's table and picture on docs/zoo.md, made from the cards."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks import marks
from ddpg.config.presets import PRESETS
from ddpg.exports import zoo
from ddpg.exports.numpy_policy import load_policy
from ddpg.interaction import env_calls
from ddpg.runs.video import rendering_env
from ddpg.runs.zoo_policy import COLUMNS, list_zoo, zoo_rows

ROOT = Path(__file__).parents[2]
PAGE, PICTURE = "docs/zoo.md", "docs/zoo.png"
# Presets without an entry, and why. A test compares this with the presets and the entries.
MISSING: dict[str, str] = {
    "ddpg_envs/HalfFieldOffense-v0": "its run is not done",
    "FetchReach-v4": "its run is not done",
    "MountainCarContinuous-v0": "its run is not done",
    "BipedalWalker-v3": "its run is not done",
    "Swimmer-v5": "its run is not done",
    "HalfCheetah-v5": "its run is not done",
    "Hopper-v5": "its run is not done",
    "Walker2d-v5": "its run is not done",
    "Ant-v5": "its run is not done",
    "Humanoid-v5": "its run is not done",
}

# Presets that presets.toml leaves to another study, for they need another package.
ELSEWHERE = {"BipedalWalker-v3": "box2d.toml", "FetchReach-v4": "robotics.toml"}

_MOMENTS = (0.0, 0.05, 0.15, 0.4, 0.99)  # of an episode
_WIDE, _HIGH, _TEXT = 150, 120, 26  # pixels


def table() -> str:
    """Return the table of all entries, and a line on what is missing."""
    rows = [COLUMNS, ("---", *("--:",) * 3, "---", "--:"), *zoo_rows(list_zoo())]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    missing = "; ".join(f"{name} ({why})" for name, why in MISSING.items())
    return "\n".join([*lines, "", f"Presets without a policy yet: {missing or 'none'}."])


def write(root: Path = ROOT) -> None:
    """Fill the table on the page."""
    marks.write(root / PAGE, {"zoo": table()})


def without_entry() -> list[str]:
    """Return the presets that no entry is of."""
    known = zoo.names()
    return [env_id for env_id in PRESETS if zoo.entry_name(env_id) not in known]


def draw(root: Path = ROOT) -> None:
    """Draw moments of each policy's first episode, beside each other."""
    names = zoo.names()
    columns = 2
    height, width = _HIGH + _TEXT, len(_MOMENTS) * _WIDE
    sheet = Image.new("RGB", (columns * (width + 20) - 20, -(-len(names) // columns) * height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for number, name in enumerate(names):
        card = zoo.read_entry(name).card
        left, top = number % columns * (width + 20), number // columns * height
        first = card.evaluation.returns[0]
        pen.text((left, top + 4), f"{name}: return {first:,.4g} in {card.evaluation.lengths[0]} steps", "black", font)
        for place, picture in enumerate(_moments(name, card)):
            small = Image.fromarray(picture)
            small.thumbnail((_WIDE, _HIGH), Image.Resampling.LANCZOS)
            sheet.paste(small, (left + place * _WIDE, top + _TEXT))
    sheet.quantize(160).save(root / PICTURE, optimize=True)


def _moments(name: str, card: zoo.Card) -> list[np.ndarray]:
    policy, env = load_policy(f"{zoo.PREFIX}{name}"), rendering_env(card.env_id)
    wanted = {int(moment * card.evaluation.lengths[0]) for moment in _MOMENTS}
    found = []
    with env_calls.closing(env):
        observation, _ = env.reset(seed=card.evaluation.seed)
        for step in range(card.evaluation.lengths[0]):
            if step in wanted:
                picture = env.render()
                found.append(picture[-1] if isinstance(picture, list) else picture)
            observation, *_ = env.step(policy.predict(observation)[0])
    return found
