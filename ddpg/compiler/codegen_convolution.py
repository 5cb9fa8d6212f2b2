"""Write the LLVM functions of convolutions, of their gradients, and of transposed images.

A convolution is the product of a matrix of patches, one a row, with the filters, one a column. The patches of a whole
minibatch would fill many megabytes, so they are copied and multiplied for some rows of an image, or for some small
images, at a time; these stay in the cache.
"""

import contextlib
import math
from collections.abc import Iterable, Sequence

from ddpg.compiler.codegen_gemm import Float32GemmFunctions, RegisterFile
from ddpg.compiler.ir import Convolution, Node
from ddpg.compiler.llvm_builder import ELEMENTWISE, FunctionBuilder
from ddpg.compiler.memory_plan import round_to_cache_lines

PATCHES_AT_ONCE = 2**16  # numbers, 256 KiB

Axis = tuple[int, int, int]  # size, and the distances of neighbours in the source and in the result


class ConvolutionFunctions:
    """A convolution or one of its gradients, ``NAME.N(one, other, out, packed, low)``, for N images from ``low`` on.

    ``filter_gradient`` adds up all images, and computes N rows of its result instead.

    Args:
        name: prefix of the functions' names.
        kind: of the node.
        sizes: of the convolution.
        machine: the machine's registers.
        parts: the numbers N.

    Attributes:
        text: the functions.
        packed: floats that each worker needs for columns of a product's second factor, patches and padded images.
    """

    def __init__(self, name: str, kind: str, sizes: Convolution, machine: RegisterFile, parts: Iterable[int]):
        self._name, self._kind, self._sizes, counts = name, kind, sizes, sorted(set(parts))
        count, height, width, channels = sizes.images
        across, number, by_filter = sizes.outputs[1], sizes.filters[3], kind == "filter_gradient"
        self._images, self._band = images_and_rows(sizes, count if by_filter else math.gcd(*counts))
        self._image, self._row = height * width * channels, sizes.padded[1] * channels
        self._whole = sizes.padded[0] * self._row
        self._rows = self._images * self._band * across
        shape, transposed = {
            "convolution": ((self._rows, number, sizes.patch), (False, False)),
            "filter_gradient": ((sizes.patch, number, self._rows), (True, False)),
            "image_gradient": ((self._rows, sizes.patch, number), (False, True)),
        }[kind]
        heights = counts if by_filter else [self._rows]
        product = Float32GemmFunctions(f"{name}.product", shape, transposed, machine, heights, adds=by_filter)
        self._patches = round_to_cache_lines(product.packed)
        self._padded = self._patches + round_to_cache_lines(self._rows * sizes.patch)
        self.packed = self._padded + self._images * self._whole
        inside: list[Axis] = [(self._images, self._image, self._whole), (height, width * channels, self._row)]
        inside.append((width * channels, 1, 1))
        patches: list[Axis] = [
            (self._images, self._whole, self._band * across * sizes.patch),
            (self._band, sizes.strides[0] * self._row, across * sizes.patch),
            (across, sizes.strides[1] * channels, sizes.patch),
            (sizes.filters[0], self._row, sizes.filters[1] * channels),
            (sizes.filters[1] * channels, 1, 1),
        ]
        if kind == "image_gradient":
            inside, patches = ([(size, to, of) for size, of, to in axes] for axes in (inside, patches))
        copies = [
            _copy_function(f"{name}.inside", inside),
            _copy_function(f"{name}.patches", patches, writes=kind != "image_gradient"),
        ]
        self.text = "\n\n".join([product.text, *copies, *map(self._function, counts)])

    def _function(self, part: int) -> str:
        lines, sizes, kind = FunctionBuilder(), self._sizes, self._kind
        number, pads = sizes.filters[3], self._image != self._whole
        start = self._padded + sizes.before[0] * self._row + sizes.before[1] * sizes.images[3]
        patches, padded, inside = (lines.at("%packed", offset) for offset in (self._patches, self._padded, start))
        if kind == "filter_gradient":
            result, taken = lines.at("%out", lines.times("%low", number)), lines.at(patches, "%low")
            _fill(lines, result, part * number)
            first, count = "0", sizes.images[0]
        else:
            first, count = "%low", part
        with lines.loop(0, count // self._images) as group:
            image = lines.add(f"add nsw i64 {first}, {lines.times(group, self._images)}")
            images = lines.at("%out" if kind == "image_gradient" else "%one", lines.times(image, self._image))
            whole = padded if pads else images
            if kind == "image_gradient" or pads:
                _fill(lines, whole, self._images * self._whole)
            if kind != "image_gradient" and pads:
                lines.do(f"call void @{self._name}.inside(ptr {images}, ptr {inside})")
            with lines.loop(0, sizes.outputs[0] // self._band) as band:
                seen = lines.at(whole, lines.times(band, self._band * sizes.strides[0] * self._row))
                row = lines.times(image, math.prod(sizes.outputs)), lines.times(band, self._rows // self._images)
                place = lines.times(lines.add(f"add nsw i64 {row[0]}, {row[1]}"), number)
                if kind == "convolution":
                    lines.do(f"call void @{self._name}.patches(ptr {seen}, ptr {patches})")
                    self._multiply(lines, self._rows, patches, "%other", lines.at("%out", place))
                elif kind == "filter_gradient":
                    lines.do(f"call void @{self._name}.patches(ptr {seen}, ptr {patches})")
                    self._multiply(lines, part, taken, lines.at("%other", place), result)
                else:
                    self._multiply(lines, self._rows, lines.at("%other", place), "%one", patches)
                    lines.do(f"call void @{self._name}.patches(ptr {patches}, ptr {seen})")
            if kind == "image_gradient" and pads:
                lines.do(f"call void @{self._name}.inside(ptr {inside}, ptr {images})")
        return lines.function(f"{self._name}.{part}", ("one", "other", "out", "packed"), ("low",))

    def _multiply(self, lines: FunctionBuilder, rows: int, a: str, b: str, c: str) -> None:
        lines.do(f"call void @{self._name}.product.{rows}(ptr {a}, ptr {b}, ptr {c}, ptr %packed)")


def images_and_rows(sizes: Convolution, images: int) -> tuple[int, int]:
    """Return how many images, a divisor of ``images``, or how many rows of one image's result are computed at once."""
    rows = PATCHES_AT_ONCE / (sizes.outputs[1] * sizes.patch)
    if rows < sizes.outputs[0]:
        return 1, _nearest_divisor(sizes.outputs[0], rows)
    return _nearest_divisor(images, rows / sizes.outputs[0]), sizes.outputs[0]


def _nearest_divisor(number: int, wanted: float) -> int:
    divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
    return min(divisors, key=lambda divisor: max(divisor / wanted, wanted / divisor))


def transpose_function(name: str, kernel: Node) -> str:
    """Return the function ``(input, out, low, high)`` that transposes the images from low to high."""
    sizes, order = kernel.detail
    new = [sizes[axis] for axis in order]
    source = [math.prod(sizes[axis + 1 :]) for axis in order]
    goal = [math.prod(new[axis + 1 :]) for axis in range(len(new))]
    lines, size = FunctionBuilder(), math.prod(sizes[1:])
    with lines.loop("%low", "%high") as index:
        start = lines.times(index, size)
        _copy(lines, (lines.at("%p0", start), lines.at("%out", start)), list(zip(new, source, goal, strict=True))[1:])
    return lines.function(name, ("p0", "out"), ("low", "high"))


def _copy_function(name: str, axes: Sequence[Axis], writes: bool = True) -> str:
    """Return the function ``(source, result)`` that copies each number, or, unless it ``writes``, adds it."""
    lines = FunctionBuilder()
    _copy(lines, ("%source", "%result"), axes, writes)
    return lines.function(name, ("source", "result"))


def _copy(lines: FunctionBuilder, pointers: tuple[str, str], axes: Sequence[Axis], writes: bool = True) -> None:
    source, result = pointers
    with contextlib.ExitStack() as loops:
        for size, apart, together in axes:
            index = loops.enter_context(lines.loop(0, size))
            source, result = lines.at(source, lines.times(index, apart)), lines.at(result, lines.times(index, together))
        value = lines.load(source, 0)
        if not writes:
            value = lines.add(f"fadd {ELEMENTWISE} float {lines.load(result, 0)}, {value}")
        lines.store(value, result, 0)


def _fill(lines: FunctionBuilder, pointer: str, count: int) -> None:
    """Set ``count`` numbers to 0."""
    lines.do(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {4 * count}, i1 false)")
