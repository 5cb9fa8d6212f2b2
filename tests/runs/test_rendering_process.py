"""Rendering in a separate process without TensorFlow: it gives the same frames, and every failure is one line."""

import ctypes.util
import importlib.util
import signal
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from drawn_envs import Mujoco, Telling
from PIL import Image
from refusals import refuses

import ddpg
import ddpg_envs  # noqa: F401 - registers
from ddpg import UsageError
from ddpg.errors import EnvironmentFault
from ddpg.runs import rendering, video
from ddpg.runs.env_source import EnvSource
from ddpg.runs.rendering_process import RenderingProcess, can_render_in_child, open_renderer


class Rising:
    """Its action grows by 0.1 in each step."""

    def __init__(self):
        self.action = 0.0

    def predict(self, observation, deterministic):
        assert deterministic
        self.action += 0.1
        return np.full(1, self.action, np.float32), None


class Interrupted(Rising):
    def predict(self, observation, deterministic):
        raise KeyboardInterrupt


def shades_of(policy, env_id, episodes):
    with RenderingProcess(env_id) as drawn:
        return [frame[0, 0].tolist() for frame in drawn.frames(policy, episodes, 0)]


def test_frames_are_drawn_in_a_process_without_tensorflow():
    assert "tensorflow" in sys.modules
    assert shades_of(Rising(), "drawn_envs:drawn/Telling-v0", 2) == [
        [0, 100, 0],
        [10, 110, 0],
        [20, 120, 0],
        [30, 130, 0],
        [0, 130, 0],
        [10, 140, 0],
        [20, 150, 0],
        [30, 160, 0],
    ]


def test_a_warning_of_the_process_is_one_line(capfd):
    assert len(shades_of(Rising(), "drawn_envs:drawn/Cautioning-v0", 1)) == 4
    assert capfd.readouterr().err == "ddpg: warning: RuntimeWarning: the light is off\n"


def test_ctrl_c_while_the_process_starts_does_not_reach_it(monkeypatch):
    started = subprocess.Popen

    def interrupted(*arguments, **options):
        process = started(*arguments, **options)
        process.send_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    assert len(shades_of(Rising(), "drawn_envs:drawn/Telling-v0", 1)) == 4


def test_recording_an_id_equals_recording_its_environment(tmp_path):
    def recorded(env, seed):
        return ddpg.record(Rising(), env, tmp_path / "a.gif", episodes=2, seed=seed).read_bytes()

    env_id = "ddpg_envs/LQR-v0"
    gym.register("Short-v0", gym.spec(env_id).entry_point, max_episode_steps=3)  # registered only in this process
    here = recorded(gym.make("Short-v0", render_mode="rgb_array"), 1)
    assert recorded("Short-v0", 1) == here
    assert recorded("Short-v0", 2) != here


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("EGL", "'egl'"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("", "None"), (" ", "None"), ("glfw", "'glfw'"))),
    ],
)
def test_the_graphics_library_is_named_as_gymnasium_names_it(given, used, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", given)
    with refuses(UsageError, f"KeyError {used}"):
        shades_of(Rising(), "drawn_envs:drawn/Unlit-v0", 1)


def test_wrappers_are_applied_in_the_other_process():
    with RenderingProcess(EnvSource("drawn_envs:drawn/Timed-v0", ["TimeAwareObservation"])) as drawn:
        assert drawn.spaces[0].shape == (3,)
        assert drawn.spaces[1] == Telling().action_space
        assert drawn.rate == 10


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("drawn_envs:drawn/Crashing-v0", "SIGSEGV"),
        pytest.param("drawn_envs:drawn/Exiting-v0", "status 7", marks=pytest.mark.slow),
        ("drawn_envs:drawn/Failing-v0", "step 2 ZeroDivisionError"),
        ("drawn_envs:drawn/Unclosed-v0", "close OSError"),
    ],
)
def test_a_failure_is_one_line_and_leaves_the_older_file(env_id, words, tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"older")
    with refuses(EnvironmentFault, words, env_id.partition(":")[2]) as caught:
        ddpg.record(Rising(), env_id, path, episodes=2, seed=3)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]
    if env_id.endswith("Unclosed-v0"):  # it fails after the last frame
        with Image.open(path) as image:
            assert image.n_frames == 8
    else:
        assert path.read_bytes() == b"older"


def test_unknown_environments_are_refused():
    for refused, words in (("Missing-v0", "Missing"), ("nowhere_at_all:A-v0", "nowhere_at_all")):
        with refuses(UsageError, words) as there, RenderingProcess(refused):
            pass
        assert "\n" not in str(there.value)


class ObjectPolicy(Rising):
    def predict(self, observation, deterministic):
        return object(), None


@pytest.mark.slow
def test_values_that_cannot_be_sent_are_one_line(tmp_path):
    with refuses(UsageError, "action ObjectPolicy object"):
        ddpg.record(ObjectPolicy(), "drawn_envs:drawn/Telling-v0", tmp_path / "a.gif")
    with refuses(EnvironmentFault, "observation object"):
        ddpg.record(Rising(), "drawn_envs:drawn/Speaking-v0", tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []
    with RenderingProcess("drawn_envs:drawn/Speaking-v0") as drawn, refuses(UsageError, "observation Speaking-v0"):
        _ = drawn.spaces


class Switcher:
    """Like a policy of another package, it says which actions it takes."""

    action_space = gym.spaces.MultiDiscrete([2, 3])

    def predict(self, observation, deterministic):
        return np.array([0, 2]), None


def test_a_policy_of_another_package_has_spaces_that_no_agent_here_has(tmp_path):
    env_id = "drawn_envs:drawn/Switching-v0"
    assert ddpg.record(Switcher(), env_id, tmp_path / "a.gif").exists()
    other = Switcher()
    other.action_space = gym.spaces.MultiDiscrete([2, 4])
    with refuses(UsageError, "action space MultiDiscrete([2 3])", str(other.action_space)):
        ddpg.record(other, env_id, tmp_path / "b.gif")
    assert not (tmp_path / "b.gif").exists()
    with RenderingProcess(env_id) as drawn, refuses(UsageError, "observation space MultiBinary(2) Switching-v0"):
        _ = drawn.spaces


def test_registered_arguments_are_sent_or_drawing_stays_in_this_process():
    gym.register("Longer-v0", "drawn_envs:Telling", kwargs={"length": 2})
    assert can_render_in_child("Longer-v0")
    assert shades_of(Rising(), "Longer-v0", 1) == [[0, 100, 0], [10, 110, 0], [20, 120, 0]]
    gym.register("Holding-v0", "drawn_envs:Telling", kwargs={"length": object()})
    assert not can_render_in_child("Holding-v0")


def test_the_process_ends_when_the_recording_is_aborted(tmp_path, monkeypatch):
    processes = []
    enter = RenderingProcess.__enter__

    def entered(self):
        drawn = enter(self)
        processes.append(drawn._process)
        return drawn

    monkeypatch.setattr(RenderingProcess, "__enter__", entered)
    with pytest.raises(KeyboardInterrupt):
        ddpg.record(Interrupted(), "drawn_envs:drawn/Telling-v0", tmp_path / "a.gif")
    with RenderingProcess("drawn_envs:drawn/Once-v0") as drawn:  # as when a window is closed
        frames = drawn.frames(Rising(), 2, None)
        assert len([next(frames) for _ in range(4)]) == 4
    assert [process.poll() for process in processes] == [-9, -9]
    assert list(tmp_path.iterdir()) == []


def test_classes_of_the_main_script_are_drawn_in_this_process(tmp_path, monkeypatch):
    own = type("Own", (Telling,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Own", own, raising=False)
    gym.register("Own-v0", own)
    gym.register("Lambda-v0", lambda **options: Telling(**options))
    shades = []
    for env_id in ("Own-v0", "Lambda-v0"):
        assert not can_render_in_child(env_id)
        with open_renderer(env_id) as drawn:
            shades.append([frame[0, 0].tolist() for frame in drawn.frames(Rising(), 1, 0)])
    assert shades == [[[0, 100, 255], [10, 110, 255], [20, 120, 255], [30, 130, 255]]] * 2
    assert can_render_in_child("drawn/Telling-v0")
    assert can_render_in_child("elsewhere:Unknown-v0")


def test_drawing_that_would_crash_this_process_is_refused(tmp_path, monkeypatch):
    env = Mujoco(render_mode="rgb_array")
    crashes = []
    monkeypatch.setattr(rendering, "_crashes_beside_tensorflow", lambda library: crashes.append(library) or True)
    for library in ("osmesa", "EGL"):
        monkeypatch.setenv("MUJOCO_GL", library)
        with refuses(UsageError, f"Mujoco MUJOCO_GL={library.lower()} ddpg.record"):
            ddpg.record(Rising(), env, tmp_path / "a.gif")
    assert crashes == ["osmesa", "egl"]
    ddpg.record(Rising(), Telling(render_mode="rgb_array"), tmp_path / "a.gif")  # does not draw with MuJoCo
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    ddpg.record(Rising(), env, tmp_path / "a.gif")
    assert len(crashes) == 2


@pytest.mark.parametrize(("ends", "crashes"), [("kill -SEGV $$", True), ("exit 1", False), ("exit 0", False)])
def test_whether_rendering_crashes_is_tried_in_another_process(ends, crashes, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntest $MUJOCO_GL = osmesa && {ends}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert rendering._crashes_beside_tensorflow.__wrapped__("osmesa") is crashes


@pytest.mark.skipif(
    not (importlib.util.find_spec("mujoco") and ctypes.util.find_library("OSMesa")), reason="needs MuJoCo and OSMesa"
)
def test_mujoco_is_drawn_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")

    class Still:
        def predict(self, observation, deterministic):
            return np.zeros(3, np.float32), None

    add = video.GifWriter.add  # rendering in software is slow
    monkeypatch.setattr(video.GifWriter, "add", lambda gif, frame: add(gif, frame) and gif._count < 3)
    ddpg.record(Still(), "Hopper-v5", tmp_path / "a.gif", seed=0)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 2  # every fifth of 125 frames a second, and the last
        assert np.array(image.convert("RGB")).std() > 20  # the floor and the hopper, not one color


def test_a_rendering_process_whose_parent_is_gone_ends_quietly():
    code = "from ddpg.runs.rendering_process import serve; serve()"
    process = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")
