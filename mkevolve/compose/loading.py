"""`mkevolve.load`: from a composition file and a module to the composed module."""

import os
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

from mkevolve.compose.kernels import (
    CheckedFile,
    CompiledFiller,
    DeviceLauncher,
    Filler,
    InterpreterLauncher,
    KernelFiller,
    Launcher,
    ReferenceFiller,
    interpreting,
)
from mkevolve.compose.module import ComposedModule, Plan
from mkevolve.compose.recapture import fit
from mkevolve.compose.state import Walk
from mkevolve.composition_file import entry_of, read, unchecked
from mkevolve.data.candidate import Configuration
from mkevolve.data.composition import FALLBACKS, Composition, KernelEntry, SlotChoice
from mkevolve.data.measurement import Clock
from mkevolve.errors import CompositionError
from mkevolve.partition.execution import programs
from mkevolve.partition.extract import variant_name
from mkevolve.partition.realize import facts_of, realize


def load(file: str | os.PathLike[str], module: nn.Module, *, unmeasured: bool = False) -> ComposedModule:
    """Return a module with the parameters of `module` that runs the composition in `file`.

    `module` is captured again with fake tensors and not changed. Raises `CompositionError` where the file is
    malformed, was edited and not checked, or does not fit the module.

    Subkernels run on a device whose chip the file has measurements for (any chip with `unmeasured=True`), or
    on the CPU in the Triton interpreter where `TRITON_INTERPRET=1` was set before triton was imported.
    Elsewhere, and outside the verified conditions, `module` itself runs; `report()` counts it.
    """
    path = Path(file).expanduser()
    if isinstance(module, ComposedModule):
        raise CompositionError("the module is composed already; load with the original one")
    composition = read(path)
    problem = unchecked(path, composition)
    if problem is not None:
        raise CompositionError(f"{path}: {problem}; run: mkevolve check composition={path}")
    fitted = fit(path, composition, module)
    cut = realize(fitted.captured, composition.decomposition)
    facts = facts_of(cut)
    runs = programs(fitted.captured, composition.decomposition, fitted.slots)
    params = {i.name for i in cut.target.graph.params}
    subvariants = {
        (slot.name, name): variant_name(fitted.subgraphs[slot.subgraph], run.graphs[slot.name])
        for name, run in runs.items()
        for slot in fitted.slots
    }
    plan = Plan(
        name=composition.model,
        fitted=fitted,
        signature=composition.signature,
        programs=runs,
        roots={
            slot.name: tuple(facts.root[v] for v in slot.inputs if facts.root[v] in params)
            for slot in fitted.slots
        },
        subvariants=subvariants,
        baseline=Walk(module).marks,
        fillers=lambda: _fillers(path, composition, subvariants),
        refusal=_refusal(composition, unmeasured),
        again=partial(load, path.absolute(), unmeasured=unmeasured),
    )
    return ComposedModule(module, plan)


def _fillers(
    path: Path, composition: Composition, subvariants: Mapping[tuple[str, str], str]
) -> Mapping[str, Filler]:
    found: dict[str, Filler] = {}
    for choice in composition.slots:
        if choice.implementation == "eager":
            found[choice.slot.name] = ReferenceFiller()
        elif choice.implementation == "compile":
            found[choice.slot.name] = CompiledFiller()
        else:
            entry = _checked_entry(composition, choice)
            name = f"mkevolve_kernel_{entry.id}"
            settings = _configurations(entry, choice.slot.name, subvariants)
            kernel = CheckedFile(path.parent / entry.path, name, entry.sha256)
            found[choice.slot.name] = KernelFiller(kernel, settings, _launcher())
    return found


def _configurations(
    entry: KernelEntry, slot: str, subvariants: Mapping[tuple[str, str], str]
) -> dict[str, Configuration]:
    """Configurations by variant of the subgraph; the table may also name them by the model's variants."""
    given = dict(entry.configurations)
    found = {
        sub: given[name] for (owner, name), sub in subvariants.items() if owner == slot and name in given
    }
    return found | given


@cache
def _launcher() -> Launcher:
    """The one way in which this process runs kernels: triton chose it when it was imported."""
    return InterpreterLauncher() if interpreting() else DeviceLauncher()


def _checked_entry(composition: Composition, choice: SlotChoice) -> KernelEntry:
    entry = entry_of(composition, choice)
    assert entry is not None  # `unchecked` looked before
    return entry


def _refusal(composition: Composition, unmeasured: bool) -> Callable[[torch.device | None], str | None]:
    """Say, for a device, why subkernels may not run there."""
    choices = [c for c in composition.slots if c.implementation not in FALLBACKS]
    times = [_checked_entry(composition, c).measurement for c in choices]
    measured = composition.environment.clock is Clock.DEVICE and all(
        t is not None and t.clock is Clock.DEVICE for t in times
    )
    chip = composition.environment.chip

    def refusal(device: torch.device | None) -> str | None:
        if not choices:
            return None
        if device is None or device.type not in ("cpu", "cuda"):
            return "subkernels run on CUDA devices only"
        if device.type == "cpu":
            return None if interpreting() else "the tensors are on the CPU"
        if interpreting():
            return "triton was imported with TRITON_INTERPRET=1"
        if unmeasured or (measured and _is_chip(device, chip)):
            return None
        return "no measurement on this chip; run `mkevolve measure`, or load with unmeasured=True"

    return refusal


@cache
def _is_chip(device: torch.device, chip: str) -> bool:
    return re.search(rf"\b{re.escape(chip)}\b", torch.cuda.get_device_name(device), re.IGNORECASE) is not None
