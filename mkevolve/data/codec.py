"""Graphs, subgraphs and plain dataclasses to JSON values and back; the form that is hashed and stored."""

from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, Symbol, TensorSpec, Value

T = TypeVar("T")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def encode_arg(arg: Arg) -> Json:
    """Encode an argument; a non-finite float becomes text, since JSON has none."""
    match arg:
        case Ref(name):
            return {"ref": name}
        case Symbol(kind, name):
            return {"symbol": [kind, name]}
        case tuple():
            return [encode_arg(a) for a in arg]
        case float() if arg != arg or arg in (float("inf"), float("-inf")):
            return {"float": repr(arg)}
        case _:
            return arg


def decode_arg(value: Json) -> Arg:
    """Inverse of `encode_arg`."""
    match value:
        case {"ref": str(name)}:
            return Ref(name)
        case {"symbol": [str(kind), str(name)]}:
            return Symbol(kind, name)
        case {"float": str(text)}:
            return float(text)
        case list():
            return tuple(decode_arg(v) for v in value)
        case None | bool() | int() | float() | str():
            return value
    raise ValueError(f"not an encoded argument: {value!r}")


def encode_spec(spec: TensorSpec) -> Json:
    """`[shape, dtype, stride]`."""
    return [list(spec.shape), spec.dtype, list(spec.stride)]


def decode_spec(value: Json) -> TensorSpec:
    """Inverse of `encode_spec`."""
    match value:
        case [list(shape), str(dtype), list(stride)]:
            return TensorSpec(tuple(map(_int, shape)), dtype, tuple(map(_int, stride)))
    raise ValueError(f"not an encoded tensor spec: {value!r}")


def encode_graph(graph: Graph) -> Json:
    """Encode a graph; keys are short because a database holds thousands."""
    return {
        "inputs": [[i.name, encode_spec(i.spec), i.kind.value, i.target] for i in graph.inputs],
        "nodes": [
            [
                n.name,
                n.op,
                encode_arg(n.args),
                [[k, encode_arg(v)] for k, v in n.kwargs],
                [[v.name, encode_spec(v.spec)] for v in n.outputs],
            ]
            for n in graph.nodes
        ],
        "outputs": [encode_arg(o) for o in graph.outputs],
    }


def decode_graph(value: Json) -> Graph:
    """Inverse of `encode_graph`."""
    match value:
        case {"inputs": list(inputs), "nodes": list(nodes), "outputs": list(outputs)}:
            return Graph(
                tuple(_input(i) for i in inputs),
                tuple(_node(n) for n in nodes),
                tuple(decode_arg(o) for o in outputs),
            )
    raise ValueError("not an encoded graph")


def encode(value: object) -> Json:
    """Encode any dataclass of `data/` for display or storage (one way)."""
    if isinstance(value, Graph):
        return encode_graph(value)
    if isinstance(value, TensorSpec):
        return encode_spec(value)
    if isinstance(value, Enum):
        return encode(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [encode(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _int(value: Json) -> int:
    if isinstance(value, int):
        return value
    raise ValueError(f"not an integer: {value!r}")


def _input(value: Json) -> Input:
    match value:
        case [str(name), spec, str(kind), target] if target is None or isinstance(target, str):
            return Input(Value(name, decode_spec(spec)), InputKind(kind), target)
    raise ValueError(f"not an encoded input: {value!r}")


def _node(value: Json) -> Node:
    match value:
        case [str(name), str(op), list(args), list(kwargs), list(outputs)]:
            return Node(
                name,
                op,
                tuple(decode_arg(a) for a in args),
                tuple(_kwarg(k) for k in kwargs),
                tuple(_value(v) for v in outputs),
            )
    raise ValueError(f"not an encoded node: {value!r}")


def _kwarg(value: Json) -> tuple[str, Arg]:
    match value:
        case [str(key), arg]:
            return key, decode_arg(arg)
    raise ValueError(f"not an encoded keyword argument: {value!r}")


def _value(value: Json) -> Value:
    match value:
        case [str(name), spec]:
            return Value(name, decode_spec(spec))
    raise ValueError(f"not an encoded value: {value!r}")


def decode(kind: type[T], value: Json) -> T:
    """Rebuild a dataclass, enum, tuple or scalar of `data/` from `encode`'s output; unknown keys are ignored.

    Missing keys take the field's default, so rows written by an older version can still be read.
    """
    return cast(T, _decode(kind, value))


def _decode(kind: object, value: Json) -> object:
    if kind is Graph:
        return decode_graph(value)
    if kind is TensorSpec:
        return decode_spec(value)
    if kind in (object, Json) or isinstance(kind, TypeVar):
        return value
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode_union(args, value)
    if origin in (tuple, frozenset):
        kinds = args if origin is tuple else (args[0], ...)
        items = _decode_items(kinds, value if isinstance(value, list) else [])
        return items if origin is tuple else frozenset(items)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(kind, type) and is_dataclass(kind):
        given = value if isinstance(value, dict) else {}
        hints = get_type_hints(kind)
        return kind(
            **{f.name: _decode(hints[f.name], given[f.name]) for f in fields(kind) if f.name in given}
        )
    if kind is float and isinstance(value, str | int):
        return float(value)
    return value


def _decode_items(kinds: tuple[object, ...], items: list[Json]) -> tuple[object, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], v) for v in items)
    return tuple(_decode(k, v) for k, v in zip(kinds, items, strict=True))


def _decode_union(kinds: tuple[object, ...], value: Json) -> object:
    if value is None:
        return None
    if type(value) in kinds:
        return value  # before a text is read as a number
    for kind in kinds:
        match kind, value:
            case (k, dict()) if isinstance(k, type) and is_dataclass(k):
                if set(value) <= {f.name for f in fields(k)}:
                    return _decode(k, value)
            case (k, bool() | int() | float() | str()) if isinstance(k, type) and type(value) is k:
                return value
            case (k, str() | int()) if isinstance(k, type) and (issubclass(k, Enum) or k is float):
                return _decode(k, value)
            case (k, list()) if get_origin(k) is tuple or k is TensorSpec:
                return _decode(k, value)
    raise ValueError(f"{value!r} fits none of {kinds}")
