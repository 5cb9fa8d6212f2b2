"""Recording and watching: all frames in order, files of bounded size, and one line if nothing can be rendered."""

import errno
import os
import pathlib
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from agent_options import IDLE
from environments import Counting, Still
from full_disk import files_no_larger_than
from PIL import Image
from refusals import refuses

import ddpg
import ddpg_envs  # noqa: F401 - registers
from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.errors import EnvironmentFault
from ddpg.runs import rendering, video
from ddpg.runs.video import open_writer


class Drawn(Counting):
    """Draws grey frames: 10 for each step plus 100 for each episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    render_mode = "rgb_array"

    def render(self):
        return np.full((20, 30, 3), 100 * self.episode + 10 * self.step_number, np.uint8)


def drawn_with(**changes):
    env = Drawn()
    for name, value in changes.items():
        setattr(env, name, value)
    return env


def shades(path):
    with Image.open(path) as image:
        frames = []
        for index in range(image.n_frames):
            image.seek(index)
            frames.append((int(np.array(image.convert("RGB")).mean().round()), image.info["duration"]))
        return frames


def test_gif_holds_every_frame_at_the_environments_speed(tmp_path):
    env = Drawn(length=3)
    path = ddpg.record(Still(), env, str(tmp_path / "a.gif"), episodes=2, seed=0)
    assert path == tmp_path / "a.gif"
    frames = shades(path)
    assert [shade for shade, _ in frames] == [0, 10, 20, 30, 100, 110, 120, 130]
    assert [duration for _, duration in frames] == [100] * 7 + [1100]
    assert list(tmp_path.iterdir()) == [path]


def test_an_episode_that_may_not_end_is_told_of_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rendering, "LONG_EPISODE", 4)
    ddpg.record(Still(), Drawn(length=3), tmp_path / "a.gif")
    limited = Drawn(length=9)
    limited.spec = gym.envs.registration.EnvSpec("Limited-v0", max_episode_steps=9)
    ddpg.record(Still(), limited, tmp_path / "a.gif")
    assert capsys.readouterr().err == ""
    ddpg.record(Still(), Drawn(length=9), tmp_path / "a.gif")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Drawn has taken 4 steps" in said


def test_seed_decides_the_episode(tmp_path):
    def first(seed):
        env = gym.make("ddpg_envs/LQR-v0", render_mode="rgb_array", max_episode_steps=2)
        ddpg.record(Still(), env, tmp_path / "a.gif", seed=seed)
        return (tmp_path / "a.gif").read_bytes()

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_long_and_fast_gifs_are_thinned_at_true_speed(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "LONGEST_GIF", 8)
    with open_writer(tmp_path / "a.gif", 50.0) as gif:  # more than 25 frames a second
        for number in range(40):
            assert gif.add(np.full((4, 4, 3), 6 * number, np.uint8))
    frames = shades(tmp_path / "a.gif")
    assert len(frames) <= 8
    steps = np.diff([shade for shade, _ in frames])
    assert (steps[:-1] == steps[0]).all()
    assert frames[-1][0] == 6 * 39  # the last frame is always kept
    seconds = steps[0] / 6 / 50
    assert [duration for _, duration in frames[:-1]] == pytest.approx([1000 * seconds] * (len(frames) - 1), abs=10)


@pytest.mark.slow
def test_large_gifs_are_made_smaller(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 255, (300, 600, 3), np.uint8)
    with open_writer(tmp_path / "a.gif", 10.0) as gif:
        gif.add(noise)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == (480, 240)
    before = (tmp_path / "a.gif").stat().st_size
    monkeypatch.setattr(video, "LARGEST_GIF", before // 3)
    with open_writer(tmp_path / "a.gif", 10.0) as gif:
        gif.add(noise)
    assert (tmp_path / "a.gif").stat().st_size < before / 3


def test_a_failed_recording_leaves_the_older_file(tmp_path):
    ddpg.record(Still(), Drawn(length=2), tmp_path / "a.gif")
    before = (tmp_path / "a.gif").read_bytes()
    env = Drawn(length=2)
    env.step = lambda action: 1 / 0
    with refuses(EnvironmentFault, "step 1 episode 1 seed 3 ZeroDivisionError"):
        ddpg.record(Still(), env, tmp_path / "a.gif", seed=3)
    assert (tmp_path / "a.gif").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_substeps_are_in_the_video(tmp_path):
    class Running:
        def predict(self, observation, deterministic):
            return (0, (np.array([10.0]), np.zeros(1), np.zeros(1))), None

    env = rendering.rendering_env("ddpg_envs/Platform-v0")
    env.reset(seed=0)
    env.render()
    for _ in range(2):
        env.step(Running().predict(None, True)[0])
    assert len(env.render()) > 5
    ddpg.record(Running(), env, tmp_path / "a.gif", seed=0)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames > 10
        assert image.info["duration"] == 50  # 20 frames a second


def test_mp4_holds_every_frame(tmp_path, capfd):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    env = Drawn(length=12)
    env.render = lambda: np.full((21, 31, 3), 15 * env.step_number, np.uint8)  # odd sizes lose a row and a column
    ddpg.record(Still(), env, tmp_path / "a.mp4")
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "a.mp4"]
    frames = imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    about = next(frames)
    assert about["size"] == (30, 20)
    assert about["fps"] == 10
    means = [np.frombuffer(frame, np.uint8).mean() for frame in frames]
    assert len(means) == 13
    np.testing.assert_allclose(means, 15 * np.arange(13), atol=5)


@pytest.mark.parametrize(("name", "length"), [("a.gif", 12), ("a.mp4", 12), ("a.mp4", 300)])
def test_a_full_disk_leaves_the_older_file(name, length, tmp_path):
    if name.endswith(".mp4"):
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / name
    ddpg.record(Still(), Drawn(length=2), path)
    before = path.read_bytes()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    env = Drawn(length=length)
    env.render = lambda: np.roll(noise, env.step_number, 0)
    with files_no_larger_than(8192), pytest.raises(OSError, match=r"a\.(gif|mp4)") as caught:
        ddpg.record(Still(), env, path)
    assert caught.value.filename == str(path)
    assert caught.value.errno in (errno.EFBIG, errno.EIO)
    assert "COMMAND" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_video_that_lacks_frames_is_not_kept(tmp_path, monkeypatch):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    count = imageio_ffmpeg.count_frames_and_secs
    monkeypatch.setattr(imageio_ffmpeg, "count_frames_and_secs", lambda path: (count(path)[0] - 1, 0.0))
    with pytest.raises(OSError, match=r"a\.mp4"):
        ddpg.record(Still(), Drawn(length=5), tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_a_path_that_cannot_be_written_is_refused_before_the_first_episode(name, tmp_path, monkeypatch):
    if name.endswith(".mp4"):
        pytest.importorskip("imageio_ffmpeg")
    open_file = pathlib.Path.open

    def refusing(path, *arguments, **keywords):
        if path.parent == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *arguments, **keywords)

    monkeypatch.setattr(pathlib.Path, "open", refusing)
    env = Drawn(length=2)
    env.reset = lambda **_: pytest.fail("an episode began")
    with pytest.raises(PermissionError) as caught:
        ddpg.record(Still(), env, tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stem", ["a" * 250, "\N{ROCKET}" * 62], ids=["letters", "of-four-bytes"])
def test_the_longest_names_of_the_file_system(stem, tmp_path):
    path = tmp_path / f"{stem}.gif"
    ddpg.record(Still(), Drawn(length=2), path)
    assert list(tmp_path.iterdir()) == [path]


def test_long_names_that_begin_alike_have_separate_temporary_files(tmp_path):
    one, other = (tmp_path / ("a" * 200 + end) for end in ("b.gif", "c.gif"))
    with open_writer(one, 10.0) as first, open_writer(other, 10.0) as second:
        assert len(list(tmp_path.iterdir())) == 2
        first.add(np.zeros((4, 4, 3), np.uint8))
        second.add(np.zeros((4, 4, 3), np.uint8))
    assert sorted(tmp_path.iterdir()) == [one, other]


def test_equal_frames_are_merged_up_to_the_longest_duration_of_a_gif(tmp_path):
    with open_writer(tmp_path / "a.gif", 0.01) as gif:
        for shade in [0] * 3 + [50] * 8 + [100]:
            gif.add(np.full((4, 4, 3), shade, np.uint8))
    assert shades(tmp_path / "a.gif") == [(0, 300_000), (50, 655_350), (100, 101_000)]
    with open_writer(tmp_path / "a.gif", 0.01) as gif:
        for _ in range(9):
            gif.add(np.full((4, 4, 3), 50, np.uint8))
    assert shades(tmp_path / "a.gif") == [(50, 655_350)]


def test_very_flat_frames(tmp_path):
    with open_writer(tmp_path / "a.gif", 10.0) as gif:
        gif.add(np.zeros((1, 5000, 3), np.uint8))
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == (480, 1)
    pytest.importorskip("imageio_ffmpeg")
    for height, width in ((1, 16), (16, 1)):
        with refuses(UsageError, f"[{width} {height}] [2, 2] .gif"):
            ddpg.record(
                Still(), drawn_with(render=lambda s=(height, width, 3): np.zeros(s, np.uint8)), tmp_path / "a.mp4"
            )
    assert list(tmp_path.iterdir()) == [tmp_path / "a.gif"]


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_frames_of_different_sizes_are_refused(suffix, tmp_path):
    """A GIF would be cut to the size of its first frame."""
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    env = drawn_with(render=lambda: np.zeros((20 + 10 * env.step_number, 30, 3), np.uint8))
    with refuses(UsageError, "[30, 30] [30, 20] size"):
        ddpg.record(Still(), env, tmp_path / f"a{suffix}")
    assert list(tmp_path.iterdir()) == []


def watch(env):
    video.watch_episodes(Still(), rendering.EnvRenderer(env), 1, None, "ddpg")


def test_window_shows_every_frame_until_it_is_closed(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: shown.append(surface().get_at((5, 5)).r) or flip())
    surface = pygame.display.get_surface
    env = Drawn(length=4)
    env.metadata = {"render_fps": 1000}
    watch(env)
    assert shown == [0, 10, 20, 30, 40]
    assert not pygame.display.get_init()
    shown.clear()
    monkeypatch.setattr(pygame.event, "get", lambda: [pygame.event.Event(pygame.QUIT)] if len(shown) == 2 else [])
    watch(env)
    assert len(shown) == 2


BESIDE_TENSORFLOW = """\
import contextlib
import numpy as np
import tensorflow
from ddpg.runs.video import WindowViewer
with contextlib.closing(WindowViewer("title", 1000)) as window:
    print(window.add(np.zeros((20, 30, 3), np.uint8)))
"""


@pytest.mark.slow
def test_a_window_beside_tensorflow_does_not_crash():
    """SDL's offscreen driver draws with Mesa if it may, as others do on a machine without a GPU."""
    pytest.importorskip("pygame")
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_TENSORFLOW],
        env={**os.environ, "SDL_VIDEODRIVER": "offscreen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "a.png"}, "'.png' .gif .mp4"),
        ({"path": "missing/a.gif"}, "missing directory"),
        ({"episodes": 0}, "episodes=0"),
        ({"seed": -1}, "seed=-1 0"),
        ({"policy": None}, "policy=None"),
        ({"env": Counting()}, "Counting render_mode=None"),
        ({"env": 3}, "env=3 Env"),
        ({"env": drawn_with(metadata={"render_fps": -1})}, "metadata['render_fps']=-1"),
        ({"env": drawn_with(metadata={"render_fps": 0.009})}, "metadata['render_fps']=0.009 0.01"),
    ],
    ids=["suffix", "folder", "episodes", "seed", "policy", "mode", "name", "rate", "slow"],
)
def test_bad_arguments_are_refused(change, message, tmp_path):
    given = {"policy": Still(), "env": Drawn(), "path": "a.gif", "episodes": 1, "seed": None} | change
    path = tmp_path / given.pop("path")
    with refuses(UsageError, message):
        ddpg.record(given.pop("policy"), given.pop("env"), path, **given)
    assert list(tmp_path.iterdir()) == []


def test_pipes_and_folders_are_refused_and_links_are_followed(tmp_path):
    pipe, link, target = tmp_path / "pipe.gif", tmp_path / "link.gif", tmp_path / "target.gif"
    os.mkfifo(pipe)
    link.symlink_to(target)
    (tmp_path / "folder.gif").mkdir()
    for path, kind in ((pipe, "pipe"), (tmp_path / "folder.gif", "directory")):
        with refuses(UsageError, f"{path.name} {kind} file"):
            ddpg.record(Still(), Drawn(length=3), path)
    assert pipe.is_fifo()
    assert ddpg.record(Still(), Drawn(length=3), link) == target.resolve()
    assert link.is_symlink()
    assert len(shades(target)) == 4


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (None, "drew None"),
        ("a picture", "drew 'a picture'"),
        (np.zeros((4, 4, 3)), "drew float64 [4, 4, 3]"),
        (np.zeros((4, 4), np.uint8), "drew uint8 [4, 4]"),
        (np.zeros((4, 4, 4), np.uint8), "drew uint8 [4, 4, 4]"),
        (np.zeros((0, 4, 3), np.uint8), "drew uint8 [0, 4, 3]"),
        ([], "drew no picture episodes"),
    ],
    ids=["none", "text", "floats", "grey", "transparent", "empty", "nothing"],
)
def test_a_bad_frame_is_named_with_the_expected_format(frame, message, tmp_path):
    with refuses(EnvironmentFault, f"environment Drawn {message} uint8 [H, W, 3]"):
        ddpg.record(Still(), drawn_with(render=lambda: frame), tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_render_is_named(tmp_path):
    env = drawn_with(render=lambda: gym.Env.render(env))
    with refuses(UsageError, "Drawn (NotImplementedError)"):
        ddpg.record(Still(), env, tmp_path / "a.gif")
    with refuses(UsageError, "ZeroDivisionError MuJoCo"):
        ddpg.record(Still(), drawn_with(render=lambda: 1 / 0), tmp_path / "a.gif")


class Undrawn(Counting):
    """Has no ``render_modes`` in its metadata."""


class Named(Counting):
    """Lists ``rgb_array``, but its constructor takes no ``render_mode``."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012


class Unable(Named):
    """Its ``render`` raises."""

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        raise RuntimeError("no GL")


def test_errors_of_custom_environments_name_what_rendering_needs(tmp_path):
    for kind in (Undrawn, Named, Unable):
        gym.register(f"{kind.__name__}-v0", kind)
    with refuses(UsageError, "'Undrawn-v0' render_modes 'render_modes'"):
        rendering.rendering_env("Undrawn-v0")
    with refuses(EnvironmentFault, "'Named-v0' render_mode"):
        rendering.rendering_env("Named-v0")
    with refuses(UsageError, "Unable-v0 RuntimeError: no GL"):
        ddpg.record(Still(), rendering.rendering_env("Unable-v0"), tmp_path / "a.gif")


def test_recording_in_the_training_environment_abandons_its_episode(tmp_path):
    config = DDPGConfig(**IDLE, buffer_size=200)
    agent = DDPG(Drawn(length=7), config, seed=0)
    agent.learn(4)
    ddpg.record(agent, agent.env, tmp_path / "a.gif")
    agent.learn(10)
    stored = agent.replay.arrays()
    moved = stored["next_observations"] - stored["observations"]
    np.testing.assert_array_equal(moved, [[0, 1]] * len(moved))


def test_a_missing_display_is_one_line(monkeypatch):
    pytest.importorskip("pygame")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delitem(os.environ, name, raising=False)
    monkeypatch.setattr(video.sys, "platform", "linux")
    with refuses(UsageError, "display ddpg record RUN"):
        watch(Drawn())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not use DISPLAY")
def test_a_display_that_does_not_answer_is_refused(monkeypatch):
    """SDL would draw into memory instead, and the command would end as if it had shown a window."""
    pygame = pytest.importorskip("pygame")
    for name in ("WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":4095")
    with refuses(UsageError, "window here ddpg record RUN"):
        watch(Drawn())
    assert not pygame.display.get_init()


@pytest.mark.parametrize(
    ("env_id", "tracks"), [("HalfCheetah-v5", True), ("Hopper-v5", True), ("InvertedPendulum-v5", False)]
)
def test_the_camera_follows_robots_that_move_away(env_id, tracks):
    env = rendering.rendering_env(env_id)
    inner = env.unwrapped
    assert inner.mujoco_renderer.camera_id == (inner.model.camera("track").id if tracks else -1)
    env.close()


def test_a_mujoco_environment_without_camera_name_is_drawn_unchanged():
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    class Plain(HalfCheetahEnv):
        def __init__(self, render_mode=None):
            super().__init__(render_mode=render_mode)

    gym.register("PlainCheetah-v0", lambda render_mode=None: Plain(render_mode))
    env = rendering.rendering_env("PlainCheetah-v0")
    assert env.render_mode == "rgb_array"
    env.close()


def test_a_policy_for_other_actions_is_refused(tmp_path):
    policy = Still()
    policy.action_space = gym.spaces.Box(-7, 7, (1,), np.float32)
    with refuses(UsageError, "action space", "-7.0"):
        ddpg.record(policy, Drawn(), tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []
