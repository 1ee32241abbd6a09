"""Says whether a call lies within the verified conditions, and if not, which one it breaks."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_not

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mkevolve.capture import normalise_call
from mkevolve.capture.module_state import module_tensors
from mkevolve.compose.state import HOOKS, Key, Tied, Walk, Watch, difference
from mkevolve.data.composition import Signature
from mkevolve.data.graph import Input
from mkevolve.data.model import CapturedModel, Leaf

LeafKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the original ran: `name` is counted by, `detail` is for the one warning."""

    name: str
    detail: str = ""

    def text(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


@dataclass(frozen=True, slots=True)
class Accepted:
    """A call within the verified conditions: its variant, and tensors by graph input name."""

    variant: str
    activations: Mapping[str, torch.Tensor]
    params: Mapping[str, torch.Tensor]


class Guard:
    """Compares each call and the state of the module with what was captured."""

    def __init__(
        self,
        module: nn.Module,
        captured: CapturedModel,
        signature: Signature,
        constants: Mapping[str, torch.Tensor],
        baseline: Mapping[Key, object],
    ) -> None:
        self._module = module
        self._training = signature.training
        self._writes_inputs = any(m.kind == "input" for m in captured.mutations)
        self._tree = pytree.treespec_loads(signature.in_tree)
        self._variants = {
            tuple(_leaf_key(leaf) for leaf in leaves): name for name, leaves in signature.variants
        }
        self._activations = tuple(i.name for i in captured.target.graph.activations)
        self._params = tuple(_Expected.of(i) for i in captured.target.graph.params)
        self._constants = dict(constants)
        self._modules = tuple(module.modules())
        self._baseline = baseline
        self._watch: Watch | None = None

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Accepted | Reason:
        """Return the variant with its tensors, or the first condition that the call breaks."""
        broken = _torch_state() or self._module_state()
        if broken is not None:
            return broken
        if kwargs:
            args, kwargs = normalise_call(self._module, args, kwargs)
        leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if tree != self._tree:
            return Reason("other arguments than were captured", ", ".join(sorted(kwargs)))
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        if any(type(t) not in (torch.Tensor, nn.Parameter) or t.layout != torch.strided for t in tensors):
            return Reason("an input is a tensor subclass or not dense")
        variant = self._variants.get(tuple(_value_key(v) for v in leaves))
        if variant is None:
            return self._mismatch(leaves)
        return self._tensors(variant, tensors)

    def _tensors(self, variant: str, tensors: list[torch.Tensor]) -> Accepted | Reason:
        device = tensors[0].device if tensors else None
        params: dict[str, torch.Tensor] = {}
        for given in self._params:
            found = self._find(given, device)
            if found is None or not given.matches(found):
                return Reason("a parameter or buffer has another shape, dtype or stride", given.target)
            params[given.name] = found
        everything = [*tensors, *params.values()]
        if len({t.device for t in everything}) > 1:
            return Reason("tensors lie on several devices")
        if everything and torch.is_autocast_enabled(everything[0].device.type):
            return Reason("autocast")
        if torch.is_grad_enabled() and any(t.requires_grad for t in everything):
            return Reason("gradients", "use torch.no_grad() or torch.inference_mode()")
        if self._writes_inputs and _share_memory(tensors):
            return Reason("forward writes an input that shares memory with another")
        return Accepted(variant, dict(zip(self._activations, tensors, strict=True)), params)

    def _find(self, given: "_Expected", device: torch.device | None) -> torch.Tensor | None:
        name = given.target
        if name in self._constants:
            made = self._constants[name]
            if device is not None and made.device != device:
                made = self._constants[name] = made.to(device)
            return made
        found: object = self._module
        for part in given.way:
            found = getattr(found, part, None)
        if not isinstance(found, torch.Tensor):  # in a list or dict of an attribute
            found = module_tensors(self._module).get(name)
        return found

    def _module_state(self) -> Reason | None:
        if _has_any_global_hook():  # type: ignore[no-untyped-call]
            return Reason("hooks of all modules")
        if self._watch is not None and self._watch.holds():
            return None
        self._watch = None
        return self._changed()

    def _changed(self) -> Reason | None:
        """Look through the whole module; where nothing differs from the baseline, watch its objects."""
        current = tuple(self._module.modules())
        if len(current) != len(self._modules) or any(map(is_not, current, self._modules)):
            return Reason("its submodules were changed")
        for module in current:
            if module.training != self._training:
                mode = "training" if module.training else "eval"
                return Reason(f"{mode} mode", "" if module is self._module else type(module).__name__)
            if any(vars(module)[name] for name in HOOKS):
                return Reason("a module has hooks", type(module).__name__)
        walk = Walk(self._module)
        place = difference(self._baseline, walk.marks)
        if place is None:
            self._watch = Watch(walk)
            return None
        number, path = place
        owner = type(current[number]).__name__ if number >= 0 else ""  # a class names itself in the path
        if any(isinstance(marks.get(place), Tied) for marks in (self._baseline, walk.marks)):
            return Reason("other tensors are tied than when it was loaded", owner + path)
        if path.rpartition(".")[2] == "forward":
            return Reason("a forward was replaced", owner or path)
        return Reason("an attribute was changed", owner + path)

    def _mismatch(self, leaves: list[object]) -> Reason:
        keys = tuple(_value_key(v) for v in leaves)
        for place, detail in ((1, "dtypes"), (0, "sizes"), (2, "strides")):
            if not any(_agree(keys, known, place) for known in self._variants):
                return Reason(f"other {detail} of the inputs", _describe(leaves))
        return Reason("other inputs than were captured", _describe(leaves))


@dataclass(frozen=True, slots=True)
class _Expected:
    """A parameter, buffer or constant as it was captured, ready to be compared at each call."""

    name: str
    target: str
    way: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...]

    @staticmethod
    def of(given: Input) -> "_Expected":
        target, spec = str(given.target), given.spec
        dtype: torch.dtype = getattr(torch, spec.dtype)
        return _Expected(given.name, target, tuple(target.split(".")), spec.shape, dtype, spec.stride)

    def matches(self, tensor: torch.Tensor) -> bool:
        return (
            tensor.dtype is self.dtype
            and tensor.shape == self.shape
            and tensor.stride() == self.stride
            and type(tensor) in (torch.Tensor, nn.Parameter)
        )


def _torch_state() -> Reason | None:
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return Reason("tracing or compiling")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return Reason("inside a torch.func transform")
    if _get_current_dispatch_mode() is not None:
        return Reason("inside a dispatch mode")
    modes: list[object] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if any(not isinstance(mode, DeviceContext) for mode in modes):
        return Reason("inside a function mode")
    return None


def _leaf_key(leaf: Leaf) -> LeafKey:
    if leaf.spec is None:
        return (leaf.literal,)
    return (leaf.spec.shape, getattr(torch, leaf.spec.dtype), leaf.spec.stride)


def _value_key(value: object) -> LeafKey:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype, value.stride())
    return (repr(value),)


def _agree(keys: tuple[LeafKey, ...], known: tuple[LeafKey, ...], place: int) -> bool:
    return all(
        len(a) == len(b) and (a[place] == b[place] if len(a) > 1 else a == b)
        for a, b in zip(keys, known, strict=True)
    )


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    storages = [t.untyped_storage().data_ptr() for t in tensors if t.numel()]
    return len(set(storages)) < len(storages)


def _describe(leaves: list[object]) -> str:
    texts = [
        f"{'x'.join(map(str, v.shape)) or 'scalar'} {str(v.dtype).removeprefix('torch.')}"
        if isinstance(v, torch.Tensor)
        else repr(v)
        for v in leaves
    ]
    return ", ".join(texts)
