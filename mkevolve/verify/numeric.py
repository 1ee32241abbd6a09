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
from dataclasses import dataclass

import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.data.verdict import Status
from mkevolve.verify.forensics import describe

FACTOR, NORM_FACTOR = 8.0, 4.0
WIDENED = 4.0  # for a reference that was itself computed in float32
BOUND = {"float64": 1e-13, "float32": 8e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
NORM_BOUND = {"float64": 1e-13, "float32": 4e-6, "float16": 2.0**-12, "bfloat16": 2.0**-9}
CHUNK = 1 << 22  # elements compared at a time


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: its reference, and how far from it eager is. `skip` marks what cannot be judged."""

    spec: TensorSpec
    reference: torch.Tensor
    skip: torch.Tensor | None
    error: float  # largest |e - r| / (|r| + rms(r))
    norm_error: float  # rms(e - r) / rms(r)
    rms: float  # of the finite reference
    finite: float  # share of finite elements
    constant: bool
    widened: float = 1.0

    @property
    def allowed(self) -> float:
        """What an element may be off by, relative to |r| + rms(r)."""
        return (FACTOR * self.error + BOUND[self.spec.dtype]) * self.widened

    @property
    def norm_allowed(self) -> float:
        """What the output may be off by on average, relative to rms(r)."""
        return (NORM_FACTOR * self.norm_error + NORM_BOUND[self.spec.dtype]) * self.widened


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found for all outputs of one case; `where` is for people."""

    status: Status
    message: str = ""
    error: float | None = None
    allowed: float | None = None
    compared: int = 0
    where: str = ""


def expect(
    wide: torch.Tensor, eager: torch.Tensor, spec: TensorSpec, near: torch.Tensor | None = None
) -> Expected:
    """Make the expectation of one output from its float64 reference and eager's result.

    `near` is the reference of inputs that differ in the last bit of float32.
    """
    if not spec.is_float:
        # A comparison of floats may fall differently in float64: those elements are not judged.
        differs = wide != eager
        values = eager.double() if eager.numel() else torch.zeros(0)
        constant = bool((values == values.reshape(-1)[0]).all()) if values.numel() else True
        skip = differs if bool(differs.any()) else None
        return Expected(spec, eager, skip, 0.0, 0.0, 0.0, 1.0, constant)
    limit = 0.9 * torch.finfo(eager.dtype).max
    overflows = wide.isfinite() & (wide.abs() > limit)
    agree = (wide.isnan() & eager.isnan()) | (wide == eager) | (wide.isfinite() & eager.isfinite())
    skip = overflows | ~agree
    judged = wide.isfinite() & ~skip
    reference, off = wide[judged], (eager[judged].double() - wide[judged]).abs()
    if reference.numel() == 0:
        return Expected(spec, wide, skip if bool(skip.any()) else None, 0.0, 0.0, 0.0, 0.0, True)
    if near is not None:
        moved = (near[judged] - reference).abs()
        off = torch.maximum(off, moved.nan_to_num(0.0, 0.0, 0.0))
    spread = float(reference.max() - reference.min())
    rms = float(reference.square().mean().sqrt())
    size = reference.abs() + rms + _smallest(spec)
    return Expected(
        spec=spec,
        reference=wide,
        skip=skip if bool(skip.any()) else None,
        error=float((off / size).max()),
        norm_error=float(off.square().mean().sqrt()) / (rms + _smallest(spec)),
        rms=rms,
        finite=reference.numel() / wide.numel(),
        constant=spread <= 1e-9 * float(reference.abs().max()),
    )


def tolerance(reference: torch.Tensor, spec: TensorSpec, small: Expected | None) -> Expected:
    """An expectation around a float32 reference: eager's relative error is that of a smaller case."""
    if not spec.is_float:
        return expect(reference, reference, spec)
    finite = reference.isfinite()
    values = reference[finite] if not bool(finite.all()) else reference
    rms = float(torch.linalg.vector_norm(values)) / math.sqrt(max(values.numel(), 1))
    error, norm = (small.error, small.norm_error) if small is not None else (0.0, 0.0)
    share = values.numel() / max(reference.numel(), 1)
    return Expected(spec, reference, None, error, norm, rms, share, False, WIDENED)


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
) -> Comparison:
    """Compare outputs, whose shapes are right, where they were `written` (None = everywhere)."""
    compared, worst, allowed = 0, 0.0, 0.0
    for number, (output, want) in enumerate(zip(outputs, expected, strict=True)):
        mask = None if written is None else written[number]
        found = _compare(output, want, mask)
        compared += found.compared
        if found.status is not Status.PASSED:
            wrong = wrong_elements(output, want, mask)
            where = describe(output, want.reference, wrong)
            return Comparison(
                found.status, f"result {number}: {where}", found.error, found.allowed, compared, where
            )
        if found.error is not None and found.error >= worst:
            worst, allowed = found.error, found.allowed or 0.0
    return Comparison(Status.PASSED, "", worst, allowed, compared)


def wrong_elements(output: torch.Tensor, want: Expected, written: torch.Tensor | None) -> torch.Tensor:
    """A boolean tensor of the elements that are not as expected; all judged ones where none stands out."""
    judged = torch.ones(want.spec.shape, dtype=torch.bool) if written is None else written
    if want.skip is not None:
        judged = judged & ~want.skip
    wrong = torch.zeros(want.spec.shape, dtype=torch.bool)
    limit = want.allowed if want.spec.is_float else 0.0
    for index in _chunks(want.spec.shape):
        wrong[index] = (_over(output[index], want.reference[index], want) > limit) & judged[index]
    return wrong if bool(wrong.any()) else judged


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
    norm = math.sqrt(square / finite) / (want.rms + _smallest(want.spec)) if finite else 0.0
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
    off = ((given - wanted).abs() - _smallest(want.spec)).clamp_(min=0.0)
    over = off / (wanted.abs() + want.rms + _smallest(want.spec))
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
    for index in _chunks(tuple(output.shape)):
        if skip is None:
            yield output[index], reference[index]
        else:
            judged = ~skip[index]
            yield output[index][judged], reference[index][judged]


def _smallest(spec: TensorSpec) -> float:
    """The smallest normal number; the smallest of all for float16, whose subnormals no device flushes."""
    info = torch.finfo(getattr(torch, spec.dtype))
    return float(info.smallest_normal) * (float(info.eps) if spec.dtype == "float16" else 1.0)


def _chunks(shape: tuple[int, ...]) -> list[slice | tuple[slice, ...]]:
    """Slices of the first axis of at most `CHUNK` elements, where it can be cut that fine."""
    if not shape:
        return [()]
    row = math.prod(shape[1:])
    step = max(1, CHUNK // max(row, 1))
    return [slice(start, start + step) for start in range(0, shape[0], step)]
