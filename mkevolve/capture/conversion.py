"""Turns an exported program into a `Graph`: plain values, inputs named, dead code and assertions gone."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    OutputKind,
    TensorArgument,
)
from torch.export.graph_signature import InputKind as ExportedKind

from mkevolve.capture.module_state import module_tensors
from mkevolve.capture.tracing import Trace, spec_of
from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, Symbol, TensorSpec, Value, refs
from mkevolve.data.model import Mutation
from mkevolve.errors import CaptureError
from mkevolve.reference import resolve_op

_KINDS = {
    ExportedKind.USER_INPUT: InputKind.ACTIVATION,
    ExportedKind.PARAMETER: InputKind.PARAMETER,
    ExportedKind.BUFFER: InputKind.BUFFER,
    ExportedKind.CONSTANT_TENSOR: InputKind.CONSTANT,
}
_ORDER = list(InputKind)
# What decompositions leave of `lift_fresh_copy` and `detach` on constants: copies under other names.
_EVAL_NORM = "aten._native_batch_norm_legit_no_training.default"
_RENAMED = {
    "aten.lift_fresh_copy.default": "aten.clone.default",
    "aten.lift_fresh.default": "aten.alias.default",
}


@dataclass(frozen=True)
class Converted:
    """A graph with its mutated outputs; `constants` are the tensors made inside `forward`, by name."""

    graph: Graph
    mutations: tuple[Mutation, ...]
    constants: Mapping[str, torch.Tensor]


def convert(trace: Trace) -> Converted:
    """Convert a trace; raises CaptureError naming what a graph cannot hold."""
    return _Conversion(trace).run()


@dataclass
class _Conversion:
    trace: Trace
    env: dict[str, Arg] = field(default_factory=dict)  # fx node name -> the argument that it stands for
    parts: dict[str, tuple[Arg, ...]] = field(default_factory=dict)  # of a node with several results
    targets: dict[str, str] = field(default_factory=dict)  # state_dict name -> the name of the tied first one
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def run(self) -> Converted:
        program = self.trace.program
        inputs = self._inputs(program.graph_signature)
        nodes = [n for n in map(self._node, program.graph.nodes) if n is not None]
        outputs, mutations = self._outputs(program.graph_signature)
        used = {r.name for r in refs(outputs)}
        live = []
        for node in reversed(nodes):
            if any(v.name in used for v in node.outputs) or _draws_random_numbers(node.op):
                live.append(node)
                used.update(node.reads)
        kept = [i for i in inputs if i.kind is InputKind.ACTIVATION or i.name in used]
        kept.sort(key=lambda i: _ORDER.index(i.kind))
        constants = {i.target: self.constants[i.target] for i in kept if i.target in self.constants}
        return Converted(Graph(tuple(kept), tuple(reversed(live)), outputs), mutations, constants)

    def _inputs(self, signature: ExportGraphSignature) -> list[Input]:
        names: dict[int, str] = {}
        for path, tensor in module_tensors(self.trace.copy).items():
            self.targets[path] = names.setdefault(id(tensor), path)
        placeholders = {n.name: n for n in self.trace.program.graph.nodes if n.op == "placeholder"}
        found: dict[str, Input] = {}
        inputs = []
        for spec in signature.input_specs:
            if isinstance(spec.arg, ConstantArgument):
                self.env[spec.arg.name] = _literal(spec.arg.value)
                continue
            kind = _KINDS.get(spec.kind)
            if kind is None or not isinstance(spec.arg, TensorArgument):
                raise CaptureError(f"forward takes {spec.arg}, which is no tensor or plain value")
            name, target = spec.arg.name, spec.target
            if kind is InputKind.CONSTANT:
                target = self._constant(str(target), names)
            elif target is not None:
                target = self.targets[target]
            if target is not None and target in found:
                self.env[name] = Ref(found[target].name)  # tied: one input for all its names
                continue
            value = Value(name, spec_of(placeholders[name].meta["val"]))
            made = Input(value, kind, target)
            self.env[name] = Ref(name)
            inputs.append(made)
            if target is not None:
                found[target] = made
        return inputs

    def _constant(self, target: str, names: Mapping[int, str]) -> str:
        tensor = self.trace.program.constants[target]
        if not isinstance(tensor, torch.Tensor):
            raise CaptureError(f"the constant {target} is a {type(tensor).__name__}, no tensor")
        path = names.get(id(tensor), target if target in self.targets else None)
        if path is not None:
            return path
        self.constants[target] = tensor
        return target

    def _node(self, node: fx.Node) -> Node | None:
        if node.op != "call_function":
            return None
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, fx.Node)
            assert isinstance(index, int)
            self.env[node.name] = self.parts[source.name][index]
            return None
        if not isinstance(node.target, torch._ops.OpOverload):
            raise CaptureError(
                f"{getattr(node.target, '__name__', node.target)} cannot be in a graph{_place(node)};"
                " control flow and computed sizes are data-dependent"
            )
        op = str(node.target)
        args = tuple(self._arg(a, node) for a in node.args)
        kwargs = tuple((k, self._arg(v, node)) for k, v in node.kwargs.items())
        if op == _EVAL_NORM and not kwargs:
            return self._eval_batch_norm(node, args)
        values = self._results(node)
        if not values:
            return None  # an assertion
        return Node(node.name, _RENAMED.get(op, op), args, kwargs, values)

    def _eval_batch_norm(self, node: fx.Node, args: tuple[Arg, ...]) -> Node:
        """Write the op as eager calls it: export splits it into a form with two empty results."""
        name = node.name.replace("_native_batch_norm_legit_no_training", "batch_norm")
        self.parts[node.name] = (Ref(name), None, None)
        value = Value(name, _spec(node.meta["val"][0], node))
        return Node(name, "aten.batch_norm.default", (*args[:5], False, *args[5:], True), (), (value,))

    def _results(self, node: fx.Node) -> tuple[Value, ...]:
        result = node.meta.get("val")
        if isinstance(result, torch.Tensor):
            value = Value(node.name, _spec(result, node))
            self.env[node.name] = Ref(node.name)
            return (value,)
        if not isinstance(result, tuple | list):
            if result is not None:
                raise CaptureError(f"{node.target} returns a number, which is data-dependent{_place(node)}")
            return ()
        tensors = [t for t in result if isinstance(t, torch.Tensor)]
        values: list[Value] = []
        parts: list[Arg] = []
        for item in result:
            if isinstance(item, torch.Tensor):
                name = node.name if len(tensors) == 1 else f"{node.name}.{len(values)}"
                values.append(Value(name, _spec(item, node)))
                parts.append(Ref(name))
            else:
                parts.append(_literal(item))
        self.parts[node.name] = tuple(parts)
        return tuple(values)

    def _arg(self, arg: object, node: fx.Node) -> Arg:
        match arg:
            case fx.Node():
                if arg.name in self.env:
                    return self.env[arg.name]
                if arg.name in self.parts:
                    return self.parts[arg.name]
                raise CaptureError(f"{node.target} reads {arg.name}, which is no tensor{_place(node)}")
            case tuple() | list():
                return tuple(self._arg(a, node) for a in arg)
            case torch.dtype():
                return Symbol("dtype", str(arg).removeprefix("torch."))
            case torch.layout():
                return Symbol("layout", str(arg).removeprefix("torch."))
            case torch.memory_format():
                return Symbol("memory_format", str(arg).removeprefix("torch."))
            case torch.device():
                return Symbol("device", "default")
            case _:
                return _literal(arg, lambda: f" in {node.target}{_place(node)}")

    def _outputs(self, signature: ExportGraphSignature) -> tuple[tuple[Arg, ...], tuple[Mutation, ...]]:
        outputs: list[Arg] = []
        mutations = []
        for spec in signature.output_specs:
            if isinstance(spec.arg, ConstantArgument):
                outputs.append(_literal(spec.arg.value))
                continue
            if not isinstance(spec.arg, TensorArgument):
                raise CaptureError(f"forward returns {spec.arg}, which is data-dependent or no tensor")
            match spec.kind:
                case OutputKind.USER_OUTPUT:
                    pass
                case OutputKind.BUFFER_MUTATION:
                    target = self.targets[str(spec.target)]
                    mutations.append(Mutation(len(outputs), "buffer", target))
                case OutputKind.USER_INPUT_MUTATION:
                    mutations.append(Mutation(len(outputs), "input", str(spec.target)))
                case _:
                    raise CaptureError(
                        f"forward writes {spec.target}, which is no buffer; register it as one"
                    )
            outputs.append(self.env[spec.arg.name])
        return tuple(outputs), tuple(mutations)


def _spec(tensor: torch.Tensor, node: fx.Node) -> TensorSpec:
    try:
        return spec_of(tensor)
    except CaptureError as error:
        raise CaptureError(f"{error}: {node.target}{_place(node)}") from None


def _literal(value: object, where: Callable[[], str] = str) -> Arg:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(_literal(v, where) for v in value)
    raise CaptureError(f"a graph cannot hold {value!r} ({type(value).__name__}){where()}")


def _place(node: fx.Node) -> str:
    """Say which line of the module's source a node came from."""
    lines = [s.strip() for s in str(node.meta.get("stack_trace") or "").splitlines()]
    found = [s for s in lines if s.startswith('File "') and not s.startswith('File "<')]
    return f" at {found[-1]}" if found else ""


def _draws_random_numbers(op: str) -> bool:
    return torch.Tag.nondeterministic_seeded in resolve_op(op).tags
