"""How weights move: one algorithm a screen, and what drives it."""
