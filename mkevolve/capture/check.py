"""Compares a captured model with the real module, two calls in a row."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.capture.calls import bind, constants_of, unflatten
from mkevolve.capture.module_state import copy_module, module_tensors
from mkevolve.data.model import CapturedModel, Variant
from mkevolve.errors import CaptureError, ModelError
from mkevolve.models.inputs import Call, clone_leaf
from mkevolve.models.source import Model
from mkevolve.reference import resolve_op, run_graph

# The same ATen ops run on both sides; what may differ is the order of a sum and a fused product.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


def check_capture(model: Model, captured: CapturedModel) -> None:
    """Run the module and the graph on every check variant (on the target where there is none) and compare.

    Results (nesting, dtypes, shapes, strides, values), buffers and inputs are compared after each of two
    calls with the same random seed on both sides. Raises CaptureError naming the first difference.
    """
    twins = [_Twin(model, captured, variant) for variant in captured.checks or captured.variants]
    for number in (1, 2):  # outermost: variants of one seed share the target's inputs
        for twin in twins:
            twin.compare_call(number)


def run_eager(model: Model, call: Call, module: nn.Module | None = None) -> object:
    """Call the module (or `module`) without gradients; raises ModelError with the line of the failure."""
    args, kwargs = call
    try:
        with torch.no_grad():
            return (module or real_copy(model.module))(*args, **kwargs)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"{model.name}: forward fails on its inputs ({describe(call)}): {type(error).__name__}: {first}"
        ) from error


def real_copy(module: nn.Module) -> nn.Module:
    """Copy a module with its values; tensors that carry a gradient history are copied too."""
    return copy_module(module, _cloned)


def describe(call: Call) -> str:
    """Name the shapes of a call for people: `2x3x9x7 float32, None`."""
    texts = []
    for value in pytree.tree_leaves(call):
        if isinstance(value, torch.Tensor):
            sizes = "x".join(map(str, value.shape)) or "scalar"
            texts.append(f"{sizes} {str(value.dtype).removeprefix('torch.')}")
        elif value is None or isinstance(value, bool | int | float | str):
            texts.append(repr(value))
        else:  # its text may be pages long
            texts.append(type(value).__name__)
    return ", ".join(texts) or "no inputs"


class _Twin:
    """The module beside the graph of one variant, each with a state of its own."""

    def __init__(self, model: Model, captured: CapturedModel, variant: Variant) -> None:
        self.model, self.captured, self.variant = model, captured, variant
        self.module = real_copy(model.module)
        self.constants = constants_of(model, captured)
        parameters = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
        self.state = {
            target: tensor.detach().clone()
            for target, tensor in module_tensors(model.module).items()
            if target not in parameters
        }

    def compare_call(self, number: int) -> None:
        where = f"{self.captured.name}, variant {self.variant.name}, call {number}"
        call = self.model.example(self.variant, number)
        copy = pytree.tree_map(lambda v: clone_leaf(v) if isinstance(v, torch.Tensor) else v, call)
        inputs = bind(self.variant, *copy)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(number)
            expected = run_eager(self.model, call, self.module)
            torch.default_generator.manual_seed(number)
            outputs = run_graph(self.variant.graph, {**inputs, **self._parameters()})
        self._compare_results(outputs, expected, where)
        for mutation in self.captured.mutations:
            value = outputs[mutation.output]
            assert isinstance(value, torch.Tensor)
            if mutation.kind == "input":
                inputs[mutation.target].copy_(value)
            else:
                self.state[mutation.target] = value
        self._compare_state(where)
        _compare_inputs(pytree.tree_leaves(call), pytree.tree_leaves(copy), where)

    def _parameters(self) -> dict[str, torch.Tensor]:
        params = self.variant.graph.params
        return {i.name: self.state.get(str(i.target), self.constants[i.name]) for i in params}

    def _compare_results(self, outputs: Sequence[object], expected: object, where: str) -> None:
        wanted, tree = pytree.tree_flatten(expected)
        if tree != pytree.treespec_loads(self.captured.out_tree):
            raise CaptureError(f"{where}: the captured result is nested in another way than that of forward")
        found = pytree.tree_leaves(unflatten(self.captured, outputs))
        for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
            problem = difference(got, want)
            if problem:
                raise CaptureError(
                    f"{where}: result {i + 1} differs from eager: {problem}{_random(self.variant)}"
                )

    def _compare_state(self, where: str) -> None:
        now = module_tensors(self.module)
        names = {id(tensor): target for target, tensor in reversed(now.items())}  # tied: the first name
        for target, tensor in now.items():
            if target in self.state and names[id(tensor)] == target:
                problem = difference(self.state[target], tensor)
                if problem:
                    raise CaptureError(f"{where}: afterwards {target} differs from eager: {problem}")


def _compare_inputs(eager: list[object], captured: list[object], where: str) -> None:
    for i, (want, got) in enumerate(zip(eager, captured, strict=True)):
        problem = difference(got, want)
        if problem:
            raise CaptureError(f"{where}: afterwards input {i + 1} differs from eager: {problem}")


def difference(got: object, want: object) -> str:
    """Say how a value differs from eager's, or nothing. NaN equals NaN; size-1 dimensions have no stride."""
    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and (got is want or got == want)
        return "" if same else f"{got!r} for {want!r}"
    for name, a, b in (
        ("dtype", got.dtype, want.dtype),
        ("shape", tuple(got.shape), tuple(want.shape)),
        ("strides", _strides(got), _strides(want)),
    ):
        if a != b:
            return f"{name} {a} for {b}"
    tolerance = _TOLERANCE.get(want.dtype, 0.0)
    close = torch.isclose(got, want.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if bool(close.all()) else f"{int((~close).sum())} of {close.numel()} values"


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.numel() == 0:
        return ()
    return tuple(step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _random(variant: Variant) -> str:
    drawn = [n.op for n in variant.graph.nodes if torch.Tag.nondeterministic_seeded in resolve_op(n.op).tags]
    return f" (random numbers: {drawn[0]}; a dropout must follow eager's seed)" if drawn else ""


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    clone = clone_leaf(tensor)
    return (
        nn.Parameter(clone, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else clone
    )
