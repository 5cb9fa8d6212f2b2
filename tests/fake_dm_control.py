"""A control suite with one task that can be computed by hand, as modules named like dm_control's."""

import collections
import types

import numpy as np


class Step(collections.namedtuple("Step", "reward discount observation over")):
    """A time step; ``discount`` is 0 if the task ends the episode."""

    def last(self):
        return self.over


class Environment:
    """Control step n rewards n and observes the last control and n; the episode ends after ``limit`` control steps."""

    def __init__(self, seed, limit=1000, ends_at=None):
        self.task = types.SimpleNamespace(random=np.random.RandomState(seed))
        self.limit, self.ends_at = limit, ends_at
        self.controls, self.closed, self.start = [], False, None
        self.physics = types.SimpleNamespace(render=lambda *size, camera_id: (size, camera_id))

    def control_timestep(self):
        return 0.01

    def action_spec(self):
        return types.SimpleNamespace(minimum=np.array([-1.0, -1.0]), maximum=np.array([1.0, 1.1]))

    def observation_spec(self):
        return {name: types.SimpleNamespace(shape=shape) for name, shape in (("start", (2,)), ("z", ()), ("a", (1, 2)))}

    def _observation(self):
        control = self.controls[-1] if self.controls else np.zeros(2)
        parts = {"start": self.start, "z": len(self.controls), "a": control[None]}
        return collections.OrderedDict(parts)

    def reset(self):
        self.controls, self.start = [], self.task.random.uniform(size=2)
        return Step(None, None, self._observation(), False)

    def step(self, control):
        self.controls.append(np.array(control))
        count = len(self.controls)
        ended = self.ends_at == count
        return Step(float(count), 0.0 if ended else 1.0, self._observation(), ended or count == self.limit)

    def close(self):
        self.closed = True


def modules(load):
    """Return entries of ``sys.modules`` for which ``from dm_control import suite`` gives a suite with this ``load``."""
    suite = types.SimpleNamespace(load=load)
    package = types.ModuleType("dm_control")
    package.suite = suite
    return {"dm_control": package, "dm_control.suite": suite}
