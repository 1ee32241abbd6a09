"""Comparison of what a candidate returned with its reference.

Metric. For a floating-point output, with reference r (float64), eager's result e in the working precision
and candidate c, let size = |r| + rms(r). The output passes where both

    max(|c - r| / size)     <=  FACTOR * max(|e - r| / size)  +  bound
    rms(c - r) / rms(r)     <=  NORM_FACTOR * rms(e - r) / rms(r)  +  norm bound

with bounds of a few units of rounding of the output's dtype. The first finds single wrong elements; the
second finds results that are a little wrong everywhere. NaN and infinities must be where both the reference
and eager have them; integers and booleans are exact. Where a change of the inputs in the last bit of float32
moves r by more than e is off, that counts as |e - r|: the case is ill-conditioned.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.data.verdict import Status
from mkevolve.verify.chunks import chunks
from mkevolve.verify.expected import Expected, smallest
from mkevolve.verify.forensics import Difference, describe


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found for all outputs of one case; where one is wrong, `result` is its number."""

    status: Status
    message: str = ""
    error: float | None = None
    allowed: float | None = None
    compared: int = 0
    result: int | None = None
    difference: Difference | None = None


def shape_fault(outputs: tuple[torch.Tensor, ...], expected: tuple[TensorSpec, ...]) -> str:
    """Say what is wrong with the number, shapes, dtypes or strides of the outputs; empty where nothing is."""
    return spec_fault(
        tuple(
            TensorSpec(tuple(o.shape), str(o.dtype).removeprefix("torch."), tuple(o.stride()))
            for o in outputs
        ),
        expected,
    )


def spec_fault(given: tuple[TensorSpec, ...], expected: tuple[TensorSpec, ...]) -> str:
    """Like `shape_fault`, for results that are only known by their specs."""
    if len(given) != len(expected):
        return f"{len(given)} results, not {len(expected)}"
    for number, (output, spec) in enumerate(zip(given, expected, strict=True)):
        if output.shape != spec.shape:
            return f"result {number} has shape {output.shape}, not {spec.shape}"
        if output.dtype != spec.dtype:
            return f"result {number} is {output.dtype}, not {spec.dtype}"
        strides = zip(output.stride, spec.stride, spec.shape, strict=True)
        if spec.numel and any(a != b for a, b, n in strides if n > 1):
            return f"result {number} has strides {output.stride}, not {spec.stride}"
    return ""


def compare(
    outputs: tuple[torch.Tensor, ...],
    expected: tuple[Expected, ...],
    written: tuple[torch.Tensor, ...] | None = None,
    explain: bool = True,
) -> Comparison:
    """Compare outputs, whose shapes are right, where they were `written` (None = everywhere).

    Without `explain` a difference is not described, which takes longer than to find it.
    """
    compared, worst, allowed = 0, 0.0, 0.0
    for number, (output, want) in enumerate(zip(outputs, expected, strict=True)):
        mask = None if written is None else written[number]
        found = _compare(output, want, mask)
        compared += found.compared
        if found.status is not Status.PASSED:
            found = replace(found, compared=compared, result=number)
            return _explained(found, output, want, mask) if explain else found
        if found.error is not None and found.error >= worst:
            worst, allowed = found.error, found.allowed or 0.0
    return Comparison(Status.PASSED, "", worst, allowed, compared)


def _explained(
    found: Comparison, output: torch.Tensor, want: Expected, written: torch.Tensor | None
) -> Comparison:
    wrong, judged = wrong_elements(output, want, written)
    stands_out = bool(wrong.any())
    if not stands_out:
        wrong = judged if judged is not None else torch.ones(want.spec.shape, dtype=torch.bool)
    difference = describe(output, want.reference, wrong, judged)
    text = difference.text
    if not stands_out:  # the norm decided
        text = f"off by {found.error:.2g} of its rms everywhere, allowed {found.allowed:.2g}; {text}"
    return replace(found, message=f"result {found.result}: {text}", difference=difference)


def wrong_elements(
    output: torch.Tensor, want: Expected, written: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Boolean tensors: the elements that are not as expected, and those that are judged (None = all)."""
    judged = written if want.skip is None else ~want.skip if written is None else written & ~want.skip
    wrong = torch.zeros(want.spec.shape, dtype=torch.bool)
    limit = want.allowed if want.spec.is_float else 0.0
    for index in chunks(want.spec.shape):
        wrong[index] = _over(output[index], want.reference[index], want) > limit
        if judged is not None:
            wrong[index] &= judged[index]
    return wrong, judged


def _compare(output: torch.Tensor, want: Expected, written: torch.Tensor | None) -> Comparison:
    compared, worst, square, finite = 0, 0.0, 0.0, 0
    for given, reference in _pairs(output, want, written):
        compared += given.numel()
        over = _over(given, reference, want)
        worst = max(worst, float(over.max()) if over.numel() else 0.0)
        if want.spec.is_float:
            off = (given.double() - reference.double()).abs()
            off = off[off.isfinite()]
            finite += off.numel()
            square += float(off.square().sum())
    if not want.spec.is_float:
        return Comparison(Status.WRONG_VALUE if worst else Status.PASSED, "", worst, 0.0, compared)
    norm = math.sqrt(square / finite) / (want.rms + smallest(want.spec)) if finite else 0.0
    if worst > want.allowed:
        return Comparison(Status.WRONG_VALUE, "", worst, want.allowed, compared)
    # The mean over a few sampled elements is not that over all.
    sampled = 2.0 if written is not None else 1.0
    if norm > want.norm_allowed * sampled and finite > 1:
        return Comparison(Status.WRONG_VALUE, "", norm, want.norm_allowed, compared)
    return Comparison(Status.PASSED, "", worst, want.allowed, compared)


def _over(given: torch.Tensor, reference: torch.Tensor, want: Expected) -> torch.Tensor:
    """How far off each element is relative to |r| + rms(r); infinite for a wrong NaN, infinity or integer."""
    if not want.spec.is_float:
        return torch.where(given == reference, 0.0, float("inf"))
    given, wanted = given.double(), reference.double()
    # Results below the smallest normal may be flushed to zero.
    off = ((given - wanted).abs() - smallest(want.spec)).clamp_(min=0.0)
    over = off / (wanted.abs() + want.rms + smallest(want.spec))
    special = ~(given.isfinite() & wanted.isfinite())
    same = (given == wanted) | (given.isnan() & wanted.isnan())
    return torch.where(special, torch.where(same, 0.0, float("inf")), over)


def _pairs(
    output: torch.Tensor, want: Expected, written: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What can be judged, flat and a chunk at a time: given and reference."""
    reference, skip = want.reference, want.skip
    if written is not None:  # a few elements of a large tensor
        output, reference = output[written], reference[written]
        skip = None if skip is None else skip[written]
    for index in chunks(tuple(output.shape)):
        if skip is None:
            yield output[index], reference[index]
        else:
            judged = ~skip[index]
            yield output[index][judged], reference[index][judged]
