"""A functional ATen graph as plain values: what is captured, cut, hashed, stored and searched.

The graph is in static single assignment: every tensor has one name, made by one input or node.
`mkevolve/reference.py` runs it with torch; nothing here imports torch.
"""

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, dtype (`float32`, no `torch.` prefix) and strides in elements."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * ITEMSIZE[self.dtype]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOAT_DTYPES


FLOAT_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16"})
ITEMSIZE = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


class InputKind(StrEnum):
    """Where a graph input comes from. The order is the order of a subgraph's inputs."""

    ACTIVATION = "activation"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Value:
    """A named tensor."""

    name: str
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class Ref:
    """A use of a named tensor inside the arguments of a node."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A torch constant by kind and name: `Symbol("dtype", "float32")`; kinds: dtype, device, layout,
    memory_format.

    A device is always written `default`: a graph belongs to no device.
    """

    kind: str
    name: str


Arg = Ref | Symbol | None | bool | int | float | str | tuple["Arg", ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A graph input. `target` is its `state_dict` name (or constant's name); None for an activation."""

    value: Value
    kind: InputKind
    target: str | None = None

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def spec(self) -> TensorSpec:
        return self.value.spec


@dataclass(frozen=True, slots=True)
class Node:
    """One call of an ATen overload (`aten.conv2d.default`); `outputs` has one value per returned tensor, in
    order.
    """

    name: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    outputs: tuple[Value, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that this node reads, in order, with repeats."""
        return tuple(ref.name for ref in refs((self.args, tuple(v for _, v in self.kwargs))))

    def kwarg(self, name: str, default: Arg = None) -> Arg:
        return dict(self.kwargs).get(name, default)


@dataclass(frozen=True, slots=True)
class Graph:
    """Inputs (activations, then parameters, buffers, constants), nodes in topological order, outputs.

    An output is a `Ref` or, for a captured module only, a literal (None, an int, ...).
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Arg, ...]

    def values(self) -> dict[str, Value]:
        """Every named tensor of the graph."""
        found = {i.name: i.value for i in self.inputs}
        found.update({v.name: v for node in self.nodes for v in node.outputs})
        return found

    @property
    def activations(self) -> tuple[Input, ...]:
        return tuple(i for i in self.inputs if i.kind is InputKind.ACTIVATION)

    @property
    def params(self) -> tuple[Input, ...]:
        """Everything that is not an activation: what `prepare` sees, in order."""
        return tuple(i for i in self.inputs if i.kind is not InputKind.ACTIVATION)

    @property
    def output_values(self) -> tuple[Value, ...]:
        """The tensors among the outputs, in order."""
        values = self.values()
        return tuple(values[o.name] for o in self.outputs if isinstance(o, Ref))


def refs(arg: Arg) -> tuple[Ref, ...]:
    """Every `Ref` inside an argument, left to right."""
    if isinstance(arg, Ref):
        return (arg,)
    if isinstance(arg, tuple):
        return tuple(r for a in arg for r in refs(a))
    return ()
