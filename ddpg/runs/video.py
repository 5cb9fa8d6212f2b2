"""Record a policy's episodes to a GIF or a video file, or show them in a window."""

import abc
import contextlib
import errno
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from ddpg.checkpoints.atomic_write import file_to_write
from ddpg.errors import UsageError, brief, import_optional
from ddpg.interaction import env_calls
from ddpg.interaction.validation import validate_path
from ddpg.runs.drawing_process import DrawingProcess, can_be_drawn_elsewhere
from ddpg.runs.evaluation import check_episodes
from ddpg.runs.rendering import DrawnEnv, rendering_env

WIDEST_GIF = 480  # pixels
LONGEST_GIF = 600  # frames
FASTEST_GIF = 25.0  # frames per second: viewers slow faster GIFs down
LARGEST_GIF = 8 << 20  # bytes
_LONGEST_SEEN = 65535  # hundredths of a second: GIF stores a frame's duration in 16 bits


class FrameWriter(abc.ABC):
    """A context manager that receives frames, and keeps the result if the block ends without an error."""

    @abc.abstractmethod
    def add(self, picture: np.ndarray) -> bool:
        """Add a frame, uint8 ``[H, W, 3]``; return whether to go on."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Complete the output."""

    def _discard(self) -> None:
        """Release resources and temporary files, whether or not the output was completed."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._discard()


class _FileWriter(FrameWriter):
    """Writes a temporary file, and renames it to ``path`` at the end of the block.

    An ``OSError`` names ``path``, not the temporary file.
    """

    def __init__(self, path: Path):
        self._path = path
        stem = path.stem
        if len(stem) > 50:  # the prefix and suffix must not push the name beyond 255 bytes
            stem = f"{stem[:40]}-{zlib.crc32(os.fsencode(stem)):08x}"
        self._temporary = path.with_name(f".{stem}.ddpg-writing{path.suffix.lower()}")

    @abc.abstractmethod
    def _write(self) -> None:
        """Complete the temporary file."""

    def __enter__(self):
        with self._naming_the_path():
            self._temporary.open("wb").close()  # fails before the first episode if the path cannot be written
        return self

    def _finish(self) -> None:
        with self._naming_the_path():
            self._write()
            os.replace(self._temporary, self._path)

    def _discard(self) -> None:
        self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _naming_the_path(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(self._path)) from error


class GifWriter(_FileWriter):
    """Writes a GIF of bounded size: it drops frames if there are too many, and scales down frames that are too large.

    It plays at the environment's speed, to the hundredth of a second that GIF can express; a frame is shown for 655
    seconds at most.

    Args:
        path: the file to write.
        rate: frames per second of the frames that are added.
    """

    def __init__(self, path: Path, rate: float):
        super().__init__(path)
        self._rate, self._count = rate, 0
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

    def _write(self) -> None:
        if self._last is not None:
            self._keep(self._last)
        (first, *rest), durations = self._seen()
        first.save(self._temporary, save_all=True, append_images=rest, duration=durations, loop=0)
        if self._temporary.stat().st_size > LARGEST_GIF and first.width > 100:
            self._kept = [
                _downscale(picture.convert("RGB"), int(0.7 * first.width)).quantize(64) for picture in self._kept
            ]
            self._write()

    def _seen(self) -> tuple[list[Image.Image], list[int]]:
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


class VideoWriter(_FileWriter):
    """Writes every frame to an H.264 video in an ``.mp4`` file.

    Args:
        path: the file to write.
        rate: frames per second.
    """

    def __init__(self, path: Path, rate: float):
        super().__init__(path)
        self._ffmpeg = import_optional("imageio_ffmpeg", "an .mp4", "install the extra 'video'")
        self._rate = rate
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
                str(self._temporary.absolute()), size, fps=self._rate, macro_block_size=2, quality=7
            )
            self._writer.send(None)
        try:
            self._writer.send(np.ascontiguousarray(picture))
        except OSError as error:
            raise self._unwritten() from error
        self._count += 1
        return True

    def _write(self) -> None:
        self._writer.close()
        try:  # imageio_ffmpeg does not report ffmpeg's exit status, so count the frames in the file
            written, _ = self._ffmpeg.count_frames_and_secs(str(self._temporary.absolute()))
        except RuntimeError:
            raise self._unwritten() from None
        if written != self._count:
            raise self._unwritten()

    def _unwritten(self) -> OSError:
        what = "ffmpeg could not write the whole video, as it says on stderr; the disk may be full"
        return OSError(errno.EIO, what, str(self._path))

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        super()._discard()


class WindowViewer(FrameWriter):
    """Shows frames in a window at a steady rate.

    Args:
        title: the window's title.
        rate: frames per second.
    """

    def __init__(self, title: str, rate: float):
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        # Otherwise SDL may draw with Mesa, which crashes beside TensorFlow (:mod:`ddpg.runs.drawing_process`).
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

    def _finish(self) -> None:
        """Do nothing: a window has no output to complete."""

    def _discard(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()


def _downscale(picture: Image.Image, widest: int) -> Image.Image:
    if picture.width <= widest:
        return picture
    return picture.resize((widest, max(1, round(picture.height * widest / picture.width))), Image.Resampling.LANCZOS)


SUFFIXES = {".gif": GifWriter, ".mp4": VideoWriter}


def check_video_path(path: str | Path) -> Path:
    """Return the file to write, see :func:`ddpg.checkpoints.atomic_write.file_to_write`, if it can be a GIF or video.

    Raises:
        UsageError: if there is something else than a regular file, the suffix is unknown, or the directory does not
            exist.
    """
    path = file_to_write(validate_path(path))
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
            ``seed`` is below 0, or a package is missing.
        EnvironmentFault: if the environment raised, returned an invalid value, rendered anything but frames, or crashed
            the process that renders it.
        OSError: if the file cannot be written; an existing file is kept.
    """
    path = check_video_path(path)
    with _drawn(env) as drawn:
        return record_drawn(policy, drawn, path, episodes, seed)


def record_drawn(
    policy: Any, drawn: DrawnEnv | DrawingProcess, path: str | Path, episodes: int, seed: int | None
) -> Path:
    """Record episodes in the environment ``drawn``; other arguments and errors as for :func:`record`."""
    path = check_video_path(path)
    with SUFFIXES[path.suffix.lower()](path, drawn.rate) as pictures:
        _show(policy, drawn, episodes, seed, pictures)
    return path


def watch(policy: Any, env: gym.Env | str, *, episodes: int = 1, seed: int | None = None, title: str = "ddpg") -> None:
    """Show episodes of a policy in a window, at the environment's speed; closing it ends them.

    Args:
        policy, env, episodes, seed: as for :func:`record`.
        title: the window's title.

    Raises:
        UsageError, EnvironmentFault: as for :func:`record`, and if there is no display.
    """
    with _drawn(env) as drawn:
        watch_drawn(policy, drawn, episodes, seed, title)


def watch_drawn(policy: Any, drawn: DrawnEnv | DrawingProcess, episodes: int, seed: int | None, title: str) -> None:
    """Show episodes in the environment ``drawn``; other arguments and errors as for :func:`watch`."""
    with WindowViewer(title, drawn.rate) as window:
        _show(policy, drawn, episodes, seed, window)


@contextlib.contextmanager
def drawing(env_id: str, wrappers: Sequence[str] = ()) -> Iterator[DrawnEnv | DrawingProcess]:
    """Yield an environment that a child process renders, or this process if its class is in the user's script.

    Raises:
        UsageError, EnvironmentFault: as :func:`~ddpg.runs.rendering.rendering_env`.
    """
    if can_be_drawn_elsewhere(env_id):
        with DrawingProcess(env_id, wrappers) as drawn:
            yield drawn
        return
    with env_calls.closing(rendering_env(env_id, wrappers)) as env:
        yield DrawnEnv(env)


def _drawn(env: gym.Env | str) -> contextlib.AbstractContextManager[DrawnEnv | DrawingProcess]:
    return drawing(env) if isinstance(env, str) else contextlib.nullcontext(DrawnEnv(env))


def _show(
    policy: Any, drawn: DrawnEnv | DrawingProcess, episodes: int, seed: int | None, pictures: FrameWriter
) -> None:
    episodes, seed = check_episodes(policy, episodes, seed)
    first: tuple[int, ...] = ()
    with contextlib.closing(drawn.frames(policy, episodes, seed)) as frames:
        for frame in frames:
            first = first or frame.shape
            if frame.shape != first:
                raise UsageError(
                    f"a picture is {[frame.shape[1], frame.shape[0]]} pixels large, those before it "
                    f"{[first[1], first[0]]}; let the environment draw all of them in one size"
                )
            if not pictures.add(frame):
                return
