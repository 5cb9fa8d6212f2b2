"""Export a policy as C: a directory with ``policy.h``, ``policy.c``, and ``policy.json``, which describes them.

A policy of another name has it in place of ``policy`` in files, functions and macros, all but ``policy.json``.
The code is C99, allocates no memory and needs no library except the C mathematics library.
"""

import dataclasses
import hashlib
import re
import string
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.checkpoints import arrays as array_files
from ddpg.errors import UsageError, brief
from ddpg.exports import formats, policy_file
from ddpg.exports.c_network import CProgram, array_text, lower_to_c, network_text, number_text, stack_bytes
from ddpg.exports.export_dir import MARK, POLICY, code_sha256
from ddpg.exports.policy_file import SelfTest
from ddpg.exports.policy_graph import ACTIONS, VALUES, float32_scaling
from ddpg.interaction.action_mask import FORBIDDEN
from ddpg.interaction.actions import Actions, BoxActions, ParameterisedActions
from ddpg.policies.numpy_program import NumpyProgram

_LONGEST_NAME = 63  # characters
# Of C and C++. A header of C's library, which the policy or the program may include, would be found in its place;
# glibc's own headers include features.h.
_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile
    wchar_t while xor xor_eq
"""
_HEADERS = """
    assert complex ctype errno features fenv inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
"""
_CONSTANT = re.compile(r"static const (float|signed char) (\w+)((?:\[\d+\])+) = (\{.*?\});", re.DOTALL)


def check_name(name: Any) -> str:
    """Return the name of a policy in C.

    Raises:
        UsageError: if it is no identifier that begins with a letter, a keyword of C or C++, or one that would hide a
            header of C's library or an array of the self-test.
    """
    if not isinstance(name, str) or not re.fullmatch(rf"[A-Za-z][A-Za-z0-9_]{{0,{_LONGEST_NAME - 1}}}", name):
        why = f"expected a C identifier: a letter, then at most {_LONGEST_NAME - 1} letters, digits and underscores"
    elif name in _KEYWORDS.split():
        why = "it is a keyword of C or C++"
    elif name.lower() in _HEADERS.split():
        why = f"it would hide C's own header {name.lower()}.h"
    elif name == "test":
        why = "it names an array of the self-test, test_outputs"
    else:
        return name
    raise UsageError(f"name={brief(name)} cannot name a policy in C: {why}; use another, such as name='walk'")


def check_action_space(space: gym.Space) -> None:
    """Refuse discrete actions whose numbers do not fit an ``int`` of 32 bits.

    Raises:
        UsageError: if a number does not fit.
    """
    choices = space.spaces[0] if isinstance(space, gym.spaces.Tuple) else space
    if not isinstance(choices, gym.spaces.Discrete):
        return
    start, count = int(choices.start), int(choices.n)  # theirs may be of a dtype of 8 bits
    if not -(2**31) <= start <= 2**31 - 1 - count:
        raise UsageError(
            f"format='c' numbers discrete actions by int, 32 bits, which {choices} exceeds; use another start, or "
            "format='numpy'"
        )


def header_text(program: CProgram, observation_space: gym.spaces.Box, actions: Actions, mask: int, about: str) -> str:
    """Return ``policy.h``: the sizes, and the declarations of ``policy_act`` and ``policy_outputs``."""
    masked = (
        f"\n *   its last {mask} numbers are the action mask: 1 allows an action, 0 forbids it"
        f"\n *   (the value of a forbidden action is {FORBIDDEN:g}; if all are forbidden, the first is returned)"
    )
    array = len(observation_space.shape) > 1 or observation_space.dtype.kind != "f"
    given = "\n *   its numbers as float, one after another; of its axes, the last changes fastest"
    layout = _layout(actions)
    sizes = [("OBSERVATION_SIZE", program.observation_size), ("OUTPUT_SIZE", program.result.width), *layout.sizes]
    return string.Template(_HEADER).substitute(
        mark=MARK,
        about=about,
        observation_space=_comment(observation_space) + (given if array else "") + (masked if mask else ""),
        action_space=_comment(actions.space),
        sizes="\n".join(f"#define POLICY_{name} {size}" for name, size in sizes),
        outputs=layout.outputs,
        action=layout.comment,
        masked=", or the action mask anything but 0 and 1" if mask else "",
        act=f"int policy_act(const float observation[POLICY_OBSERVATION_SIZE], {layout.arguments})",
    )


def source_text(program: CProgram, actions: Actions, test: SelfTest, about: str) -> str:
    """Return ``policy.c``: the constants, the network, the action's scaling, and the self-test."""
    # A constant of one number is written into the loop that reads it.
    written = [name for name, array in program.arrays.items() if array.size > 1 or not name.startswith("constant")]
    quantised = any(array.dtype == np.int8 for array in program.arrays.values())
    return string.Template(_SOURCE).substitute(
        mark=MARK,
        about=about,
        constants="\n\n".join(array_text(name, program.arrays[name]) for name in written),
        network=network_text(program),
        act=_act(actions, test.mask),
        vector=_vector_comment(test),
        test=_test(actions, test, "the quantised policy" if quantised else "the agent"),
    )


def renamed(text: str, name: str) -> str:
    """Return the text of :func:`header_text` or :func:`source_text` for a policy of another name.

    >>> renamed('#include "policy.h"', "walk"), renamed("policy_act, POLICY_MAIN", "MY_POLICY")
    ('#include "walk.h"', 'MY_POLICY_act, MY_POLICY_MAIN')
    """
    text = text.replace("POLICY_", f"{name.upper()}_")  # first, since a name may contain it
    return re.sub(r"\bpolicy(?=_act\b|_outputs\b|\.[ch]\b)", name, text)


def read_arrays(text: str) -> dict[str, np.ndarray]:
    """Return the constants of a ``policy.c`` by name, parsed from its text."""
    found = {}
    for kind, name, shape, body in _CONSTANT.findall(text):
        numbers = [float(number.rstrip("f")) for number in re.findall(r"[-+.\w]+", body)]
        array = np.array(numbers).astype(np.float32 if kind == "float" else np.int8)
        found[name] = array.reshape([int(size) for size in re.findall(r"\d+", shape)])
    return found


# -- the action ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How ``policy_act`` makes an action of the network's outputs, for one kind of action space.

    Attributes:
        choices: how many outputs, the first ones, are values or scores of discrete actions.
        scaled: how many outputs, the last ones, are scaled to env units.
        clipped: whether outputs count as clipped to [-1, 1].
        sizes: macros.
        arguments: the arguments that receive the action.
        outputs: what the network's outputs are.
        comment: what the arguments receive.
    """

    choices: int
    scaled: int
    clipped: bool
    sizes: list[tuple[str, int]]
    arguments: str
    outputs: str
    comment: str


def _layout(actions: Actions) -> _Layout:
    if isinstance(actions, BoxActions):
        return _Layout(
            choices=0,
            scaled=actions.size,
            clipped=True,
            sizes=[("ACTION_SIZE", actions.size)],
            arguments="float action[POLICY_ACTION_SIZE]",
            outputs="actions; those outside [-1, 1] count as at the bound",
            comment="action: in the units of the environment, inside its bounds, row by row",
        )
    if not isinstance(actions, ParameterisedActions):
        space: Any = actions.space
        return _Layout(
            choices=int(space.n),
            scaled=0,
            clipped=False,
            sizes=[],
            arguments="int *action",
            outputs="the value of each action",
            comment="action: the one with the largest value",
        )
    scaled = actions.size - actions.scores
    parameters = (
        f"; parameters: of all choices one after another, in the units of the\n * environment: {_offsets(actions)}"
    )
    return _Layout(
        choices=actions.scores,
        scaled=scaled,
        clipped=True,
        sizes=[("PARAMETER_SIZE", scaled)],
        arguments="int *choice" + (", float parameters[POLICY_PARAMETER_SIZE]" if scaled else ""),
        outputs="a score of each choice, then the parameters of all choices; both count as clipped to [-1, 1]",
        comment="choice: the one with the largest score" + (parameters if scaled else ""),
    )


def _offsets(actions: ParameterisedActions) -> str:
    """Return which of the parameters belong to which choice."""
    texts = []
    for choice, numbers in enumerate(actions.slices, start=actions.start):
        begin, end = numbers.start - actions.scores, numbers.stop - actions.scores
        texts.append(f"of choice {choice} " + (f"parameters {begin} to {end - 1}" if begin < end else "no parameters"))
    return ", ".join(texts)


def _scaling(actions: Actions) -> dict[str, np.ndarray]:
    """Return how outputs become actions, without those that are scores of choices."""
    low, high = actions.bounds  # type: ignore[attr-defined] # of boxes and parameterised actions
    return float32_scaling(low[actions.scores :], high[actions.scores :])


def scaled_actions(actions: Actions, outputs: np.ndarray, constants: dict[str, np.ndarray]) -> np.ndarray:
    """Return the actions that ``policy_act`` computes from outputs ``[B, n]``, in env units.

    Parameterised actions are the scores, clipped to [-1, 1], followed by the parameters. ``constants`` come from the
    text of ``policy.c``.
    """
    scores, rest = np.split(outputs.astype(np.float32), [actions.scores], axis=1)
    if rest.shape[1]:
        low, high = constants["low"], constants["high"]
        rest = np.maximum(np.minimum(rest * constants["half_range"] + constants["middle"], high), low)
    return np.concatenate([np.clip(scores, -1, 1), rest], axis=1)


def _act(actions: Actions, mask: int) -> str:
    """Return the constants, and the function that turns the outputs into an action."""
    layout = _layout(actions)
    arrays, choice, scale = "", "", ""
    if layout.choices:
        template, target = (_CHOOSE, "choice") if layout.clipped else (_LARGEST, "action")
        choice = string.Template(template).substitute(start=actions.start, count=layout.choices, target=target)
    if layout.scaled:
        arrays = "\n\n".join(array_text(name, array) for name, array in _scaling(actions).items())
        output = f"outputs[{layout.choices} + j]" if layout.choices else "outputs[j]"
        target = "parameters" if layout.choices else "action"
        scale = string.Template(_SCALE).substitute(size=layout.scaled, output=output, target=target)
    check = string.Template(_CHECK_MASK).substitute(size=mask) if mask else ""
    parts = {"arrays": arrays, "arguments": layout.arguments, "mask": check, "choice": choice, "scale": scale}
    return string.Template(_ACT).substitute(parts)


# -- the self-test ---------------------------------------------------------------------------------------


def _comment(space: gym.Space, indent: str = "   ") -> str:
    """Describe a space for a C comment, with at most eight bounds of each box."""
    if isinstance(space, gym.spaces.Box):
        low, high = (bound.reshape(-1) for bound in (space.low, space.high))
        bounds = ", ".join(f"[{one:g}, {other:g}]" for one, other in zip(low[:8], high[:8], strict=True))
        alike = low.size > 1 and (low == low[0]).all() and (high == high[0]).all()
        every = f"each in [{low[0]:g}, {high[0]:g}]" if alike else bounds + (", ..." if low.size > 8 else "")
        return f"Box of shape {tuple(space.shape)}, {space.dtype}: {every or 'empty'}"
    if isinstance(space, gym.spaces.Discrete):
        start, count = int(space.start), int(space.n)  # theirs may be of a dtype that their sum exceeds
        return f"Discrete: integers from {start} to {start + count - 1}"
    name = type(space).__name__
    return f"{name} of\n" + "\n".join(f" *{indent}{_comment(part, indent + '  ')}" for part in space.spaces)  # type: ignore[attr-defined]


def _vector_comment(test: SelfTest) -> str:
    def listed(numbers: np.ndarray) -> str:
        shown = ", ".join(number_text(number).rstrip("f") for number in np.ravel(numbers)[:8])
        return f"[{shown}{', ...' if np.size(numbers) > 8 else ''}]"

    rows = zip(test.observations[:2], test.outputs[:2].astype(np.float32), strict=True)
    return "\n".join(
        f" * observation {listed(observation)}\n *   -> outputs {listed(outputs)}" for observation, outputs in rows
    )


def _test(actions: Actions, test: SelfTest, origin: str) -> str:
    """Return the self-test; ``origin`` says in its message what computed the outputs of ``test``."""
    layout, outputs = _layout(actions), test.outputs.astype(np.float32)
    count, rows = len(outputs), test.observations.reshape(len(outputs), -1).astype(np.float32)
    arrays = [array_text("test_observations", rows), array_text("test_outputs", outputs)]
    difference = "fabsf(clipped(outputs[j]) - clipped(test_outputs[k][j]))"
    if not layout.clipped:
        allowed_value = outputs > FORBIDDEN / 2
        scale = number_text(np.float32(np.abs(outputs).max(initial=1.0, where=allowed_value)))
        if not allowed_value.all():  # the values of forbidden actions are compared relative to themselves
            scale = f"((test_outputs[k][j] > {number_text(np.float32(FORBIDDEN / 2))}) ? {scale} : -test_outputs[k][j])"
        difference = f"fabsf(outputs[j] - test_outputs[k][j]) / {scale}"
    declared, act, check, choice = "", [], "", ""
    if layout.choices:
        chosen = f"outputs[choice - ({actions.start})]"
        choice = string.Template(_CHECK_CHOICE).substitute(
            choices=layout.choices,
            value="clipped(outputs[j])" if layout.clipped else "outputs[j]",
            chosen=f"clipped({chosen})" if layout.clipped else chosen,
        )
        act.append("&choice")
    if layout.scaled:
        scaling = _scaling(actions)
        expected = scaled_actions(actions, outputs, scaling)[:, layout.choices :]
        largest = np.maximum(np.abs(scaling["low"]), np.abs(scaling["high"]))
        allowed = test.tolerance * scaling["half_range"] + 2 * np.finfo(np.float32).eps * largest
        arrays += [array_text("test_actions", expected), array_text("allowed", allowed.astype(np.float32))]
        declared = f"        float action[{layout.scaled}];\n"
        check = string.Template(_CHECK).substitute(size=layout.scaled)
        act.append("action")
    return string.Template(_MAIN).substitute(
        arrays="\n\n".join(arrays),
        origin=origin,
        count=count,
        declared=declared + ("        int choice;\n" if layout.choices else ""),
        act=", ".join(act),
        size=outputs.shape[1],
        difference=difference,
        tolerance=number_text(np.float32(test.tolerance)),
        clipped=_CLIPPED if layout.clipped else "",
        choice=choice,
        check=check,
    )


_HEADER = """\
/* A trained policy: an observation in, an action out. $mark
 *
 * $about
 *
 * observation: $observation_space
 * action: $action_space
 *
 * C99 and its mathematics library; no allocation, no state: threads may call it at the same time.
 * To check it on a machine: cc -std=c99 -O2 -DPOLICY_MAIN policy.c -lm && ./a.out
 */
#ifndef POLICY_H
#define POLICY_H

$sizes

#ifdef __cplusplus
extern "C" {
#endif

/* Compute the action for an observation, which is in the units of the environment, row by row.
 * $action
 * Returns 0; 1 if the observation or an output of the network is NaN or infinite$masked: nothing is written then.
 */
$act;

/* Compute the outputs of the network:
 * $outputs.
 */
void policy_outputs(const float observation[POLICY_OBSERVATION_SIZE], float outputs[POLICY_OUTPUT_SIZE]);

#ifdef __cplusplus
}
#endif

#endif
"""

_SOURCE = """\
/* A trained policy: see policy.h. $mark
 *
 * $about
 *
 * Expected outputs for two observations:
$vector
 */
#include "policy.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

$constants

void policy_outputs(const float observation[POLICY_OBSERVATION_SIZE], float outputs[POLICY_OUTPUT_SIZE])
{
$network
}

/* By the exponent's bits: with -ffast-math, compilers assume that comparisons never see NaN. */
static int all_finite(const float *numbers, int count)
{
    int j;

    for (j = 0; j < count; j++) {
        uint32_t bits;
        memcpy(&bits, &numbers[j], sizeof bits);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            return 0;
    }
    return 1;
}

$act
$test"""

_ACT = """\
$arrays

int policy_act(const float observation[POLICY_OBSERVATION_SIZE], $arguments)
{
    float outputs[POLICY_OUTPUT_SIZE];
    int j;

    if (!all_finite(observation, POLICY_OBSERVATION_SIZE))
        return 1;
$mask    policy_outputs(observation, outputs);
    if (!all_finite(outputs, POLICY_OUTPUT_SIZE))
        return 1;
$choice$scale    return 0;
}
"""

_CHECK_MASK = """\
    for (j = POLICY_OBSERVATION_SIZE - $size; j < POLICY_OBSERVATION_SIZE; j++)
        if (observation[j] != 0.0f && observation[j] != 1.0f)
            return 1;
"""

_SCALE = """\
    for (j = 0; j < $size; j++) {
        const float scaled = half_range[j] * $output + middle[j];
        const float below = (scaled > high[j]) ? high[j] : scaled;
        $target[j] = (below < low[j]) ? low[j] : below;
    }
"""

_LARGEST = """\
    {
        int largest = 0;
        for (j = 1; j < $count; j++)
            if (outputs[j] > outputs[largest])
                largest = j;
        *$target = $start + largest;
    }
"""

_CHOOSE = f"""\
    for (j = 0; j < $count; j++) {{
        const float below = (outputs[j] > 1.0f) ? 1.0f : outputs[j];
        outputs[j] = (below < -1.0f) ? -1.0f : below;
    }}
{_LARGEST}"""

_CLIPPED = """
static float clipped(float number)
{
    return (number > 1.0f) ? 1.0f : ((number < -1.0f) ? -1.0f : number);
}
"""

_CHECK = """\
        for (j = 0; j < $size; j++)
            if (!(fabsf(action[j] - test_actions[k][j]) <= allowed[j]))
                failed = 1;
"""

_CHECK_CHOICE = """\
        for (j = 0; j < $choices; j++)
            if ($value > $chosen)
                failed = 1;
"""

_MAIN = """\

#ifdef POLICY_MAIN

#include <stdio.h>

$arrays
$clipped
int main(void)
{
    const float tolerance = $tolerance;
    float largest = 0.0f;
    int failed = 0, j, k;

    for (k = 0; k < $count; k++) {
        float outputs[POLICY_OUTPUT_SIZE];
$declared
        policy_outputs(test_observations[k], outputs);
        for (j = 0; j < $size; j++) {
            const float difference = $difference;
            if (!(difference <= tolerance))
                failed = 1;
            if (!(difference <= largest))
                largest = difference;
        }
        if (policy_act(test_observations[k], $act)) {
            failed = 1;
            continue;
        }
$choice$check    }
    {
        const uint32_t nan_bits = 0x7fc00000u;
        float observation[POLICY_OBSERVATION_SIZE];
$declared
        memcpy(observation, test_observations[0], sizeof observation);
        memcpy(&observation[0], &nan_bits, sizeof nan_bits);
        if (!policy_act(observation, $act)) {
            failed = 1;
            printf("acts on an observation with NaN; ");
        }
    }
    printf("differs from $origin by %.2g at most; ", (double)largest);
    printf("rounding alone may cause %.2g\\n", (double)tolerance);
    return failed;
}

#endif
"""


def write(
    folder: Path,
    program: NumpyProgram,
    observation_space: gym.spaces.Box,
    actions: Actions,
    test: SelfTest,
    quantize: str | None = None,
    name: str = POLICY,
) -> formats.Runner:
    """Write a policy to a new directory.

    Args:
        folder: the directory, which must not exist.
        program: the network; its input is ``[B, *observation_space.shape]``.
        observation_space: of the environment.
        actions: the translation of outputs to actions, which :func:`ddpg.exports.policy_graph.check_float32` accepts.
        test: what ``main`` compares the policy with; with ``quantize``, the quantised network's outputs instead.
        quantize: as for :func:`ddpg.exports.c_network.lower_to_c`.
        name: of the files and functions, and in capitals of the macros, which :func:`check_name` accepts.

    Returns:
        The policy of the written text as a function of NumPy arrays, with the constants read back from the text.

    Raises:
        UsageError: if a weight is NaN or infinite, a discrete action's number does not fit C's ``int``, or the
            description of the spaces is too long.
    """
    check_action_space(actions.space)
    array_files.check_finite("policy", {str(register): array for register, array in program.arrays().items()})
    lowered = lower_to_c(program, observation_space.shape, quantize)
    test = test if quantize is None else test._replace(outputs=lowered.outputs(test.observations))
    about = _about(lowered, quantize)
    texts = {
        f"{name}.h": renamed(header_text(lowered, observation_space, actions, test.mask, about), name),
        f"{name}.c": renamed(source_text(lowered, actions, test, about), name),
    }
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_bytes(text.encode("ascii"))  # write_text would end lines differently on Windows
    whole = {
        **policy_file.export_metadata("c", observation_space, actions.space),
        "quantize": quantize,
        **({} if name == POLICY else {"name": name}),
        **{code_sha256(name)[file]: hashlib.sha256(text.encode()).hexdigest() for file, text in texts.items()},
    }
    policy_file.write_about(folder, whole)
    constants = read_arrays((folder / f"{name}.c").read_text(encoding="ascii"))

    def run(observations: np.ndarray) -> formats.Outputs:
        outputs = lowered.outputs(observations, {**lowered.arrays, **constants})
        if isinstance(actions, (BoxActions, ParameterisedActions)):
            return {ACTIONS: scaled_actions(actions, outputs, constants)}
        return {VALUES: outputs, ACTIONS: outputs.argmax(axis=1) + actions.start}

    return run


def _about(program: CProgram, quantize: str | None) -> str:
    """Return a line on the size of the constants and of what a call keeps on the stack."""
    size = sum(array.nbytes for array in program.arrays.values())
    kind = "float32" if quantize is None else f"weights {quantize}, with a float32 scale for each output of a layer"
    constants = f"{sum(array.size for array in program.arrays.values()):,} constants of {size:,} bytes: {kind}"
    return f"{constants}; {stack_bytes(program):,} bytes of the stack hold a call's rows."
