"""Where pictures go, one after the other: a GIF, a video file, a window."""

import abc
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ddpg.errors import UsageError

WIDEST_GIF = 480  # pixels
LONGEST_GIF = 600  # pictures
FASTEST_GIF = 25.0  # pictures a second: viewers slow faster ones down
LARGEST_GIF = 8 << 20  # bytes


class Pictures(abc.ABC):
    """A context that takes pictures, and keeps them when the block ends without an error."""

    @abc.abstractmethod
    def add(self, picture: np.ndarray) -> bool:
        """Take a picture, uint8 ``[H, W, 3]``; return whether more are wanted."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Keep what was taken."""

    def _discard(self) -> None:
        """Let go of what was taken, kept or not."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._discard()


class _File(Pictures):
    """A file that is written aside and renamed into place."""

    def __init__(self, path: Path):
        self._path = path
        self._aside = path.with_name(f".{path.stem}.ddpg-writing{path.suffix.lower()}")

    def _discard(self) -> None:
        self._aside.unlink(missing_ok=True)


class Gif(_File):
    """A GIF of bounded size: too many pictures a second or in all are thinned, too large ones made smaller.

    Time runs as in the environment, to the hundredth of a second that GIF counts in.

    Args:
        path: where.
        rate: pictures a second, as they come.
    """

    def __init__(self, path: Path, rate: float):
        super().__init__(path)
        self._rate, self._count = rate, 0
        self._stride = int(np.ceil(rate / FASTEST_GIF))
        self._kept: list[Image.Image] = []
        self._last: np.ndarray | None = None  # where it is not among them

    def add(self, picture: np.ndarray) -> bool:
        """Take a picture."""
        if self._count % self._stride == 0:
            self._keep(picture)
        else:
            self._last = picture.copy()
        self._count += 1
        if len(self._kept) > LONGEST_GIF:
            self._kept, self._stride = self._kept[::2], 2 * self._stride
        return True

    def _keep(self, picture: np.ndarray) -> None:
        self._kept.append(_smaller(Image.fromarray(picture), WIDEST_GIF).quantize(128, dither=Image.Dither.NONE))
        self._last = None

    def _finish(self) -> None:
        if self._last is not None:
            self._keep(self._last)
        hundredths = np.round(100 * np.arange(len(self._kept) + 1) * self._stride / self._rate)
        durations = (10 * np.diff(hundredths)).astype(int).tolist()
        durations[-1] += 1000  # how it ended is seen for a second
        first, *rest = self._kept
        first.save(self._aside, save_all=True, append_images=rest, duration=durations, loop=0)
        if self._aside.stat().st_size > LARGEST_GIF and first.width > 100:
            self._kept = [
                _smaller(picture.convert("RGB"), int(0.7 * first.width)).quantize(64) for picture in self._kept
            ]
            self._finish()
            return
        os.replace(self._aside, self._path)


class Video(_File):
    """An H.264 video in an ``.mp4`` file, of every picture.

    Args:
        path: where.
        rate: pictures a second.
    """

    def __init__(self, path: Path, rate: float):
        super().__init__(path)
        try:
            import imageio_ffmpeg
        except ModuleNotFoundError:
            raise UsageError("an .mp4 needs the package 'imageio-ffmpeg'; install the extra 'video'") from None
        self._open, self._rate = imageio_ffmpeg.write_frames, rate
        self._writer: Any = None

    def add(self, picture: np.ndarray) -> bool:
        """Take a picture.

        Raises:
            UsageError: it is of another size than those before.
        """
        picture = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]  # the codec wants even numbers
        size = picture.shape[1], picture.shape[0]
        if self._writer is None:
            self._size = size
            self._writer = self._open(str(self._aside.absolute()), size, fps=self._rate, macro_block_size=2, quality=7)
            self._writer.send(None)
        if size != self._size:
            raise UsageError(
                f"a picture is {list(size)} pixels large, those before it {list(self._size)}; a video has one size: "
                "let the environment keep it, or record a .gif"
            )
        self._writer.send(np.ascontiguousarray(picture))
        return True

    def _finish(self) -> None:
        self._writer.close()
        os.replace(self._aside, self._path)

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        super()._discard()


class Window(Pictures):
    """A window on the screen, at a steady rate.

    Args:
        title: the window's.
        rate: pictures a second.
    """

    def __init__(self, title: str, rate: float):
        try:
            os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
            import pygame
        except ModuleNotFoundError:
            raise UsageError("a window needs the package 'pygame'; install the extra 'video'") from None
        displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
        if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in displays):
            raise UsageError(f"no display here ({' and '.join(displays[:2])} are not set); use ddpg record RUN instead")
        self._pygame, self._title, self._rate = pygame, title, rate
        self._screen: Any = None

    def add(self, picture: np.ndarray) -> bool:
        """Show a picture when its time has come; ``False`` once the window is closed or Escape is pressed."""
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
        """Leave nothing behind."""

    def _discard(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()


def _smaller(picture: Image.Image, widest: int) -> Image.Image:
    if picture.width <= widest:
        return picture
    return picture.resize((widest, round(picture.height * widest / picture.width)), Image.Resampling.LANCZOS)
