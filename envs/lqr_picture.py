"""Draw the regulator for rendering: a mass between a spring and a force."""

import numpy as np

from .drawing import Canvas

PAPER, STEEL, BLUE, RED, GREEN, INK = (
    *((255, 255, 255), (150, 150, 155), (40, 90, 200)),
    *((200, 60, 60), (40, 140, 70), (50, 50, 60)),
)
TITLE = "LQR: bring the mass to rest at 0, with little force"
REACH = 2.0  # m to either side
_HALF, _HEIGHT = 0.16, 0.36  # m, half the width and the height of the mass
_COILS = 12
_LONGEST = 0.6  # m, length of the arrow for the largest force


def draw(position: float, velocity: float, force: float, largest: float) -> np.ndarray:
    """Return an image of the track from −2 to 2 m, uint8 ``[176, 640, 3]``; a mass beyond it is drawn at its end.

    Args:
        position: position of the mass (m).
        velocity: its velocity (m/s).
        force: the last applied force (N).
        largest: the largest possible force (N).
    """
    canvas = Canvas((-2.5, -0.3125), (2.5, 1.0625), 128, PAPER)
    canvas.rectangle((-2.5, -0.03), (2.5, 0.0), STEEL)
    canvas.rectangle((-2.5, 0.0), (-2.36, 0.5), STEEL)
    for metre in range(-2, 3):
        canvas.line([(metre, -0.03), (metre, -0.1)], STEEL)
        canvas.text((metre, -0.2), f"{metre} m", INK, 12)
    canvas.line([(0.0, 0.0), (0.0, 0.56)], GREEN)
    canvas.text((0.0, 0.63), "rest", GREEN, 12)
    x = min(max(position, -REACH), REACH)
    middle, start = _HEIGHT / 2, -2.36
    length = x - _HALF - start
    coils = [(start + length * (n + 0.5) / _COILS, middle + (0.07 if n % 2 else -0.07)) for n in range(_COILS)]
    canvas.line([(start, middle), *coils, (x - _HALF, middle)], STEEL, 2)
    canvas.rectangle((x - _HALF, 0.0), (x + _HALF, _HEIGHT), BLUE)
    if force:
        tip = x + _LONGEST * force / largest
        back = 0.06 if force > 0 else -0.06
        canvas.line([(x, _HEIGHT + 0.08), (tip, _HEIGHT + 0.08)], RED, 3)
        canvas.line([(tip - back, _HEIGHT + 0.13), (tip, _HEIGHT + 0.08), (tip - back, _HEIGHT + 0.03)], RED, 3)
    canvas.text((-2.45, 1.03), TITLE, INK, anchor="la")
    canvas.text((-2.45, 0.86), f"position {position:+.2f} m, velocity {velocity:+.2f} m/s", BLUE, anchor="la")
    canvas.text((2.45, 0.86), f"force {force:+.2f} N", RED, anchor="ra")
    return canvas.array()
