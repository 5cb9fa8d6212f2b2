"""Make the zoo's table and picture on docs/zoo.md from the entries' cards."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ddpg.config.presets import PRESETS, SUITES
from ddpg.exports import zoo
from ddpg.exports.numpy_policy import load_policy
from ddpg.interaction import env_calls
from ddpg.runs.listing import ZOO_COLUMNS, list_zoo, zoo_rows
from ddpg.runs.rendering import rendering_env

ROOT = Path(__file__).parents[2]
PAGE, PICTURE = ROOT / "docs" / "zoo.md", ROOT / "docs" / "zoo.png"
# Presets without an entry, with the reason. A test compares this with the presets and the entries.
MISSING = {
    "FetchReach-v4": "needs an older MuJoCo than the tests install",
    "dmc/": "a suite of 49 tasks, and needs a package that the tests do not install",
}
ELSEWHERE = {"FetchReach-v4": "robotics.toml"}  # presets that another study trains

_MOMENTS = (0.0, 0.05, 0.15, 0.4)  # shares of an episode that are shown, besides its end
_WIDE, _HIGH, _TEXT, _GAP, _COLUMNS = 140, 105, 26, 8, 2  # all but the last in pixels
_GREY = (235, 235, 235)  # around pictures of another shape


def tables() -> dict[str, str]:
    """Return the table of all entries, and a line about presets without an entry, by mark."""
    rows = [ZOO_COLUMNS, ("---", *("--:",) * 3, "---", "--:"), *zoo_rows(list_zoo())]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    missing = [
        f"{', '.join(name for name, of_name in MISSING.items() if of_name == why)} ({why})"
        for why in dict.fromkeys(MISSING.values())
    ]
    return {"zoo": "\n".join([*lines, "", f"Presets without a policy: {'; '.join(missing) or 'none'}."])}


def without_entry() -> list[str]:
    """Return the presets without an entry."""
    known = zoo.names()
    return [env_id for env_id in (*PRESETS, *SUITES) if zoo.entry_name(env_id) not in known]


def draw(path: Path = PICTURE) -> None:
    """Draw moments of each policy's first episode side by side."""
    strips = [_strip(zoo.read_entry(name)) for name in zoo.names()]
    wide, high = strips[0].size
    sheet = Image.new("RGB", (_COLUMNS * wide, -(-len(strips) // _COLUMNS) * high), "white")
    for number, strip in enumerate(strips):
        sheet.paste(strip, (number % _COLUMNS * wide, number // _COLUMNS * high))
    sheet.quantize(160).save(path, optimize=True)


def _strip(entry: zoo.Entry) -> Image.Image:
    """Return a strip with the moments of one policy, each in a tile of the same size, below a line of text."""
    tile, count = (_WIDE, _HIGH), len(_MOMENTS) + 1
    strip = Image.new("RGB", (count * (_WIDE + _GAP) + 2 * _GAP, _TEXT + _HIGH + 2 * _GAP), "white")
    found = entry.card.evaluation
    steps = f"{found.lengths[0]:,} step{'s' * (found.lengths[0] > 1)}"
    text = f"{entry.name}: return {found.returns[0]:,.4g} in {steps}"
    ImageDraw.Draw(strip).text((_GAP, 4), text, "black", ImageFont.load_default(15))
    for place, picture in enumerate(_moments(entry)):
        image = ImageOps.pad(Image.fromarray(picture), tile, Image.Resampling.LANCZOS, _GREY)
        strip.paste(image, (_GAP + place * (_WIDE + _GAP), _TEXT))
    return strip


def _moments(entry: zoo.Entry) -> list[np.ndarray]:
    """Return pictures of the first episode, uint8 ``[H, W, 3]`` each."""
    card, policy = entry.card, load_policy(f"{zoo.PREFIX}{entry.name}")
    length = card.evaluation.lengths[0]
    steps = {int(moment * length) for moment in _MOMENTS}
    env, found = rendering_env(card.env_id), []
    with env_calls.closing(env):
        observation, _ = env.reset(seed=card.evaluation.seed)
        several = False  # some environments return all pictures since the last call, so they are asked in every step
        for step in range(length + 1):
            shown = step in steps or step == length
            if shown or several:
                picture = env.render()
                several = isinstance(picture, list)
            if shown:
                found.append(picture[-1] if several else picture)
            if step < length:
                observation, *_ = env.step(policy.predict(observation)[0])
    return found
