"""One spelling for ops that mean the same: what templates match on and what ids are taken of."""

from dataclasses import dataclass
from functools import cache

from mkevolve.data.graph import Arg, Node, Ref, Symbol, TensorSpec
from mkevolve.errors import CaptureError
from mkevolve.partition.layout import is_contiguous, strides_of
from mkevolve.partition.ops import Kind, packet


@dataclass(frozen=True, slots=True)
class Call:
    """A canonical call with the specs of its results."""

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    outputs: tuple[TensorSpec, ...]


_RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten"})
_CASTS = frozenset({"to", "_to_copy", "type_as"})
_COPIES = frozenset({"clone", "contiguous", "lift_fresh_copy"}) | _CASTS
_DROPPED = frozenset({"pin_memory", "layout", "non_blocking"})  # say nothing about values or strides


def spell(node: Node, kind: Kind, source: TensorSpec | None) -> tuple[Call, ...]:
    """Return the canonical calls for a node: one, or a copy and a view for a reshape that needs a copy.

    In the second call `Ref("")` stands for the result of the first. `source` is the spec of the first tensor
    read (None where none is).
    """
    name = packet(node.op)
    specs = tuple(v.spec for v in node.outputs)
    if name in _RESHAPES and node.op != "aten.view.dtype" and source is not None:
        return _reshape(node, kind, source)
    if name in _CASTS and source is not None and source.dtype != specs[0].dtype:
        return (_cast(node, source),)
    if name in _COPIES and kind is Kind.COPY:
        return (_clone(Ref(node.reads[0]), specs[0]),)
    args, kwargs = _plain_arguments(node)
    return (Call(node.op, args, kwargs, specs),)


def _reshape(node: Node, kind: Kind, source: TensorSpec) -> tuple[Call, ...]:
    result = node.outputs[0].spec
    if kind is Kind.VIEW:
        return (Call("aten.view.default", (Ref(node.reads[0]), result.shape), (), (result,)),)
    dense = TensorSpec(source.shape, source.dtype, strides_of(source.shape))
    copy = _clone(Ref(node.reads[0]), dense)
    return (copy, Call("aten.view.default", (Ref(""), result.shape), (), (result,)))


def _clone(source: Ref, result: TensorSpec) -> Call:
    return Call("aten.clone.default", (source,), (("memory_format", _memory_format(result)),), (result,))


def _cast(node: Node, source: TensorSpec) -> Call:
    result = node.outputs[0].spec
    kwargs: tuple[tuple[str, Arg], ...] = (("dtype", Symbol("dtype", result.dtype)),)
    if source.stride != result.stride:
        kwargs += (("memory_format", _memory_format(result)),)
    return Call("aten._to_copy.default", (Ref(node.reads[0]),), kwargs, (result,))


def _memory_format(spec: TensorSpec) -> Symbol:
    for name in ("contiguous_format", "channels_last", "channels_last_3d"):
        if is_contiguous(spec, name):
            return Symbol("memory_format", name)
    return Symbol("memory_format", "preserve_format")


def _plain_arguments(node: Node) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
    """Move keywords to their position where the op has one, and leave out defaults at the end."""
    defaults = _schema(node.op)
    given = {k: v for k, v in node.kwargs if k not in _DROPPED}
    args = list(node.args)
    for parameter in defaults.positional[len(args) :]:
        if parameter.name in given:
            args.append(given.pop(parameter.name))
        elif parameter.has_default and given.keys() & defaults.later(parameter.name):
            args.append(parameter.default)
        else:
            break
    while (
        args
        and len(args) <= len(defaults.positional)
        and defaults.positional[len(args) - 1].is_default(args[-1])
    ):
        args.pop()
    keywords = {p.name: p for p in defaults.keywords}
    kept = [(k, v) for k, v in given.items() if k not in keywords or not keywords[k].is_default(v)]
    return tuple(args), tuple(sorted(kept))


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    has_default: bool
    default: Arg

    def is_default(self, value: Arg) -> bool:
        return self.has_default and type(value) is type(self.default) and value == self.default


@dataclass(frozen=True, slots=True)
class _Schema:
    positional: tuple[_Parameter, ...]
    keywords: tuple[_Parameter, ...]

    def later(self, name: str) -> set[str]:
        names = [p.name for p in self.positional]
        return set(names[names.index(name) + 1 :])


@cache
def _schema(op: str) -> _Schema:
    from mkevolve.reference import resolve_op

    try:
        arguments = resolve_op(op)._schema.arguments
    except CaptureError:
        return _Schema((), ())
    rows = [
        (_Parameter(a.name, a.has_default_value(), _plain(a.default_value)), a.kwarg_only) for a in arguments
    ]
    return _Schema(tuple(p for p, only in rows if not only), tuple(p for p, only in rows if only))


def _plain(value: object) -> Arg:
    if isinstance(value, list):
        return tuple(_plain(v) for v in value)
    return value if isinstance(value, bool | int | float | str) else None
