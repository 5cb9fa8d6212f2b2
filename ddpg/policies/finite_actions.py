"""Check that a policy's outputs are finite, so that no NaN action reaches an environment. NumPy only."""

from collections.abc import Callable

import numpy as np

from ddpg.errors import UsageError


def finite_outputs(
    policy: Callable[[np.ndarray], np.ndarray],
    observations: np.ndarray,
    too_large: type[Exception] = UsageError,
    not_finite: type[Exception] = UsageError,
) -> np.ndarray:
    """Return ``policy(observations)``.

    Args:
        policy: from ``[B, *observation shape]`` to ``[B, n]``.
        observations: finite observations.
        too_large: the exception to raise if finite observations overflow in the layers.
        not_finite: the exception to raise if the output for zeros is not finite either.

    Raises:
        Exception: if an output is NaN or infinite; it names the observation and its largest number.
    """
    with np.errstate(all="ignore"):  # what overflows and matters is named below
        outputs = policy(observations)
        numbers = outputs.ravel()
        # The dot product is not finite if any number is not; much faster than isfinite of each.
        finite = np.dot(numbers, numbers) < np.inf or np.isfinite(outputs).all()
        if finite:
            return outputs
        row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
        if not np.isfinite(policy(np.zeros_like(observations[:1]))).all():
            raise not_finite(
                f"the policy puts out {outputs[row].tolist()} for observation {row}, and nothing finite for zeros "
                "either: its weights are not finite, or too large; training has diverged: go back to an earlier "
                "checkpoint, and lower the learning rate or scale the rewards down"
            )
    observation = observations[row]
    place = np.unravel_index(np.abs(observation).argmax(), observation.shape)
    raise too_large(
        f"the policy puts out {outputs[row].tolist()} for observation {row}, whose largest number is "
        f"{observation[place]:.4g} at index {[int(index) for index in place]}: its layers overflow float32; give "
        "observations of the size it learned from, or scale them in the environment"
    )
