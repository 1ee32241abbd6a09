"""What reaches each subgraph when the model runs: the values that `captured` cases use and others imitate."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from mkevolve.data.decomposition import Slot
from mkevolve.data.graph import Graph, TensorSpec
from mkevolve.data.model import CapturedModel
from mkevolve.reference import evaluate


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a re-drawn input must keep. `low` and `high` are over finite values; `zeros` is a share.

    `special` = some value is infinite or NaN, as in an additive mask: such an input is resampled, not drawn.
    """

    mean: float
    std: float
    low: float
    high: float
    zeros: float
    special: bool = False

    @property
    def nonnegative(self) -> bool:
        """Whether no negative value was seen; all zeros say nothing about the sign."""
        return self.low >= 0.0 and self.high > 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What reached one subgraph: activations at each check variant, the real parameters, and statistics.

    `captured` maps the names of the subgraph's check variants; `statistics` has one entry an input,
    activations first. Picklable.
    """

    subgraph: str
    captured: tuple[tuple[str, tuple[torch.Tensor, ...]], ...]
    params: tuple[torch.Tensor, ...]
    statistics: tuple[Statistics, ...]

    def activations(self, graph: Graph, variant: str) -> tuple[torch.Tensor, ...] | None:
        """The activations seen at a variant, else those seen at equal sizes, else None."""
        seen = dict(self.captured)
        wanted = [i.spec for i in graph.activations]
        for tensors in (seen.get(variant, ()), *seen.values()):
            if [(tuple(t.shape), _name(t.dtype)) for t in tensors] == [(s.shape, s.dtype) for s in wanted]:
                return tensors
        return None


def observe(
    captured: CapturedModel,
    constants: Mapping[str, torch.Tensor],
    examples: Mapping[str, Mapping[str, torch.Tensor]],
    slots: Iterable[Slot],
) -> dict[str, Observation]:
    """Run the check variants (the target where there are none) and return, by subgraph id, what reached it.

    `captured` is the model as the slots name its values (after `realize`); `constants` maps the target or the
    name of each parameter, buffer and constant to its tensor; `examples` maps a variant to its activations by
    name. The target is not run beside them: it would take minutes, and its cases are drawn from statistics.
    """
    held = {
        i.name: constants[i.target if i.target is not None and i.target in constants else i.name]
        for i in captured.target.graph.params
    }
    values: dict[str, dict[str, torch.Tensor]] = {}
    for variant in captured.checks or captured.variants:
        if variant.name in examples:
            values[variant.name] = evaluate(variant.graph, {**held, **examples[variant.name]})
    specs = captured.target.graph.values()
    found: dict[str, Observation] = {}
    for slot in slots:
        count = sum(name not in held for name in slot.inputs)
        suffix = f"@{slot.name}" if slot.subgraph in found else ""
        seen = tuple(
            (variant + suffix, tuple(_own(env[name]) for name in slot.inputs[:count]))
            for variant, env in values.items()
        )
        params = tuple(held[name].detach() for name in slot.inputs[count:])
        if suffix:
            known = found[slot.subgraph]
            seen, params = (*known.captured, *seen), known.params
        found[slot.subgraph] = observation(slot.subgraph, seen, params)
        if not seen:
            assumed = tuple(_assumed(specs[name].spec) for name in slot.inputs[:count])
            made = found[slot.subgraph]
            found[slot.subgraph] = replace(made, statistics=(*assumed, *made.statistics))
    return found


def _assumed(spec: TensorSpec) -> Statistics:
    """What an input is taken to be like where the model was run at no size: normal, or a valid index."""
    if spec.is_float:
        return Statistics(0.0, 1.0, -4.0, 4.0, 0.0)
    return (
        Statistics(0.5, 0.5, 0.0, 1.0, 0.5) if spec.dtype == "bool" else Statistics(0.0, 0.0, 0.0, 0.0, 1.0)
    )


def observation(
    subgraph: str,
    captured: tuple[tuple[str, tuple[torch.Tensor, ...]], ...],
    params: tuple[torch.Tensor, ...],
) -> Observation:
    """Make an observation of given tensors: their statistics over all variants."""
    columns = list(zip(*(tensors for _, tensors in captured), strict=True))
    statistics = [_statistics(column) for column in (*columns, *((p,) for p in params))]
    return Observation(subgraph, captured, params, tuple(statistics))


def _statistics(tensors: tuple[torch.Tensor, ...]) -> Statistics:
    flat = torch.cat([_real(t.detach()).reshape(-1).to(torch.float64) for t in tensors])
    finite = flat[flat.isfinite()]
    special = finite.numel() < flat.numel()
    if finite.numel() == 0:
        return Statistics(0.0, 0.0, 0.0, 0.0, 0.0, special)
    return Statistics(
        mean=float(finite.mean()),
        std=float(finite.std(correction=0)),
        low=float(finite.min()),
        high=float(finite.max()),
        zeros=float((finite == 0).double().mean()),
        special=special,
    )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex values count by their magnitude."""
    return tensor.abs() if tensor.is_complex() else tensor


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that holds no larger storage alive."""
    spec = TensorSpec(tuple(tensor.shape), _name(tensor.dtype), tuple(tensor.stride()))
    return lay_out(tensor.detach(), spec)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def lay_out(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return a tensor with the dtype and strides of `spec` (a stride may be 0) and these values."""
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True)) if spec.numel else 0
    flat = torch.zeros(extent, dtype=getattr(torch, spec.dtype))
    result = flat.as_strided(spec.shape, spec.stride)
    into, source = result, values.expand(spec.shape)
    for dim, stride in enumerate(spec.stride):
        if stride == 0 and spec.shape[dim] > 1:  # one element stands for all of this axis
            into, source = into.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    into.copy_(source)
    return result
