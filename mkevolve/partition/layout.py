"""Strides: contiguity, memory formats, and which reshapes need no copy."""

import math

from mkevolve.data.graph import TensorSpec

_ORDERS = {("channels_last", 4): (0, 2, 3, 1), ("channels_last_3d", 5): (0, 2, 3, 4, 1)}


def strides_of(shape: tuple[int, ...], layout: str = "contiguous_format") -> tuple[int, ...]:
    """Dense strides of a memory format; `channels_last` of another rank than 4 is contiguous."""
    order = _ORDERS.get((layout, len(shape)), tuple(range(len(shape))))
    strides = [1] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def same_layout(shape: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Do two strides address the same elements alike? Strides of dimensions of size 1 do not count."""
    if math.prod(shape) == 0:
        return True
    return all(size == 1 or a == b for size, a, b in zip(shape, left, right, strict=True))


def is_contiguous(spec: TensorSpec, layout: str = "contiguous_format") -> bool:
    """Is the tensor dense in this memory format?"""
    return same_layout(spec.shape, spec.stride, strides_of(spec.shape, layout))


def viewable(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Can a tensor be seen in this shape without a copy? (The rule of `torch.Tensor.view`.)

    Dimensions of the source are joined into runs that are contiguous in memory; each run must be tiled
    exactly by consecutive dimensions of the new shape.
    """
    if math.prod(shape) == 0:
        return True
    runs = _runs(spec)
    sizes = [s for s in shape if s != 1]
    for run in reversed(runs):
        product = 1
        while product < run and sizes:
            product *= sizes.pop()
        if product != run:
            return False
    return not sizes


def _runs(spec: TensorSpec) -> list[int]:
    """Sizes of the runs of dimensions that are contiguous with each other."""
    runs: list[int] = []
    expected = 0
    for size, stride in reversed([*zip(spec.shape, spec.stride, strict=True)]):
        if size == 1:
            continue
        if runs and stride == expected:
            runs[0] *= size
        else:
            runs.insert(0, size)
        expected = stride * size
    return runs


def dim_order(spec: TensorSpec) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost; a size-free description of the strides."""
    return tuple(sorted(range(len(spec.shape)), key=lambda d: (-spec.stride[d], d)))
