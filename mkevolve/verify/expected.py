"""What is expected of a result: its float64 reference, and how far from it eager is.

The elements that cannot be judged are known before any candidate is: where eager and the reference disagree
about what is finite, where the reference does not fit the dtype, and where a comparison falls differently.
"""

import math
from dataclasses import dataclass

import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.verify.chunks import chunks

FACTOR, NORM_FACTOR = 8.0, 4.0
WIDENED = 4.0  # for a reference that was itself computed in float32
BOUND = {"float64": 1e-13, "float32": 8e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
NORM_BOUND = {"float64": 1e-13, "float32": 4e-6, "float16": 2.0**-12, "bfloat16": 2.0**-9}


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


def expect(
    wide: torch.Tensor, eager: torch.Tensor, spec: TensorSpec, near: torch.Tensor | None = None
) -> Expected:
    """Make the expectation of one output from its float64 reference and eager's result.

    `near` is the reference of inputs that differ in the last bit of float32.
    """
    skip = torch.zeros(spec.shape, dtype=torch.bool)
    if not spec.is_float:
        return _expect_exact(wide, eager, spec, skip)
    limit = 0.9 * torch.finfo(eager.dtype).max
    sums = _Sums()
    for index in chunks(spec.shape):
        w, e = wide[index], eager[index]
        agree = (w.isnan() & e.isnan()) | (w == e) | (w.isfinite() & e.isfinite())
        skip[index] = (w.isfinite() & (w.abs() > limit)) | ~agree
        sums.add(*_judged(w, e, None if near is None else near[index], skip[index]))
    some = skip if bool(skip.any()) else None
    if sums.count == 0:
        return Expected(spec, wide, some, 0.0, 0.0, 0.0, 0.0, True)
    rms, least = sums.rms, smallest(spec)
    error = 0.0
    for index in chunks(spec.shape):
        near_part = None if near is None else near[index]
        reference, off = _judged(wide[index], eager[index], near_part, skip[index])
        if off.numel():
            error = max(error, float((off / (reference.abs() + rms + least)).max()))
    return Expected(
        spec=spec,
        reference=wide,
        skip=some,
        error=error,
        norm_error=math.sqrt(sums.off / sums.count) / (rms + least),
        rms=rms,
        finite=sums.count / wide.numel(),
        constant=sums.high - sums.low <= 1e-9 * max(abs(sums.high), abs(sums.low)),
    )


def _expect_exact(wide: torch.Tensor, eager: torch.Tensor, spec: TensorSpec, skip: torch.Tensor) -> Expected:
    """A comparison of floats may fall differently in float64: those elements are not judged."""
    constant = True
    for index in chunks(spec.shape):
        skip[index] = wide[index] != eager[index]
        constant &= bool((eager[index] == eager[(0,) * eager.dim()]).all())
    return Expected(spec, eager, skip if bool(skip.any()) else None, 0.0, 0.0, 0.0, 1.0, constant)


@dataclass(slots=True)
class _Sums:
    """What is summed over the judged elements of a reference, a piece at a time."""

    count: int = 0
    square: float = 0.0
    off: float = 0.0  # of squares of what eager is off by
    low: float = math.inf
    high: float = -math.inf

    def add(self, reference: torch.Tensor, off: torch.Tensor) -> None:
        if not reference.numel():
            return
        self.count += reference.numel()
        self.square += float(reference.square().sum())
        self.off += float(off.square().sum())
        self.low = min(self.low, float(reference.min()))
        self.high = max(self.high, float(reference.max()))

    @property
    def rms(self) -> float:
        return math.sqrt(self.square / self.count)


def _judged(
    wide: torch.Tensor, eager: torch.Tensor, near: torch.Tensor | None, skip: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The finite references that are judged, and what eager (or an ill-conditioned case) is off by."""
    judged = wide.isfinite() & ~skip
    reference, off = wide[judged], (eager[judged].double() - wide[judged]).abs()
    if near is not None:
        moved = (near[judged] - reference).abs()
        off = torch.maximum(off, moved.nan_to_num(0.0, 0.0, 0.0))
    return reference, off


def tolerance(reference: torch.Tensor, spec: TensorSpec, small: Expected | None) -> Expected:
    """An expectation around a float32 reference: eager's relative error is that of a smaller case."""
    if not spec.is_float:
        return expect(reference, reference, spec)
    count, square = 0, 0.0
    for index in chunks(spec.shape):
        values = reference[index]
        values = values[values.isfinite()]
        count += values.numel()
        square += float(values.double().square().sum())
    rms = math.sqrt(square / max(count, 1))
    error, norm = (small.error, small.norm_error) if small is not None else (0.0, 0.0)
    share = count / max(reference.numel(), 1)
    return Expected(spec, reference, None, error, norm, rms, share, False, WIDENED)


def smallest(spec: TensorSpec) -> float:
    """The smallest normal number; the smallest of all for float16, whose subnormals no device flushes."""
    info = torch.finfo(getattr(torch, spec.dtype))
    return float(info.smallest_normal) * (float(info.eps) if spec.dtype == "float16" else 1.0)
