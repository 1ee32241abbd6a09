"""The whole composition against the model: every check variant, kernels in children, references elsewhere."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from mkevolve.config import Settings
from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Decomposition, Slot, Subgraph
from mkevolve.data.graph import InputKind
from mkevolve.data.model import Variant
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Backend, Case, RunJob
from mkevolve.partition.execution import Fill, Tensors, execute, programs, reference_fill
from mkevolve.reference import run_graph_fp64
from mkevolve.session import Session
from mkevolve.verify.eager import run_eager
from mkevolve.verify.expected import expect
from mkevolve.verify.numeric import compare, shape_fault

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What fills a slot: a candidate's source in one configuration."""

    source: str
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far the whole is from the fp64 reference at one variant; `message` is empty where it passed."""

    variant: str
    error: float
    allowed: float
    compared: int
    message: str = ""


class _KernelFault(Exception):
    """A kernel failed inside the whole; carries the slot and the reason."""


def check_whole(
    session: Session,
    decomposition: Decomposition,
    slots: tuple[Slot, ...],
    subgraphs: tuple[Subgraph, ...],
    kernels: Mapping[str, Kernel],
    backend: Backend,
) -> tuple[Deviation, ...]:
    """Run the composition with `kernels` (by slot name) at each check variant and compare with the model.

    The same bound as for one kernel holds: relative to the error that eager itself makes under the policy.
    """
    runs = programs(session.captured, decomposition, slots)
    by_id = {s.id: s for s in subgraphs}

    def one(variant: Variant) -> Deviation:
        fill = _fill(kernels, by_id, reference_fill(runs[variant.name]), backend, variant.name)
        inputs = {**session.by_name(variant.name), **session.examples[variant.name]}
        return deviation(
            variant, inputs, partial(execute, runs[variant.name], inputs, fill), session.settings
        )

    return tuple(one(variant) for variant in session.captured.checks)


def deviation(
    variant: Variant,
    inputs: Mapping[str, torch.Tensor],
    run: Callable[[], tuple[object, ...]],
    settings: Settings,
) -> Deviation:
    """Compare what `run` returns with the variant's graph on `inputs`, within what eager's error allows."""
    seed = settings.seed
    wide = _seeded(seed, lambda: run_graph_fp64(variant.graph, inputs))
    eager = _seeded(seed, lambda: run_eager(variant.graph, inputs, settings.precision))
    try:
        given = _tensors(_seeded(seed, run))
    except _KernelFault as fault:
        return Deviation(variant.name, float("inf"), 0.0, 0, str(fault))
    specs = tuple(value.spec for value in variant.graph.output_values)
    fault_text = shape_fault(given, specs)
    if fault_text:
        return Deviation(variant.name, float("inf"), 0.0, 0, fault_text)
    expected = tuple(expect(w, e, s) for w, e, s in zip(_tensors(wide), _tensors(eager), specs, strict=True))
    result = compare(given, expected)
    message = "" if result.status is Status.PASSED else result.message
    return Deviation(variant.name, result.error or 0.0, result.allowed or 0.0, result.compared, message)


def _fill(
    kernels: Mapping[str, Kernel],
    by_id: Mapping[str, Subgraph],
    fallback: Fill,
    backend: Backend,
    variant: str,
) -> Fill:
    def fill(slot: Slot, tensors: Tensors) -> Tensors:
        kernel = kernels.get(slot.name)
        if kernel is None:
            return fallback(slot, tensors)
        kinds = [i.kind for i in by_id[slot.subgraph].target.inputs]
        count = sum(kind is InputKind.ACTIVATION for kind in kinds)
        case = Case(f"whole/{_digest(tensors)}", variant, tensors[:count], tensors[count:])
        (result,) = backend.run(RunJob(kernel.source, kernel.configuration, (case,)))
        if result.status is not Status.PASSED:
            raise _KernelFault(f"slot {slot.name}: {result.status.value}: {result.message}")
        return result.outputs

    return fill


def _digest(tensors: Tensors) -> str:
    """Equal for equal inputs only: what reaches a slot depends on the kernels before it."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{tensor.shape}{tensor.dtype}{tensor.stride()}".encode())
        content.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _seeded(seed: int, run: Callable[[], T]) -> T:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return run()


def _tensors(results: tuple[object, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(r for r in results if isinstance(r, torch.Tensor))
