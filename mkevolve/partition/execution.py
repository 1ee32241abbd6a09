"""Runs a model slot by slot; what runs a slot is the caller's: a reference, a child process or a kernel."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.graph import Arg, Graph, Node, Ref, TensorSpec
from mkevolve.data.model import CapturedModel
from mkevolve.partition.canonical import canonical, cut_out
from mkevolve.partition.extract import slots_of, steps
from mkevolve.partition.layout import same_layout
from mkevolve.partition.realize import facts_of, realize
from mkevolve.reference import run_graph, run_node

Tensors = tuple[torch.Tensor, ...]
Fill = Callable[[Slot, Tensors], Tensors]


@dataclass(frozen=True, slots=True)
class Program:
    """One variant of a cut model, ready to run: slots and glue views in order, and what they make.

    `dead` holds, for each step, the values that no later step reads. `graphs` has the canonical graph of
    each slot at this variant, by slot name; `specs` are those of slot outputs.
    """

    steps: tuple[Slot | Node, ...]
    outputs: tuple[Arg, ...]
    dead: tuple[tuple[str, ...], ...]
    specs: Mapping[str, TensorSpec]
    graphs: Mapping[str, Graph]


def programs(
    captured: CapturedModel, decomposition: Decomposition, slots: tuple[Slot, ...]
) -> dict[str, Program]:
    """One program a variant, by the variant's name."""
    model = realize(captured, decomposition)
    facts = facts_of(model)
    cuts = {slot.name: cut_out(facts, slot.nodes) for slot in slots}
    found = {}
    for variant in model.variants:
        order = steps(facts, slots, variant.graph)
        specs = variant.graph.values()
        made = {name: specs[name].spec for slot in slots for name in slot.outputs}
        graphs = {name: canonical(facts, variant.graph, cut) for name, cut in cuts.items()}
        dead = _dead(order, variant.graph)
        found[variant.name] = Program(order, variant.graph.outputs, dead, made, graphs)
    return found


def _dead(order: tuple[Slot | Node, ...], graph: Graph) -> tuple[tuple[str, ...], ...]:
    last: dict[str, int] = {}
    for i, step in enumerate(order):
        read = step.inputs if isinstance(step, Slot) else step.reads
        last.update(dict.fromkeys(read, i))
        made = step.outputs if isinstance(step, Slot) else tuple(v.name for v in step.outputs)
        last.update(dict.fromkeys(made, i))
    kept = {o.name for o in graph.outputs if isinstance(o, Ref)}
    dead: list[list[str]] = [[] for _ in order]
    for name, i in last.items():
        if name not in kept:
            dead[i].append(name)
    return tuple(tuple(names) for names in dead)


def execute(
    program: Program, inputs: Mapping[str, torch.Tensor], fill: Fill
) -> tuple[torch.Tensor | Arg, ...]:
    """Run a program on tensors by input name; returns the graph's outputs: tensors, or its literals.

    `fill` gets the tensors of `slot.inputs` and returns those of `slot.outputs`. A result whose strides are
    not those of the boundary is copied into them.
    """
    env = dict(inputs)
    device = next((t.device for t in env.values()), torch.device("cpu"))
    for step, dead in zip(program.steps, program.dead, strict=True):
        if isinstance(step, Slot):
            results = fill(step, tuple(env[name] for name in step.inputs))
            for name, tensor in zip(step.outputs, results, strict=True):
                env[name] = _strided(tensor.to(device), program.specs[name])
        else:
            views = run_node(step, env, device)
            env.update((v.name, t) for v, t in zip(step.outputs, views, strict=True))
        for name in dead:
            env.pop(name, None)
    return tuple(env[o.name] if isinstance(o, Ref) else o for o in program.outputs)


def _strided(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    if tensor.stride() == spec.stride or tuple(tensor.shape) != spec.shape:
        return tensor
    if same_layout(spec.shape, tuple(tensor.stride()), spec.stride):
        return tensor.as_strided(spec.shape, spec.stride)
    copy = torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def reference_fill(program: Program) -> Fill:
    """Run each slot by the canonical graph of its subgraph."""

    def fill(slot: Slot, tensors: Tensors) -> Tensors:
        return run_reference(program.graphs[slot.name], tensors)

    return fill


def run_reference(graph: Graph, tensors: Tensors) -> Tensors:
    """Run a subgraph on its inputs, given in order."""
    inputs = {i.name: t for i, t in zip(graph.inputs, tensors, strict=True)}
    return tuple(r for r in run_graph(graph, inputs) if isinstance(r, torch.Tensor))


def verify_references(
    captured: CapturedModel, decomposition: Decomposition, variant: str, inputs: Mapping[str, torch.Tensor]
) -> str | None:
    """Compare the composition of references with the whole graph at one variant, output by output.

    Returns None where they agree, else one line that says which output differs. Random draws follow the seed
    that is set on entry, on both sides.
    """
    slots, _ = slots_of(captured, decomposition)
    program = programs(captured, decomposition, slots)[variant]
    graph = next(v.graph for v in captured.variants if v.name == variant)
    state = torch.get_rng_state()
    whole = run_graph(graph, inputs)
    torch.set_rng_state(state)
    parts = execute(program, inputs, reference_fill(program))
    for i, (left, right) in enumerate(zip(whole, parts, strict=True)):
        difference = _difference(left, right)
        if difference:
            return f"{variant}: output {i} of the composition differs from the model: {difference}"
    return None


def _difference(left: object, right: object) -> str:
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return "" if left == right else f"{right!r} instead of {left!r}"
    for name in ("shape", "dtype"):
        if getattr(left, name) != getattr(right, name):
            return f"{name} {getattr(right, name)} instead of {getattr(left, name)}"
    if left.stride() != right.stride() and left.numel() > 1:
        return f"strides {right.stride()} instead of {left.stride()}"
    if torch.equal(left, right) or torch.allclose(left, right, rtol=1e-5, atol=1e-6, equal_nan=True):
        return ""
    return f"largest difference {(left.double() - right.double()).abs().max().item():.3g}"
