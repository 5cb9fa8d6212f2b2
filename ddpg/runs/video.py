"""Record a policy's episodes to a GIF or a video file, or show them in a window."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from ddpg.checkpoints import atomic_write
from ddpg.errors import UsageError, brief, import_optional
from ddpg.interaction.validation import validate_path
from ddpg.runs.evaluation import check_action_space, check_episodes
from ddpg.runs.rendering import EnvRenderer
from ddpg.runs.rendering_process import Renderer, open_renderer

WIDEST_GIF = 480  # pixels
LONGEST_GIF = 600  # frames
FASTEST_GIF = 25.0  # frames per second: viewers slow faster GIFs down
LARGEST_GIF = 8 << 20  # bytes
_LONGEST_SEEN = 65535  # hundredths of a second: GIF stores a frame's duration in 16 bits


class GifWriter:
    """Writes a GIF of bounded size: it drops frames if there are too many, and scales down frames that are too large.

    It plays at the environment's speed, to the hundredth of a second that GIF can express; a frame is shown for 655
    seconds at most. ``rate`` is that of the frames that are added, a second.
    """

    def __init__(self, path: Path, rate: float):
        self._path, self._rate, self._count = path, rate, 0
        self._stride = int(np.ceil(rate / FASTEST_GIF))
        self._kept: list[Image.Image] = []
        self._last: np.ndarray | None = None  # the last frame, if it was dropped

    def add(self, picture: np.ndarray) -> bool:
        """Add a frame."""
        if self._count % self._stride == 0:
            self._keep(picture)
        else:
            self._last = picture.copy()
        self._count += 1
        if len(self._kept) > LONGEST_GIF:
            self._kept, self._stride = self._kept[::2], 2 * self._stride
        return True

    def _keep(self, picture: np.ndarray) -> None:
        self._kept.append(_downscale(Image.fromarray(picture), WIDEST_GIF).quantize(128, dither=Image.Dither.NONE))
        self._last = None

    def finish(self) -> None:
        """Write the file."""
        if self._last is not None:
            self._keep(self._last)
        data = self._encode()
        while len(data) > LARGEST_GIF and (width := self._kept[0].width) > 100:
            self._kept = [_downscale(frame.convert("RGB"), int(0.7 * width)).quantize(64) for frame in self._kept]
            data = self._encode()
        atomic_write.write_durably(self._path, [data])

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _encode(self) -> memoryview:
        (first, *rest), durations = self._merged()
        encoded = io.BytesIO()
        first.save(encoded, "GIF", save_all=True, append_images=rest, duration=durations, loop=0)
        return encoded.getbuffer()

    def _merged(self) -> tuple[list[Image.Image], list[int]]:
        """Return the frames without repetitions, and the duration of each in milliseconds.

        Pillow would merge equal frames, too, but does not keep their summed duration within the 16 bits of the format.
        """
        hundredths = np.diff(np.round(100 * np.arange(len(self._kept) + 1) * self._stride / self._rate))
        hundredths[-1] += 100  # the last frame is shown for one more second
        pictures: list[Image.Image] = []
        times: list[float] = []
        last = b""
        for picture, time in zip(self._kept, hundredths, strict=True):
            pixels = picture.convert("RGB").tobytes()
            if pixels == last:
                times[-1] += time
            else:
                pictures.append(picture)
                times.append(time)
            last = pixels
        return pictures, [10 * int(min(time, _LONGEST_SEEN)) for time in times]


class VideoWriter:
    """Writes every frame to an H.264 video in an ``.mp4`` file, with ``rate`` frames per second."""

    def __init__(self, path: Path, rate: float):
        self._ffmpeg = import_optional("imageio_ffmpeg", "an .mp4", "install the extra 'video'")
        self._path, self._rate = path, rate
        self._writer: Any = None
        self._count = 0

    def add(self, picture: np.ndarray) -> bool:
        """Add a frame.

        Raises:
            UsageError: if the frame has fewer than two rows or columns.
            OSError: if ffmpeg has ended: the disk may be full.
        """
        if min(picture.shape[:2]) < 2:
            raise UsageError(
                f"a picture is {[picture.shape[1], picture.shape[0]]} pixels large, and a video at least [2, 2]; "
                "let the environment draw larger ones, or record a .gif"
            )
        picture = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]  # the codec needs even sizes
        if self._writer is None:
            size = picture.shape[1], picture.shape[0]
            self._writer = self._ffmpeg.write_frames(
                str(self._path.absolute()),
                size,
                fps=self._rate,
                macro_block_size=2,
                quality=7,
                ffmpeg_log_level="error",  # older ones warn of widths that are no multiple of 32
                output_params=["-f", "mp4"],  # the path may have another suffix
            )
            self._writer.send(None)
        try:
            self._writer.send(np.ascontiguousarray(picture))
        except OSError as error:
            raise self._unwritten() from error
        self._count += 1
        return True

    def finish(self) -> None:
        """Complete the file.

        Raises:
            OSError: if frames are missing in it: the disk may be full.
        """
        self._writer.close()
        try:  # imageio_ffmpeg does not report ffmpeg's exit status, so count the frames in the file
            written, _ = self._ffmpeg.count_frames_and_secs(str(self._path.absolute()))
        except RuntimeError:
            raise self._unwritten() from None
        if written != self._count:
            raise self._unwritten()

    def _unwritten(self) -> OSError:
        what = "ffmpeg could not write the whole video, as it says on stderr; the disk may be full"
        return OSError(errno.EIO, what, str(self._path))

    def close(self) -> None:
        """End ffmpeg."""
        if self._writer is not None:
            self._writer.close()


class WindowViewer:
    """Shows frames in a window at a steady ``rate`` of frames per second."""

    def __init__(self, title: str, rate: float):
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        # Otherwise SDL may draw with Mesa, which crashes beside TensorFlow (:mod:`ddpg.runs.rendering_process`).
        os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
        pygame = import_optional("pygame", "a window", "install the extra 'video'")
        displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
        if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in displays):
            raise UsageError(f"no display here ({' and '.join(displays[:2])} are not set); use ddpg record RUN instead")
        self._pygame, self._title, self._rate = pygame, title, rate
        self._screen: Any = None

    def add(self, picture: np.ndarray) -> bool:
        """Show a frame and wait until the next is due; ``False`` if the window is closed or Escape is pressed."""
        pygame = self._pygame
        if self._screen is None:
            try:
                pygame.display.init()
                # Where no display answers, as in a session that outlived its own, SDL draws into memory.
                if "SDL_VIDEODRIVER" not in os.environ and pygame.display.get_driver() in ("offscreen", "dummy"):
                    raise pygame.error("the display does not answer")
                self._screen = pygame.display.set_mode((picture.shape[1], picture.shape[0]))
            except pygame.error as error:
                raise UsageError(f"no window can be opened here ({error}); use ddpg record RUN instead") from None
            pygame.display.set_caption(self._title)
            self._clock = pygame.time.Clock()
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                return False
        self._screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._rate)
        return True

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


def _downscale(picture: Image.Image, widest: int) -> Image.Image:
    if picture.width <= widest:
        return picture
    return picture.resize((widest, max(1, round(picture.height * widest / picture.width))), Image.Resampling.LANCZOS)


SUFFIXES: dict[str, type[GifWriter] | type[VideoWriter]] = {".gif": GifWriter, ".mp4": VideoWriter}


def check_video_path(path: str | Path) -> Path:
    """Return the file to write, see :func:`ddpg.checkpoints.atomic_write.file_to_write`, if it can be a GIF or video.

    Raises:
        UsageError: if there is something else than a regular file, the suffix is unknown, or the directory does not
            exist.
    """
    path = atomic_write.file_to_write(validate_path(path))
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{brief(str(path))} ends in {brief(path.suffix)}; expected {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{brief(str(path))} cannot be written; name a file in a directory that exists")
    return path


def record(policy: Any, env: gym.Env | str, path: str | Path, *, episodes: int = 1, seed: int | None = None) -> Path:
    """Record episodes of a policy, without exploration noise.

    Args:
        policy: anything with Stable-Baselines3's ``predict(observation, deterministic=) -> (action, state)``.
        env: an environment with ``render_mode="rgb_array"`` or, to see the substeps of this package's environments,
            ``"rgb_array_list"``. Or an id, which another process makes and renders; MuJoCo without a GPU needs this if
            TensorFlow is imported.
        path: a ``.gif``, at most 480 pixels wide and 600 frames long, or an ``.mp4``; an existing file is replaced.
        episodes: number of episodes, recorded one after the other.
        seed: seed of the first reset; later resets continue its random stream.

    Returns:
        The file that was written.

    Raises:
        UsageError: if the environment does not render frames, or not all of one size, the file's suffix is unknown,
            ``seed`` is below 0, ``policy`` has another ``action_space``, or a package is missing.
        EnvironmentFault: if the environment raised, returned an invalid value, rendered anything but frames, or crashed
            the process that renders it.
        OSError: if the file cannot be written; an existing file is kept.
    """
    path = check_video_path(path)  # before an environment is made
    with open_renderer(env) if isinstance(env, str) else contextlib.nullcontext(EnvRenderer(env)) as renderer:
        return record_episodes(policy, renderer, path, episodes, seed)


def record_episodes(policy: Any, renderer: Renderer, path: str | Path, episodes: int, seed: int | None) -> Path:
    """Record episodes in the environment of ``renderer``; other arguments and errors as for :func:`record`."""
    path = check_video_path(path)
    with open_writer(path, renderer.rate) as writer:
        _show(policy, renderer, episodes, seed, writer)
    return path


@contextlib.contextmanager
def open_writer(path: Path, rate: float) -> Iterator[GifWriter | VideoWriter]:
    """Yield the writer for the suffix of ``path``, from :func:`check_video_path`; complete the file after the block.

    Raises:
        OSError: if the file cannot be written; an existing file is kept.
    """
    with atomic_write.replacing(path) as temporary:
        temporary.open("wb").close()  # fails before the first episode if the path cannot be written
        with contextlib.closing(SUFFIXES[path.suffix.lower()](temporary, rate)) as writer:
            yield writer
            writer.finish()


def watch_episodes(policy: Any, renderer: Renderer, episodes: int, seed: int | None, title: str) -> None:
    """Show episodes in a window, at the environment's speed; closing it ends them.

    Args:
        policy, episodes, seed: as for :func:`record`.
        renderer: renders the environment.
        title: the window's title.

    Raises:
        UsageError, EnvironmentFault: as for :func:`record`, and if there is no display.
    """
    with contextlib.closing(WindowViewer(title, renderer.rate)) as window:
        _show(policy, renderer, episodes, seed, window)


def _show(
    policy: Any,
    renderer: Renderer,
    episodes: int,
    seed: int | None,
    output: GifWriter | VideoWriter | WindowViewer,
) -> None:
    """Pass the frames of episodes to ``output`` until it wants no more."""
    episodes, seed = check_episodes(policy, episodes, seed)
    check_action_space(policy, renderer.action_space)
    first: tuple[int, ...] = ()
    with contextlib.closing(renderer.frames(policy, episodes, seed)) as frames:
        for frame in frames:
            first = first or frame.shape
            if frame.shape != first:
                raise UsageError(
                    f"a picture is {[frame.shape[1], frame.shape[0]]} pixels large, those before it "
                    f"{[first[1], first[0]]}; let the environment draw all of them in one size"
                )
            if not output.add(frame):
                return
