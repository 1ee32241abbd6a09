"""Compositions for tests: of fall-backs for any module, and with hand-written kernels in some slots."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.capture import normalise_call
from mkevolve.capture.calls import leaves_of
from mkevolve.compose.recapture import recapture
from mkevolve.composition_file import kernel_path, write
from mkevolve.data.candidate import Configuration
from mkevolve.data.composition import Composition, KernelEntry, Signature, SlotChoice
from mkevolve.data.ids import source_id
from mkevolve.data.measurement import Clock, Environment
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut

ENVIRONMENT = Environment(Clock.MODEL, "h200", "", torch.__version__, "3", "ieee", "1", "1")


def signature_of_calls(module: nn.Module, *calls: tuple[object, ...]) -> Signature:
    described = [leaves_of(normalise_call(module, call, {})) for call in calls]
    names = ["target", *(f"check_{i}" for i in range(1, len(calls)))]
    dtype = next((str(p.dtype).removeprefix("torch.") for p in module.parameters()), "float32")
    variants = tuple((name, leaves) for name, (leaves, _) in zip(names, described, strict=True))
    return Signature(dtype, module.training, described[0][1], variants)


def compose(
    folder: Path, module: nn.Module, *calls: tuple[object, ...], kernels: Mapping[str, str] | None = None
) -> Path:
    """Write a composition; `kernels` maps a slot's name, or the start of its ops, to a source."""
    signature = signature_of_calls(module, *calls)
    captured, _ = recapture("sample", signature, module)
    cut = first_cut(captured)
    slots, subgraphs = slots_of(captured, cut)
    by_id = {s.id: s for s in subgraphs}
    choices, entries, sources = [], [], {}
    for slot in slots:
        source = next((t for k, t in (kernels or {}).items() if slot.name == k or slot.ops == k), None)
        if source is None:
            choices.append(SlotChoice(slot, "eager", "no kernel"))
            continue
        kernel = source_id(source)
        sources[kernel] = source
        path = kernel_path(kernel, slot.name)
        digest = hashlib.sha256(source.encode()).hexdigest()
        settings = tuple((name, Configuration()) for name, _ in by_id[slot.subgraph].variants)
        entries.append(KernelEntry(kernel, path, digest, slot.subgraph, settings, "e_0123456789ab"))
        choices.append(SlotChoice(slot, path))
    made = Composition("sample", cut, tuple(choices), tuple(entries), ENVIRONMENT, signature)
    path = folder / "composition.yaml"
    write(path, made, sources)
    return path


def clone(value: object) -> object:
    """Copy a call leaf by leaf, with its strides."""

    def one(tensor: object) -> object:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        return copy.copy_(tensor)

    return pytree.tree_map(one, value)


def assert_same(left: object, right: object) -> None:
    """Compare results as the cases ask: nesting, types, dtypes, strides, values."""
    found, tree = pytree.tree_flatten(left)
    wanted, expected = pytree.tree_flatten(right)
    assert str(tree) == str(expected)
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b)
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.numel() < 2 or a.stride() == b.stride()
        if b.is_floating_point():
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert torch.equal(a, b)


def edited(path: Path, **changes: object) -> None:
    """Change the file as a person would: replace texts."""
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, str(new))
    path.write_text(text)


__all__ = ["ENVIRONMENT", "assert_same", "clone", "compose", "edited", "replace", "signature_of_calls"]
