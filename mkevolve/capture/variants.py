"""Captures a model: one functional graph for each of its input variants, all of one structure."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from mkevolve.capture.calls import call_from, dump_tree, leaves_of
from mkevolve.capture.check import describe, run_eager
from mkevolve.capture.conversion import Converted, convert
from mkevolve.capture.sizes import candidates, free_sizes
from mkevolve.capture.structure import first_difference
from mkevolve.capture.tracing import Trace, fits, trace
from mkevolve.data.model import CapturedModel, Leaf, Variant
from mkevolve.errors import CaptureError, ModelError
from mkevolve.models.inputs import Call, resample, seeded
from mkevolve.models.source import Model

ONE_SIZE = "verified at one size"


def capture(model: Model) -> CapturedModel:
    """Capture a model at its target and at every check variant, without calling or changing its module.

    A model that comes with one size gets check variants drawn from a symbolic trace. A variant whose graph
    has another structure is dropped, and a note says so. Raises CaptureError where the graph would not be
    faithful, and ModelError where `forward` fails on the model's own inputs.
    """
    call = _declared_call(model, "target")
    traced, target = _captured(model, call)
    leaves, in_tree = leaves_of(call)
    variants = [Variant("target", target.graph, leaves, in_tree)]
    notes: list[str] = []
    for name in model.variants[1:]:
        check = _declared_call(model, name)
        found = _variant(model, name, check, target, notes)
        if found is not None:
            variants.append(found)
    if len(model.variants) == 1:
        variants += _drawn(model, call, in_tree, target, notes)
    if len(variants) == 1:
        notes.append(ONE_SIZE)
    out_tree = traced.program.call_spec.out_spec
    assert out_tree is not None
    return CapturedModel(
        model.name, model.dtype, model.training, tuple(variants), in_tree, dump_tree(out_tree),
        target.mutations, tuple(notes),
    )  # fmt: skip


def _declared_call(model: Model, variant: str) -> Call:
    if model.config.path is not None:
        return model.example(variant)
    with FakeTensorMode():  # only shapes are needed; the target's data may be large
        return model.example(variant)


def _captured(model: Model, call: Call) -> tuple[Trace, Converted]:
    try:
        traced = trace(model.module, call)
        return traced, convert(traced)
    except CaptureError:
        if model.config.path is not None:
            run_eager(
                model, call
            )  # a forward that fails on its own inputs is the model's mistake, not capture's
        raise


def _variant(model: Model, name: str, call: Call, target: Converted, notes: list[str]) -> Variant | None:
    try:
        _, found = _captured(model, call)
    except CaptureError as error:
        notes.append(f"variant {name} ({describe(call)}) dropped: {error}")
        return None
    problem = first_difference(target.graph, found.graph)
    if not problem and not _same_constants(target, found):
        problem = "forward makes other constants"
    if problem:
        notes.append(f"variant {name} ({describe(call)}) dropped, its graph differs: {problem}")
        return None
    return Variant(name, found.graph, *leaves_of(call))


def _same_constants(a: Converted, b: Converted) -> bool:
    return a.constants.keys() == b.constants.keys() and all(
        torch.equal(a.constants[k], b.constants[k]) for k in a.constants
    )


def _drawn(model: Model, call: Call, in_tree: str, target: Converted, notes: list[str]) -> list[Variant]:
    try:
        sizes = free_sizes(model, call)
    except CaptureError as error:
        notes.append(f"no check sizes: {error}")
        return []
    found: list[Variant] = []
    refused: list[str] = []
    missing: list[str] = []
    for batch in (2, 1) if sizes.batch is None or sizes.batch.value != 2 else (3, 1):
        reasons: list[str] = []
        for leaves in candidates(sizes, call, batch, lambda v: fits(model.module, call_from(v, in_tree))):
            name = f"check_{len(found) + 1}"
            drawn = call_from(leaves, in_tree)
            if not _eager_accepts(model, call, leaves):
                reasons.append(f"forward fails at sizes drawn for it ({describe(drawn)})")
                continue
            variant = _variant(model, name, drawn, target, refused)
            if variant is None:
                reasons.append(refused[-1])
            elif all(v.leaves != variant.leaves for v in found):
                found.append(variant)
                break
        else:
            missing.append(reasons[0] if reasons else "the inputs have no further sizes that may change")
    if not found:
        notes.extend(refused[:1])
    elif missing:
        notes.append(f"only one check variant: {missing[0]}")
    return found


def _eager_accepts(model: Model, call: Call, leaves: tuple[Leaf, ...]) -> bool:
    # Whether integers are valid positions depends on the values drawn, so they get a second draw.
    plain = all(v.is_floating_point() for v in pytree.tree_leaves(call) if isinstance(v, torch.Tensor))
    for seed in (0,) if plain else (0, 1):
        with seeded(seed):
            drawn = resample(call, leaves)
        try:
            run_eager(model, drawn)
        except ModelError:
            return False
    return True
