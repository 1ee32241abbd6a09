"""Inputs that expose faults: what the model really sends, and draws around it."""

import zlib
from enum import StrEnum

import torch

from mkevolve.data.graph import Graph, InputKind, TensorSpec
from mkevolve.verify.observe import Observation, Statistics, lay_out
from mkevolve.verify.specials import Special, specials, spoil


class Distribution(StrEnum):
    """How activations are drawn; weights are drawn anew each time, except for `CAPTURED`.

    What each is for: LARGE a softmax without its maximum, TINY a wrong or missing epsilon, OFFSET a one-pass
    variance, ZEROS and CONSTANT_ROWS a division by what vanishes, NONFINITE dropped NaN and infinities
    (NAN: a NaN alone, which an infinity in the same row would hide).
    EMPHASIS is REDRAW with one input changed until leaving it out would show, CENTRED ignores the sign that
    was seen and the share of zeros: for where a trivial result (the input itself) passes everything else.
    """

    CAPTURED = "captured"
    REDRAW = "redraw"
    LARGE = "large"
    TINY = "tiny"
    ZEROS = "zeros"
    CONSTANT_ROWS = "constant_rows"
    OFFSET = "offset"
    NONFINITE = "nonfinite"
    NAN = "nan"
    EMPHASIS = "emphasis"
    CENTRED = "centred"


SPECIAL = frozenset({Distribution.NONFINITE, Distribution.NAN})  # evidence although not finite
_LARGE, _TINY = 100.0, 1e-4  # root mean square of an activation
_OFFSET = {"float64": 1e3, "float32": 1e3, "float16": 32.0, "bfloat16": 8.0}  # mean over deviation
_SPREAD = 0.25  # deviation of what was constant when observed, so that ignoring it shows


def draw(
    graph: Graph,
    observation: Observation,
    variant: str,
    distribution: Distribution,
    seed: int,
    attempt: int = 0,
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]] | None:
    """Draw activations and parameters for one variant; None where there is no such draw: nothing was captured
    at these sizes, or the distribution says nothing about this graph.

    The same arguments give the same tensors. A later `attempt` draws less extreme values: it replaces a draw
    that was no evidence.
    """
    if distribution is Distribution.CAPTURED:
        if attempt:
            return None  # there is one
        seen = observation.activations(graph, variant)
        if seen is None:
            return None
        placed = tuple(lay_out(t, i.spec) for t, i in zip(seen, graph.activations, strict=True))
        return placed, _real(graph, observation)
    rng = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{attempt}/{variant}/{distribution}".encode()))
    count = len(graph.activations)
    special = distribution in SPECIAL
    put = specials(graph, only_nan=distribution is Distribution.NAN) if special else (Special.NONE,) * count
    if put is None:
        return None
    activations = []
    for at, given in enumerate(graph.activations):
        values = _activation(given.spec, observation, at, (distribution, attempt), rng)
        activations.append(lay_out(spoil(values, put[at], rng), given.spec))
    params = []
    for at, given in enumerate(graph.params):
        real, statistics = observation.params[at], observation.statistics[count + at]
        keep = not given.spec.is_float or statistics.special or given.kind is InputKind.CONSTANT
        values = real if keep else _normal(given.spec, statistics, rng)
        params.append(lay_out(values, given.spec))
    return tuple(activations), tuple(params)


def _real(graph: Graph, observation: Observation) -> tuple[torch.Tensor, ...]:
    return tuple(lay_out(t, i.spec) for t, i in zip(observation.params, graph.params, strict=True))


def _activation(
    spec: TensorSpec,
    observation: Observation,
    at: int,
    how: tuple[Distribution, int],
    rng: torch.Generator,
) -> torch.Tensor:
    statistics = observation.statistics[at]
    if spec.dtype == "bool":
        return torch.rand(spec.shape, generator=rng) < _share(statistics.mean, how)
    if not spec.is_float:
        low, high = int(statistics.low), int(statistics.high)
        return torch.randint(low, high + 1, spec.shape, generator=rng)
    if statistics.special:
        return _resampled(spec, observation, at, rng)
    return _shaped(spec, statistics, how, rng)


def _share(seen: float, how: tuple[Distribution, int]) -> float:
    """The share of a mask that is true; one that never varied may be why a draw was no evidence."""
    if how[0] is Distribution.CENTRED:
        return 0.5
    return 0.25 + 0.5 * seen if how[1] and seen in (0.0, 1.0) else seen


def _shaped(
    spec: TensorSpec, statistics: Statistics, how: tuple[Distribution, int], rng: torch.Generator
) -> torch.Tensor:
    distribution, attempt = how
    values = _normal(spec, statistics, rng)
    size = float(values.square().mean().sqrt()) if values.numel() else 1.0
    match distribution:
        case Distribution.CENTRED:
            return torch.randn(spec.shape, generator=rng) * max(size, 1.0)
        case Distribution.LARGE:
            return values * max(_LARGE / max(size, 1e-30), 1.0) / 8.0**attempt
        case Distribution.TINY:
            return values * (_TINY / max(size, 1e-30)) * 8.0**attempt
        case Distribution.ZEROS:
            # A wholly zero input often gives a constant result, which proves nothing: then half the rows.
            return _rows(spec, rng) * values if attempt else torch.zeros(spec.shape)
        case Distribution.CONSTANT_ROWS if spec.shape:
            row = values.narrow(-1, 0, min(1, spec.shape[-1])).expand(spec.shape)
            return torch.where(_rows(spec, rng) > 0, row, values) if attempt else row
        case Distribution.OFFSET:
            deviation = float(values.std(correction=0)) if values.numel() else 0.0
            return values - values.mean() + _OFFSET[spec.dtype] * deviation / 4.0**attempt
    return values


def _normal(spec: TensorSpec, statistics: Statistics, rng: torch.Generator) -> torch.Tensor:
    deviation = statistics.std
    if deviation <= 1e-6 * abs(statistics.mean):
        deviation = _SPREAD * (abs(statistics.mean) or 1.0)
    values = torch.randn(spec.shape, generator=rng).mul_(deviation).add_(statistics.mean)
    if statistics.nonnegative:
        values = values.abs_().clamp_(min=0.5 * statistics.low)
    if 0.01 < statistics.zeros < 1.0:
        values *= torch.rand(spec.shape, generator=rng) >= statistics.zeros
    return values


def _rows(spec: TensorSpec, rng: torch.Generator) -> torch.Tensor:
    """Ones and zeros, one a row: at least one of each where there are two rows."""
    rows = torch.rand((*spec.shape[:-1], 1), generator=rng)
    return (rows > rows.median()).float().expand(spec.shape) if rows.numel() > 1 else torch.ones(spec.shape)


def _resampled(spec: TensorSpec, observation: Observation, at: int, rng: torch.Generator) -> torch.Tensor:
    """Values that were seen, rows kept whole: an additive mask stays a mask."""
    seen = next(t for t in (tensors[at] for _, tensors in observation.captured) if t.numel())
    if tuple(seen.shape) == spec.shape:
        return seen
    pool = seen.reshape(-1).float()
    start = int(torch.randint(pool.numel(), (1,), generator=rng))
    return pool.roll(-start).repeat(-(-spec.numel // pool.numel()))[: spec.numel].reshape(spec.shape)
