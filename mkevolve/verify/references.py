"""References of one subgraph: cases with what is expected of them, computed once for all its candidates."""

import itertools
import os
from dataclasses import dataclass, field

import torch

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status
from mkevolve.verify.cases import SPECIAL, Distribution, draw
from mkevolve.verify.expected import Expected
from mkevolve.verify.influence import emphases
from mkevolve.verify.numeric import compare
from mkevolve.verify.observe import Observation
from mkevolve.verify.oracle import expectations, expectations_fp32, results
from mkevolve.verify.work import flops, peak_bytes

_ATTEMPTS = 4
_serial = itertools.count()  # observations differ between objects, so their inputs may not be shared
_FP64_FLOPS, _FP64_BYTES = 1e9, 1e8  # three runs of the graph, and comparisons, take about a second
_FP32_FLOPS, _FP32_BYTES = 1.5e11, 1.5e9
SMALL_FLOPS = 5e7  # a target that the interpreter can run whole
_FINITE = 0.99  # share of a reference that must be finite
_HARDLY_FINITE = 0.1  # where no draw is more finite


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of inputs and what is expected of it. Without `expected` there is nothing to compare with.

    `key` is equal only for equal inputs. `replaced` draws before it were no evidence.
    """

    key: str
    variant: str
    distribution: Distribution
    seed: int
    activations: tuple[torch.Tensor, ...]
    params: tuple[torch.Tensor, ...]
    expected: tuple[Expected, ...]
    replaced: int = 0


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
        """The case of a variant; None where no draw of this kind is evidence for this subgraph."""
        key = (variant, distribution, seed)
        if key not in self._samples:
            self._samples[key] = self._drawn(variant, distribution, seed)
        return self._samples[key]

    def captured(self, variant: str) -> Sample | None:
        """What the model really sends, where the infinities in the result are the point: a mask."""
        graph = dict(self.subgraph.variants)[variant]
        inputs = draw(graph, self.observation, variant, Distribution.CAPTURED, self.seed)
        if inputs is None:
            return None
        expected = expectations(graph, (*inputs[0], *inputs[1]), self.precision)
        if not is_evidence(expected, _HARDLY_FINITE):
            return None
        key = self._key(variant, Distribution.CAPTURED, 0)
        return Sample(key, variant, Distribution.CAPTURED, 0, *inputs, expected)

    def _drawn(self, variant: str, distribution: Distribution, seed: int) -> Sample | None:
        graph = dict(self.subgraph.variants)[variant]
        for attempt in range(_ATTEMPTS):
            inputs = draw(graph, self.observation, variant, distribution, self.seed + seed, attempt)
            if inputs is None:
                continue
            special = distribution in SPECIAL
            expected = expectations(graph, (*inputs[0], *inputs[1]), self.precision, special)
            if special or is_evidence(expected):
                key = self._key(variant, distribution, seed, attempt)
                return Sample(key, variant, distribution, seed, *inputs, expected, attempt)
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
        graph = dict(self.subgraph.variants)[base.variant]
        other = draw(graph, self.observation, base.variant, Distribution.REDRAW, self.seed + 1)
        assert other is not None
        given, fresh = (*base.activations, *base.params), (*other[0], *other[1])
        samples: list[Sample] = []
        silent: list[str] = []
        for at, entry in enumerate((*graph.activations, *graph.params)):
            rng = torch.Generator().manual_seed(self.seed + at)
            for emphasis in emphases(at, entry.spec, given, fresh[at], rng):
                expected = base.expected if emphasis.usual else self._tried(graph, emphasis.inputs)
                if expected is None or not self._shows(graph, emphasis.changed, expected):
                    continue
                if not emphasis.usual:
                    count = len(graph.activations)
                    key = self._key(base.variant, Distribution.EMPHASIS, at)
                    parts = (emphasis.inputs[:count], emphasis.inputs[count:], expected)
                    samples.append(Sample(key, base.variant, Distribution.EMPHASIS, at, *parts))
                break
            else:
                silent.append(entry.name)
        return Influence(tuple(samples), tuple(silent))

    def _tried(self, graph: Graph, tensors: tuple[torch.Tensor, ...]) -> tuple[Expected, ...] | None:
        """The expectation of changed inputs; None where they are no evidence or not even valid."""
        try:
            expected = expectations(graph, tensors, self.precision)
        except (IndexError, RuntimeError):  # an index that is none
            return None
        return expected if is_evidence(expected) else None

    def _shows(self, graph: Graph, tensors: tuple[torch.Tensor, ...], expected: tuple[Expected, ...]) -> bool:
        """Whether the result of changed inputs would be refused."""
        try:
            given = results(graph, tensors)
        except (IndexError, RuntimeError):
            return False
        return compare(given, expected, explain=False).status is not Status.PASSED

    def target(self) -> tuple[Sample, str]:
        """The one case at the target sizes, and a note where its reference is not in float64.

        The reference is computed in float32 with a widened bound where float64 would take too long, and not
        at all where that would too.
        """
        graph = self.subgraph.target
        sample = self._target or self._draw_target(Distribution.REDRAW)
        assert sample is not None  # only a captured draw can be missing
        self._target = sample
        if not sample.expected:
            return sample, "target: values not compared (the reference would take too long)"
        widened = not _fits(graph, _FP64_FLOPS, _FP64_BYTES, 8)
        return sample, "target: reference in float32, bound widened" if widened else ""

    def at_target(self, distribution: Distribution) -> Sample | None:
        """Another case at the target sizes, for a device; None where it is no evidence or costs too much."""
        key = (self.subgraph.variants[0][0], distribution, 0)
        if key not in self._samples:
            sample = self._draw_target(distribution)
            special = distribution in SPECIAL
            if sample is not None and not (special or is_evidence(sample.expected)):
                sample = None
            self._samples[key] = sample if sample is not None and sample.expected else None
        return self._samples[key]

    def _draw_target(self, distribution: Distribution) -> Sample | None:
        name, graph = self.subgraph.variants[0]
        inputs = draw(graph, self.observation, name, distribution, self.seed)
        if inputs is None:
            return None
        tensors = (*inputs[0], *inputs[1])
        special = distribution in SPECIAL
        expected: tuple[Expected, ...] = ()
        if _fits(graph, _FP64_FLOPS, _FP64_BYTES, 8):
            expected = expectations(graph, tensors, self.precision, special)
        elif _fits(graph, _FP32_FLOPS, _FP32_BYTES, 4):
            expected = expectations_fp32(graph, tensors, self._any_check(distribution), special)
        return Sample(self._key(name, distribution, 0), name, distribution, 0, *inputs, expected)

    def _any_check(self, distribution: Distribution) -> tuple[Expected, ...] | None:
        for kind in (distribution, Distribution.REDRAW):
            for name, _ in self.subgraph.checks:
                sample = self.sample(name, kind)
                if sample is not None:
                    return sample.expected
        return None

    def checks(self) -> tuple[str, ...]:
        """Names of the check variants, least work first; a small target stands in where there are none."""
        found = sorted(self.subgraph.checks, key=lambda pair: flops(pair[1]))
        if not found and flops(self.subgraph.target) <= SMALL_FLOPS:
            found = list(self.subgraph.variants)
        return tuple(name for name, _ in found)


def _fits(graph: Graph, most_flops: float, most_bytes: float, itemsize: int) -> bool:
    return flops(graph) <= most_flops and peak_bytes(graph, itemsize) <= most_bytes


def is_evidence(expected: tuple[Expected, ...], least: float = _FINITE) -> bool:
    """Whether a reference proves anything: at most 1 % of it is not finite, and it is not constant."""
    given = [e for e in expected if e.spec.numel]
    if not given:
        return True
    finite = all(e.finite >= least for e in given)
    return finite and any(not e.constant or e.spec.numel == 1 for e in given)
