"""From a call of the module to the tensors of its graph, and from the graph's outputs to the result."""

import ast
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.capture.conversion import convert
from mkevolve.capture.module_state import module_tensors
from mkevolve.capture.tracing import spec_of, trace
from mkevolve.data.graph import InputKind
from mkevolve.data.model import CapturedModel, Leaf, Variant
from mkevolve.errors import CaptureError
from mkevolve.models.inputs import Call
from mkevolve.models.source import Model


def leaves_of(call: Call) -> tuple[tuple[Leaf, ...], str]:
    """Describe a call: its leaves in tree order and its tree as text."""
    values, tree = pytree.tree_flatten(call)
    return tuple(_leaf(v) for v in values), dump_tree(tree)


def dump_tree(tree: pytree.TreeSpec) -> str:
    """Write a tree as text; raises CaptureError for a container that has no text form."""
    try:
        return pytree.treespec_dumps(tree)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise CaptureError(
            f"the arguments or results of forward have a container that cannot be written down: {error};"
            " use tuples, lists and dicts, or register it with torch.utils._pytree and a serialized name"
        ) from error


def bind(variant: Variant, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Map the activations of a variant's graph to the tensors of a call (see `normalise_call`).

    Sizes, dtypes and strides are not compared. Raises CaptureError naming the argument where the call has
    another structure, or another plain value, than the captured one.
    """
    values, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if tree != pytree.treespec_loads(variant.in_tree):
        raise CaptureError(f"the call's arguments are not the captured ones: {_difference(variant, kwargs)}")
    tensors = []
    for i, (value, leaf) in enumerate(zip(values, variant.leaves, strict=True)):
        if isinstance(value, torch.Tensor) and leaf.spec is not None:
            tensors.append(value)
        elif isinstance(value, torch.Tensor) or leaf.spec is not None or repr(value) != leaf.literal:
            raise CaptureError(
                f"{_argument(tree, i)} is {'a tensor' if isinstance(value, torch.Tensor) else repr(value)};"
                f" the model was captured with {leaf.literal or 'a tensor'} there"
            )
    return dict(zip((i.name for i in variant.graph.activations), tensors, strict=True))


def unflatten(captured: CapturedModel, outputs: Sequence[object]) -> object:
    """Nest what a graph returned as `forward` does; the mutated values in front are left out."""
    return pytree.tree_unflatten(
        list(outputs)[len(captured.mutations) :], pytree.treespec_loads(captured.out_tree)
    )


def constants_of(model: Model | nn.Module, captured: CapturedModel) -> dict[str, torch.Tensor]:
    """Map every parameter, buffer and constant of the graph, by input name, to the module's own tensor.

    Tensors that `forward` makes from literals belong to no module: they are found by tracing once more.
    """
    module = model.module if isinstance(model, Model) else model
    tensors = module_tensors(module)
    graph = captured.target.graph
    if any(i.target not in tensors and i.kind is InputKind.CONSTANT for i in graph.params):
        tensors |= convert(trace(module, call_of(_smallest(captured)))).constants
    missing = [str(i.target) for i in graph.params if i.target not in tensors]
    if missing:
        raise CaptureError(
            f"the module has no tensor {', '.join(missing)}; {captured.name} was captured with it"
        )
    return {i.name: tensors[str(i.target)] for i in graph.params}


def call_of(variant: Variant) -> Call:
    """Return a call of a variant's sizes with tensors on the meta device."""
    return call_from(variant.leaves, variant.in_tree)


def call_from(leaves: Sequence[Leaf], in_tree: str) -> Call:
    """Rebuild a call from its description, with tensors on the meta device."""
    args, kwargs = pytree.tree_unflatten([_example(leaf) for leaf in leaves], pytree.treespec_loads(in_tree))
    return args, kwargs


def _smallest(captured: CapturedModel) -> Variant:
    return min(captured.variants, key=lambda v: sum(leaf.spec.numel for leaf in v.leaves if leaf.spec))


def _example(leaf: Leaf) -> object:
    if leaf.spec is not None:
        dtype = getattr(torch, leaf.spec.dtype)
        return torch.empty_strided(leaf.spec.shape, leaf.spec.stride, dtype=dtype, device="meta")
    text = str(leaf.literal)
    return float(text) if text in ("inf", "-inf", "nan") else ast.literal_eval(text)


def _leaf(value: object) -> Leaf:
    if isinstance(value, torch.Tensor):
        return Leaf(spec_of(value))
    if value is None or isinstance(value, bool | int | float | str):
        return Leaf(None, repr(value))
    raise CaptureError(
        f"forward takes a {type(value).__name__}; pass tensors, numbers, text, or containers of them"
    )


def _difference(variant: Variant, kwargs: Mapping[str, object]) -> str:
    args, known = call_of(variant)
    extra, gone = sorted(set(kwargs) - set(known)), sorted(set(known) - set(kwargs))
    if extra or gone:
        return ", ".join([f"{k} is new" for k in extra] + [f"{k} is missing" for k in gone])
    return f"it had {len(args)} by position, or they were nested in another way"


def _argument(tree: pytree.TreeSpec, number: int) -> str:
    names = pytree.tree_unflatten(list(range(tree.num_leaves)), tree)
    args, kwargs = names
    for key, value in kwargs.items():
        if number in pytree.tree_leaves(value):
            return f"the argument {key}"
    position = next(i for i, value in enumerate(args) if number in pytree.tree_leaves(value))
    return f"argument {position + 1}"
