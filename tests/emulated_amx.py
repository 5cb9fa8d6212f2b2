"""AMX instructions in NumPy, called by compiled code on processors without AMX (Intel 64 Instruction Set Reference)."""

import ctypes
import threading

import numpy as np
from llvmlite import binding as llvm

TILES, ROWS, BYTES = 8, 16, 64
_thread = threading.local()  # .tiles: eight arrays of 32-bit numbers, or None if no tiles are configured


def _ldtilecfg(address: int) -> None:
    palette, first_row, *rest = (ctypes.c_ubyte * 64).from_address(address)
    bytes_of_rows = [low + 256 * high for low, high in zip(rest[14:46:2], rest[15:46:2], strict=True)]
    rows = rest[46:]
    assert (palette, first_row) == (1, 0)
    assert bytes_of_rows == [BYTES] * TILES + [0] * 8, bytes_of_rows
    assert rows == [ROWS] * TILES + [0] * 8, rows
    _thread.tiles = [np.zeros((ROWS, ROWS), np.uint32) for _ in range(TILES)]


def _tilerelease() -> None:
    _thread.tiles = None


def _tilezero(tile: int) -> None:
    _thread.tiles[tile].fill(0)


def _memory(address: int, stride: int) -> np.ndarray:
    """Return 16 rows of 16 numbers of 32 bits, ``stride`` bytes apart."""
    span = (ctypes.c_uint32 * ((stride * (ROWS - 1) + BYTES) // 4)).from_address(address)
    return np.lib.stride_tricks.as_strided(np.frombuffer(span, np.uint32), (ROWS, ROWS), (stride, 4))


def _tileloadd64(tile: int, address: int, stride: int) -> None:
    _thread.tiles[tile][:] = _memory(address, stride)


def _tilestored64(tile: int, address: int, stride: int) -> None:
    _memory(address, stride)[:] = _thread.tiles[tile]


def _tdpbf16ps(goal: int, one: int, other: int) -> None:
    """Add the dot product of each row of ``one`` and column of ``other``, both pairs of bfloat16, to ``goal``."""
    tiles = _thread.tiles
    total = tiles[goal].view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        for half in (lambda pairs: pairs << np.uint32(16), lambda pairs: pairs & np.uint32(0xFFFF0000)):
            left, right = (half(tiles[tile]).view(np.float32).astype(np.float64) for tile in (one, other))
            total += np.einsum("ik,kj->ij", left, right)
        tiles[goal][:] = total.astype(np.float32).view(np.uint32)


_I8, _I64, _PTR = ctypes.c_int8, ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS = {
    "ldtilecfg": ctypes.CFUNCTYPE(None, _PTR)(_ldtilecfg),
    "tilerelease": ctypes.CFUNCTYPE(None)(_tilerelease),
    "tilezero": ctypes.CFUNCTYPE(None, _I8)(_tilezero),
    "tileloadd64": ctypes.CFUNCTYPE(None, _I8, _PTR, _I64)(_tileloadd64),
    "tilestored64": ctypes.CFUNCTYPE(None, _I8, _PTR, _I64)(_tilestored64),
    "tdpbf16ps": ctypes.CFUNCTYPE(None, _I8, _I8, _I8)(_tdpbf16ps),
}


def emulated(text: str) -> str:
    """Replace the instructions in a module's text by calls of these functions."""
    for name, function in _FUNCTIONS.items():
        llvm.add_symbol(f"emulated_{name}", ctypes.cast(function, ctypes.c_void_p).value)
        text = text.replace(f"@llvm.x86.{name}(", f"@emulated_{name}(")
    return text.replace(" immarg", "")
