"""The composed module: shares its parameters with the original, which runs where nothing was verified."""

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.compose.guard import Accepted, Guard, Reason
from mkevolve.compose.kernels import Filler, KernelFiller, ReferenceFiller
from mkevolve.compose.recapture import Fitted
from mkevolve.compose.report import OriginalRan, Report, Tally
from mkevolve.compose.state import Key
from mkevolve.data.composition import Signature
from mkevolve.data.decomposition import Slot
from mkevolve.data.graph import Arg, Ref
from mkevolve.partition.execution import Program, Tensors, execute

# The state that a module and its composed twin share: the same dictionaries, so that neither can drift.
_SHARED = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


@dataclass(frozen=True)
class Plan:
    """What is fixed when a composition is loaded.

    `roots` maps a slot to the graph inputs whose memory its parameters share; `subvariants` maps (slot,
    variant of the model) to the variant's name in the slot's subgraph. `refusal` says why subkernels may not
    run on a device, and is None where they may; it is asked at each call, since modules move. `again` loads
    the same file with a module; it can be pickled, the rest of the plan cannot.
    """

    name: str
    fitted: Fitted
    signature: Signature
    programs: Mapping[str, Program]
    roots: Mapping[str, tuple[str, ...]]
    subvariants: Mapping[tuple[str, str], str]
    baseline: Mapping[Key, object]
    fillers: Callable[[], Mapping[str, Filler]]
    refusal: Callable[[torch.device | None], str | None]
    again: Callable[[nn.Module], nn.Module]


class ComposedModule(nn.Module):
    """A drop-in for the module that it was loaded with; made by `mkevolve.load`."""

    def __init__(self, original: nn.Module, plan: Plan) -> None:
        super().__init__()
        # in `__dict__`, not as a submodule: `state_dict` keeps the original's keys
        self.__dict__["_original"] = original
        for name in _SHARED:
            self.__dict__[name] = original.__dict__[name]
        self.__dict__["_version"] = original._version  # what `state_dict` notes of the root
        self.training = original.training
        self._plan = plan
        fitted = plan.fitted
        self._guard = Guard(original, fitted.captured, plan.signature, fitted.constants, plan.baseline)
        self._fillers = plan.fillers()
        self._reference = ReferenceFiller()
        self._out_tree = pytree.treespec_loads(fitted.captured.out_tree)
        self._tally = Tally()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run slot by slot under the verified conditions, else the original, whole."""
        found = self._guard.check(args, kwargs)
        if isinstance(found, Accepted):
            refused = self._plan.refusal(_device(found))
            if refused is None:
                return self._composed(found)
            found = Reason(refused)
        if not torch.compiler.is_compiling():
            self._note(found)
        return self._original(*args, **kwargs)

    def report(self) -> Report:
        """What ran so far."""
        return self._tally.report(tuple(slot.name for slot in self._plan.fitted.slots))

    def refresh(self) -> None:
        """Prepare weights anew at the next call; a write through `.data` leaves no mark and needs this."""
        for filler in self._fillers.values():
            filler.refresh()

    def _composed(self, call: Accepted) -> object:
        program = self._plan.programs[call.variant]

        def fill(slot: Slot, tensors: Tensors) -> Tensors:
            variant = self._plan.subvariants[slot.name, call.variant]
            filler = self._fillers[slot.name]
            if isinstance(filler, KernelFiller) and not filler.covers(variant):
                filler = self._reference
            counts = self._tally.subkernel if filler.subkernel else self._tally.fallback
            counts[slot.name] = counts.get(slot.name, 0) + 1
            roots = tuple(call.params[name] for name in self._plan.roots[slot.name])
            return filler(tensors, roots, program.graphs[slot.name], variant)

        outputs = execute(program, {**call.activations, **call.params}, fill)
        self._tally.composed += 1
        results = self._written_back(call, program.outputs, outputs)
        return pytree.tree_unflatten(results[len(self._plan.fitted.captured.mutations) :], self._out_tree)

    def _written_back(
        self, call: Accepted, names: tuple[Arg, ...], outputs: tuple[torch.Tensor | Arg, ...]
    ) -> list[object]:
        """Write new values into buffers and inputs; a result that is such a value becomes that tensor."""
        results: list[object] = list(outputs)
        for mutation in self._plan.fitted.captured.mutations:
            value = outputs[mutation.output]
            assert isinstance(value, torch.Tensor)
            if mutation.kind == "buffer":
                target = _attribute(self._original, mutation.target)
            else:
                target = call.activations[mutation.target]
            with torch.no_grad():
                target.copy_(value)
            for i, name in enumerate(names):
                if isinstance(name, Ref) and name == names[mutation.output]:
                    results[i] = target
        return results

    def _note(self, reason: Reason) -> None:
        first = reason.name not in self._tally.original
        self._tally.original[reason.name] = self._tally.original.get(reason.name, 0) + 1
        if first:
            warnings.warn(
                f"{self._plan.name}: the original module runs: {reason.text()}."
                " Said once; report() counts it.",
                OriginalRan,
                stacklevel=5,  # the caller of the module, through torch's two frames
            )

    # What changes or reads the state of the original goes through its own methods, which it may override.

    def train(self, mode: bool = True) -> "ComposedModule":
        self._original.train(mode)
        self.training = mode
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "ComposedModule":
        self._original._apply(fn, recurse)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._original._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._original._load_from_state_dict(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what the original has on the original: it reads its own attributes."""
        original = self.__dict__.get("_original")
        if original is not None and name in vars(original) and name not in _SHARED:
            setattr(original, name, value)
        if name in self.__dict__ or original is None or name not in vars(original):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            original = self.__dict__.get("_original")
            if original is None:
                raise
            return getattr(original, name)

    def __reduce__(self) -> tuple[Callable[[nn.Module], nn.Module], tuple[nn.Module]]:
        """Pickle the original and the place of the composition, which is loaded, thus checked, again."""
        return self._plan.again, (self._original,)

    def __copy__(self) -> "ComposedModule":
        return ComposedModule(self._original, self._plan)

    def __deepcopy__(self, memo: dict[int, object]) -> "ComposedModule":
        twin = ComposedModule(copy.deepcopy(self._original, memo), self._plan)
        memo[id(self)] = twin
        return twin


def _device(call: Accepted) -> torch.device | None:
    tensors = (*call.activations.values(), *call.params.values())
    return next((t.device for t in tensors), None)


def _attribute(module: nn.Module, path: str) -> torch.Tensor:
    owner, _, name = path.rpartition(".")
    found = getattr(module.get_submodule(owner), name)
    assert isinstance(found, torch.Tensor)
    return found
