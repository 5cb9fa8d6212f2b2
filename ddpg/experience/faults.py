"""What environments do wrong: how it is named, in one line, and how much of it is put up with."""

from typing import Any

from ddpg.errors import EnvironmentFault, UsageError

PATIENCE = 100  # faults in a row, with no transition between them, that dropping puts up with


def name_of(env: Any) -> str:
    """Return the id that ``env`` was made by, or the name of its class."""
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def said(error: BaseException) -> str:
    """Return type and message of an exception in one line, shortened where it is long.

    A :class:`~ddpg.errors.UsageError` says enough by its message.
    """
    kind = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except Exception:  # of somebody else's exception, its text
        return kind
    if isinstance(error, UsageError):
        return text
    if isinstance(error, SystemExit):
        kind = "it called sys.exit (SystemExit)"
    return f"{kind}{': ' * bool(text)}{text if len(text) <= 300 else f'{text[:300]}...'}"


def seeded(seed: int | None) -> str:
    """Return how a reset is told apart from others."""
    return "without a seed" if seed is None else f"with seed {seed}"


class Tolerance:
    """What is done about values that no environment may return.

    They are raised; or, where ``on_bad_transition`` is ``"drop"``, what they belong to is no transition, and the
    episode is abandoned. An environment that does nothing else is not stepped for ever.
    """

    def __init__(self, on_bad_transition: str):
        self._drops = on_bad_transition == "drop"
        self._in_a_row = 0

    def meet(self, fault: EnvironmentFault) -> None:
        """Raise ``fault``, or note it.

        Raises:
            EnvironmentFault: it is not to be dropped, or is one of too many in a row.
        """
        if not self._drops:
            raise fault
        self._in_a_row += 1
        if self._in_a_row >= PATIENCE:
            raise EnvironmentFault(
                f"{fault}; that was fault {self._in_a_row} in a row without a transition between them: "
                "on_bad_transition='drop' goes no further"
            )

    def forgive(self) -> None:
        """Begin to count anew: there was a transition."""
        self._in_a_row = 0
