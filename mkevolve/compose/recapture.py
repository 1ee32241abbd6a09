"""Captures a module again at the variants of a composition file, and checks that the file fits it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from mkevolve.capture.calls import call_from, dump_tree
from mkevolve.capture.conversion import convert
from mkevolve.capture.module_state import copy_module
from mkevolve.capture.tracing import trace
from mkevolve.data.composition import Composition, Signature
from mkevolve.data.decomposition import Slot, Subgraph
from mkevolve.data.model import CapturedModel, Variant
from mkevolve.errors import CaptureError, CompositionError, IllegalPartition
from mkevolve.partition.extract import slots_of
from mkevolve.partition.legality import check
from mkevolve.partition.realize import facts_of, realize


@dataclass(frozen=True)
class Fitted:
    """A composition with the module's own graphs. `constants` are tensors made inside `forward`, by name."""

    captured: CapturedModel
    slots: tuple[Slot, ...]
    subgraphs: Mapping[str, Subgraph]
    constants: Mapping[str, torch.Tensor]


def fit(path: Path, composition: Composition, module: nn.Module) -> Fitted:
    """Capture `module` with fake tensors (it is neither called nor changed) and match every slot.

    Raises `CompositionError` where the module cannot be captured, or a slot's subgraph is another one.
    """
    try:
        captured, constants = recapture(composition.model, composition.signature, module)
        _check_dtype(path, composition.signature.dtype, captured, module)
        check(facts_of(realize(captured, composition.decomposition)), composition.decomposition)
        slots, subgraphs = slots_of(captured, composition.decomposition)
    except (CaptureError, IllegalPartition) as error:
        mode = "train" if composition.signature.training else "eval"
        raise CompositionError(
            f"{path} does not fit this {type(module).__name__} (mode: {mode}): {error}"
        ) from error
    wanted = {choice.slot.name: choice.slot.subgraph for choice in composition.slots}
    for slot in slots:
        if wanted.get(slot.name) != slot.subgraph:
            raise CompositionError(
                f"{path} does not fit this {type(module).__name__}: slot {slot.name} ({slot.ops}) is"
                f" {slot.subgraph} here and {wanted.get(slot.name, 'missing')} in the file; give a"
                f" {composition.model} in {composition.signature.dtype} made like the one that was searched"
            )
    extra = wanted.keys() - {slot.name for slot in slots}
    if extra:
        raise CompositionError(f"{path}: the slot {min(extra)} is not in its decomposition; remove it")
    return Fitted(captured, slots, {s.id: s for s in subgraphs}, constants)


def _check_dtype(path: Path, dtype: str, captured: CapturedModel, module: nn.Module) -> None:
    """The file is for parameters of this dtype; for activations, where there are no parameters."""
    found = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if not found:  # then a model that names no dtype has torch's default
        found = [getattr(torch, i.spec.dtype) for i in captured.target.graph.activations if i.spec.is_float]
        found.append(torch.get_default_dtype())
    names = sorted({str(d).removeprefix("torch.") for d in found})
    if dtype not in names:
        raise CompositionError(
            f"{path} does not fit this {type(module).__name__}: the file is for one in {dtype}"
            f" (its line `dtype:`), this one is in {' and '.join(names)}"
        )


def recapture(
    name: str, signature: Signature, module: nn.Module
) -> tuple[CapturedModel, Mapping[str, torch.Tensor]]:
    """Capture a module at the calls of a signature, in its mode; also the tensors made inside `forward`.

    Raises CaptureError where that fails or the variants differ in structure.
    """
    shell = copy_module(module, lambda tensor: tensor).train(signature.training)
    variants: list[Variant] = []
    for variant, leaves in signature.variants:
        traced = trace(shell, call_from(leaves, signature.in_tree))
        found = convert(traced)
        if not variants:
            tree, first = traced.program.call_spec.out_spec, found
        variants.append(Variant(variant, found.graph, leaves, signature.in_tree))
        if _structure(found.graph.nodes) != _structure(first.graph.nodes):
            raise CaptureError(f"its graph at {variant} has another structure than at {variants[0].name}")
    assert tree is not None
    captured = CapturedModel(
        name=name,
        dtype=signature.dtype,
        training=signature.training,
        variants=tuple(variants),
        in_tree=signature.in_tree,
        out_tree=dump_tree(tree),
        mutations=first.mutations,
    )
    return captured, first.constants


def _structure(nodes: tuple[object, ...]) -> list[tuple[str, str]]:
    return [(getattr(n, "name", ""), getattr(n, "op", "")) for n in nodes]
