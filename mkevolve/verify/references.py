"""References of one subgraph: cases with what is expected of them, computed once for all its candidates."""

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status
from mkevolve.reference import run_graph, run_graph_fp64
from mkevolve.verify.cases import Distribution, draw
from mkevolve.verify.eager import run_eager
from mkevolve.verify.expected import Expected, expect, tolerance
from mkevolve.verify.numeric import compare
from mkevolve.verify.observe import Observation
from mkevolve.verify.work import flops, in_float32, peak_bytes

_ATTEMPTS = 4
_serial = itertools.count()  # observations differ between objects, so their inputs may not be shared
_FACTORS = (1.0, 1e2, 1e4, 1e6)  # tried until an input shows
_FP64_FLOPS, _FP64_BYTES = 1e9, 1e8  # three runs of the graph, and comparisons, take about a second
_FP32_FLOPS, _FP32_BYTES = 1.5e11, 1.5e9
_SMALL_FLOPS = 5e7  # a target that the interpreter can run whole


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of inputs and what is expected of it. Without `expected` there is nothing to compare with.

    `key` is equal only for equal inputs.
    """

    key: str
    variant: str
    distribution: Distribution
    seed: int
    activations: tuple[torch.Tensor, ...]
    params: tuple[torch.Tensor, ...]
    expected: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class Influence:
    """`samples` show inputs that the usual cases do not; `silent` inputs never changed the result."""

    samples: tuple[Sample, ...] = ()
    silent: tuple[str, ...] = ()


@dataclass(slots=True)
class References:
    """Cases and references of a subgraph, made when first asked for and kept.

    The oracle runs in float64; eager's own error is taken from a run in the captured dtypes on the CPU, under
    the precision policy.
    """

    subgraph: Subgraph
    observation: Observation
    seed: int = 0
    precision: Precision = Precision.IEEE
    _samples: dict[tuple[str, Distribution, int], Sample | None] = field(default_factory=dict)
    _target: Sample | None = None
    _influence: Influence | None = None
    _token: str = field(default_factory=lambda: f"{os.getpid()}.{next(_serial)}")

    def under(self, precision: Precision) -> None:
        """Take eager's error under this policy from now on."""
        if precision is not self.precision:
            self.precision = precision
            self._samples.clear()
            self._target = self._influence = None

    def sample(self, variant: str, distribution: Distribution, seed: int = 0) -> Sample | None:
        """The case of a check variant; None where no draw of this kind is evidence for this subgraph."""
        key = (variant, distribution, seed)
        if key not in self._samples:
            self._samples[key] = self._drawn(variant, distribution, seed)
        return self._samples[key]

    def _drawn(self, variant: str, distribution: Distribution, seed: int) -> Sample | None:
        graph = dict(self.subgraph.variants)[variant]
        for attempt in range(_ATTEMPTS):
            inputs = draw(graph, self.observation, variant, distribution, self.seed + seed, attempt)
            if inputs is None:
                continue
            expected = self._expected(graph, (*inputs[0], *inputs[1]))
            if _is_evidence(expected, distribution):
                key = self._key(variant, distribution, seed, attempt)
                return Sample(key, variant, distribution, seed, *inputs, expected)
        return None

    def _key(self, variant: str, distribution: Distribution, seed: int, attempt: int = 0) -> str:
        return f"{self._token}/{self.subgraph.id}/{variant}/{distribution}/{self.seed}/{seed}/{attempt}"

    def influence(self) -> Influence:
        """Which inputs need cases of their own to show that they matter; found once."""
        if self._influence is None:
            names = self.checks()
            base = self.sample(names[0], Distribution.REDRAW) if names else None
            self._influence = Influence() if base is None else self._weak(base)
        return self._influence

    def _weak(self, base: Sample) -> Influence:
        """Draw each input anew by itself; where the result stays within its bound, make the input larger."""
        graph = dict(self.subgraph.variants)[base.variant]
        other = draw(graph, self.observation, base.variant, Distribution.REDRAW, self.seed + 1)
        assert other is not None
        given, fresh = (*base.activations, *base.params), (*other[0], *other[1])
        samples: list[Sample] = []
        silent: list[str] = []
        for at, entry in enumerate((*graph.activations, *graph.params)):
            for factor in _FACTORS if entry.spec.is_float else _FACTORS[:1]:
                tensors = _with(given, at, given[at] * factor if factor != 1.0 else given[at])
                changed = _with(given, at, fresh[at] * factor if factor != 1.0 else fresh[at])
                expected = base.expected if factor == 1.0 else self._expected(graph, tensors)
                if not _is_evidence(expected, Distribution.REDRAW):
                    continue
                if _shows(_tensors(run_graph_fp64(graph, _named(graph, changed))), expected):
                    if factor != 1.0:
                        count = len(graph.activations)
                        key = self._key(base.variant, Distribution.EMPHASIS, at)
                        parts = (tensors[:count], tensors[count:], expected)
                        samples.append(Sample(key, base.variant, Distribution.EMPHASIS, at, *parts))
                    break
            else:
                silent.append(entry.name)
        return Influence(tuple(samples), tuple(silent))

    def _expected(self, graph: Graph, tensors: tuple[torch.Tensor, ...]) -> tuple[Expected, ...]:
        inputs = _named(graph, tensors)
        wide = _tensors(run_graph_fp64(graph, inputs))
        eager = _tensors(run_eager(graph, inputs, self.precision))
        near = _tensors(run_graph_fp64(graph, {name: _nudged(t) for name, t in inputs.items()}))
        return tuple(
            expect(w, e, v.spec, n) for w, e, v, n in zip(wide, eager, graph.output_values, near, strict=True)
        )

    def target(self) -> tuple[Sample, str]:
        """The one case at the target sizes, and a note where its reference is not in float64.

        The reference is computed in float32 with a widened bound where float64 would take too long, and not
        at all where that would too.
        """
        name, graph = self.subgraph.variants[0]
        sample = self._target or self._draw_target(name, graph)
        self._target = sample
        if not sample.expected:
            return sample, "target: values not compared (the reference would take too long)"
        widened = not _fits(graph, _FP64_FLOPS, _FP64_BYTES, 8)
        return sample, "target: reference in float32, bound widened" if widened else ""

    def _draw_target(self, name: str, graph: Graph) -> Sample:
        inputs = draw(graph, self.observation, name, Distribution.REDRAW, self.seed)
        assert inputs is not None  # only a captured draw can be missing
        expected: tuple[Expected, ...] = ()
        if _fits(graph, _FP64_FLOPS, _FP64_BYTES, 8):
            expected = self._expected(graph, (*inputs[0], *inputs[1]))
        elif _fits(graph, _FP32_FLOPS, _FP32_BYTES, 4):
            expected = self._expected_fp32(graph, (*inputs[0], *inputs[1]))
        return Sample(
            self._key(name, Distribution.REDRAW, 0), name, Distribution.REDRAW, 0, *inputs, expected
        )

    def _expected_fp32(self, graph: Graph, tensors: tuple[torch.Tensor, ...]) -> tuple[Expected, ...]:
        single = tuple(t.float() if t.is_floating_point() else t for t in tensors)
        outputs = _tensors(run_graph(in_float32(graph), _named(graph, single)))
        small = self._any_check()
        return tuple(
            tolerance(o, v.spec, small.expected[at] if small else None)
            for at, (o, v) in enumerate(zip(outputs, graph.output_values, strict=True))
        )

    def _any_check(self) -> Sample | None:
        for name, _ in self.subgraph.checks:
            sample = self.sample(name, Distribution.REDRAW)
            if sample is not None:
                return sample
        return None

    def checks(self) -> tuple[str, ...]:
        """Names of the check variants, least work first; a small target stands in where there are none."""
        found = sorted(self.subgraph.checks, key=lambda pair: flops(pair[1]))
        if not found and flops(self.subgraph.target) <= _SMALL_FLOPS:
            found = list(self.subgraph.variants)
        return tuple(name for name, _ in found)


def _fits(graph: Graph, most_flops: float, most_bytes: float, itemsize: int) -> bool:
    return flops(graph) <= most_flops and peak_bytes(graph, itemsize) <= most_bytes


def _named(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    return {i.name: t for i, t in zip((*graph.activations, *graph.params), tensors, strict=True)}


def _with(tensors: tuple[torch.Tensor, ...], at: int, new: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (*tensors[:at], new, *tensors[at + 1 :])


def _shows(results: tuple[torch.Tensor, ...], expected: tuple[Expected, ...]) -> bool:
    """Tell whether results from other inputs would be refused."""
    return compare(results, expected).status is not Status.PASSED


def _tensors(results: Iterable[object]) -> tuple[torch.Tensor, ...]:
    return tuple(r for r in results if isinstance(r, torch.Tensor))


def _nudged(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, each value moved up or down by one unit in the last place of float32."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=torch.Generator().manual_seed(tensor.numel()))
    return tensor.double() * (1.0 + 2.0**-23 * (2 * signs - 1))


def _is_evidence(expected: tuple[Expected, ...], distribution: Distribution) -> bool:
    """More than 1 % non-finite or constant references prove nothing, except where that is the point.

    What the model really sends is evidence as it is, unless it is constant or hardly finite.
    """
    floats = [e for e in expected if e.spec.numel]
    if distribution is Distribution.NONFINITE or not floats:
        return True
    least = 0.1 if distribution is Distribution.CAPTURED else 0.99
    finite = all(e.finite >= least for e in floats)
    return finite and any(not e.constant or e.spec.numel == 1 for e in floats)
