"""The rule table of row reductions: what each reads, over which dimensions, and how its results arise."""

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve.data.graph import Arg, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import Coords
from mkevolve.propose.ops.statistics import Rows, exponentials, extreme, moments, total
from mkevolve.propose.shapes import Dim, Sizes
from mkevolve.propose.terms import computed, literal


@dataclass(frozen=True, slots=True)
class Domain:
    """Dimensions of the operand (one split in two for a group norm) and which of them a row runs along."""

    dims: tuple[Dim, ...]
    reduced: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction of the subgraph, being written: `rows` is its tile."""

    node: Node
    rows: Rows

    @property
    def source(self) -> str:
        return self.node.reads[0]

    @property
    def dtype(self) -> str:
        """The dtype of arithmetic on the result."""
        return computed(self.rows.emitter.sizes.dtype(self.node.outputs[0].name))

    def arg(self, index: int, name: str, default: Arg = None) -> Arg:
        return argument(self.node, index, name, default)

    def number(self, index: int, name: str, default: float) -> float:
        found = self.arg(index, name)
        return found if isinstance(found, int | float) else default


Maker = Callable[[Coords], str]


@dataclass(frozen=True, slots=True)
class Reducer:
    """`domain` reads the dimensions. `write` emits statistics and returns row values, one a result; or
    `norm` emits them and returns how the full-size first result is computed. `several`: whether one pass
    over blocks is an option.
    """

    domain: Callable[[Sizes, Node], Domain]
    write: Callable[[Reduction], tuple[str, ...]] | None = None
    norm: Callable[[Reduction], Maker] | None = None
    several: bool = False


def argument(node: Node, index: int, name: str, default: Arg = None) -> Arg:
    """Argument by position or keyword."""
    return node.args[index] if index < len(node.args) else node.kwarg(name, default)


def _dims(index: int = 1, name: str = "dim") -> Callable[[Sizes, Node], Domain]:
    """Reduce over the dimensions in an argument; all where it is absent or empty."""

    def read(sizes: Sizes, node: Node) -> Domain:
        shape = sizes.shape(node.reads[0])
        arg = argument(node, index, name)
        axes = [arg] if isinstance(arg, int) else list(arg) if isinstance(arg, tuple) else []
        found = sorted({a % len(shape) for a in axes if isinstance(a, int)}) or range(len(shape))
        return Domain(shape, tuple(found))

    return read


def _everything(sizes: Sizes, node: Node) -> Domain:
    shape = sizes.shape(node.reads[0])
    return Domain(shape, tuple(range(len(shape))))


def _normalized(sizes: Sizes, node: Node) -> Domain:
    """The last dimensions, as many as `normalized_shape` has."""
    shape, normalized = sizes.shape(node.reads[0]), node.args[1]
    count = len(normalized) if isinstance(normalized, tuple) else 1
    return Domain(shape, tuple(range(len(shape) - count, len(shape))))


def _groups(index: int) -> Callable[[Sizes, Node], Domain]:
    """(N, G, C / G, ...): a row is one group of one sample."""

    def read(sizes: Sizes, node: Node) -> Domain:
        batch, channels, *rest = sizes.shape(node.reads[0])
        groups = node.args[index]
        if not isinstance(groups, int) or len(set(channels)) > 1:
            raise ProposalError(f"{node.op} with a number of channels that varies")
        dims = (batch, sizes.number(groups), sizes.number(channels[0] // groups), *rest)
        return Domain(dims, tuple(range(2, len(dims))))

    return read


def _pooled(sizes: Sizes, node: Node) -> Domain:
    """adaptive_avg_pool2d to 1x1 is a mean over the last two dimensions."""
    size = node.args[1]
    if not isinstance(size, tuple) or set(size) != {1}:
        raise ProposalError(f"{node.op} to {size}")
    shape = sizes.shape(node.reads[0])
    return Domain(shape, (len(shape) - 2, len(shape) - 1))


def _sum(call: Reduction) -> tuple[str, ...]:
    return (total(call.rows, call.source, call.dtype),)


def _mean(call: Reduction) -> tuple[str, ...]:
    return (call.rows.name("mean", f"{total(call.rows, call.source)} / {call.rows.columns}"),)


def _extreme(sign: str) -> Callable[[Reduction], tuple[str, ...]]:
    return lambda call: (extreme(call.rows, call.source, sign, call.dtype),)


def _variance(call: Reduction) -> tuple[str, str]:
    """(mean, variance) with the correction of the call."""
    mean, spread = moments(call.rows, call.source)
    correction = call.arg(2, "correction", call.arg(2, "unbiased", 1))
    if not isinstance(correction, int | float):
        correction = 1
    less = f"({call.rows.columns} - {literal(correction * 1)})" if correction else call.rows.columns
    # max(0, n - correction) of eager: one element has variance 0 / 0.
    return mean, call.rows.name("variance", f"{spread} / tl.maximum({less}, 0)")


def _var(call: Reduction) -> tuple[str, ...]:
    return (_variance(call)[1],)


def _std(call: Reduction) -> tuple[str, ...]:
    return (call.rows.name("deviation", f"tl.sqrt({_variance(call)[1]})"),)


def _var_mean(call: Reduction) -> tuple[str, ...]:
    mean, variance = _variance(call)
    return (variance, mean)


def _vector_norm(call: Reduction) -> tuple[str, ...]:
    order = call.number(1, "ord", 2)
    if order == 2:
        squares = total(call.rows, call.source, form=lambda x: f"{x} * {x}")
        return (call.rows.name("norm", f"tl.sqrt({squares})"),)
    if order == 1:
        return (total(call.rows, call.source, form=lambda x: f"tl.abs({x})"),)
    if order == float("inf"):
        return (extreme(call.rows, call.source, "max", form=lambda x: f"tl.abs({x})"),)
    raise ProposalError(f"aten.linalg_vector_norm of order {order}")


def _logsumexp(call: Reduction) -> tuple[str, ...]:
    top, mass = exponentials(call.rows, call.source)
    # A row of one infinity sums to that infinity, not to inf - inf.
    text = f'tl.where(tl.abs({top}) == float("inf"), {top}, {top} + tl.log({mass}))'
    return (call.rows.name("logsum", text),)


def _softmax(call: Reduction) -> Maker:
    top, mass = exponentials(call.rows, call.source)
    return lambda coords: f"tl.exp({_here(call, coords)} - {top}) / {mass}"


def _log_softmax(call: Reduction) -> Maker:
    top, mass = exponentials(call.rows, call.source)
    log = call.rows.name("log_mass", f"tl.log({mass})")
    return lambda coords: f"{_here(call, coords)} - {top} - {log}"


def _here(call: Reduction, coords: Coords) -> str:
    return call.rows.emitter.pull(call.source, coords).cast("float32")


def _weighted(call: Reduction, scale: Arg, bias: Arg, text: str, at: Coords) -> str:
    """`text * weight + bias` with either of them absent."""
    for arg, sign in ((scale, "*"), (bias, "+")):
        if isinstance(arg, Ref):
            operand = call.rows.emitter.pull(arg.name, at).cast("float32")
            text = f"{text} {sign} {operand}"
    return text


def _layer_norm(call: Reduction) -> Maker:
    mean, inverse = _standard(call, 4)
    count = len(call.rows.emitter.sizes.shape(call.source)) - _normalized_rank(call.node)

    def make(coords: Coords) -> str:
        text = f"({_here(call, coords)} - {mean}) * {inverse}"
        return _weighted(call, call.arg(2, "weight"), call.arg(3, "bias"), text, coords[count:])

    _place_rest(call, mean, inverse)
    return make


def _rms_norm(call: Reduction) -> Maker:
    rows = call.rows
    eps = call.arg(3, "eps")
    if not isinstance(eps, int | float):
        # Eager takes the epsilon of the dtype it computes in.
        eps = _EPSILON[computed(rows.emitter.sizes.dtype(call.source))]
    squares = total(rows, call.source, form=lambda x: f"{x} * {x}")
    inverse = rows.name("inverse", f"tl.rsqrt({squares} / {rows.columns} + {literal(eps)})")
    count = len(rows.emitter.sizes.shape(call.source)) - _normalized_rank(call.node)

    def make(coords: Coords) -> str:
        text = f"{_here(call, coords)} * {inverse}"
        return _weighted(call, call.arg(2, "weight"), None, text, coords[count:])

    return make


def _group_norm(call: Reduction) -> Maker:
    native = call.node.op == "aten.native_group_norm.default"
    mean, inverse = _standard(call, 7 if native else 4)
    weight, bias = (
        (call.arg(1, "weight"), call.arg(2, "bias"))
        if native
        else (call.arg(2, "weight"), call.arg(3, "bias"))
    )

    def make(coords: Coords) -> str:
        text = f"({_here(call, coords)} - {mean}) * {inverse}"
        return _weighted(call, weight, bias, text, (coords[1],))

    _place_rest(call, mean, inverse)
    return make


def _standard(call: Reduction, eps: int) -> tuple[str, str]:
    """Mean and inverse standard deviation, as norms use them."""
    mean, spread = moments(call.rows, call.source)
    epsilon = literal(float(call.number(eps, "eps", 1e-5)))
    return mean, call.rows.name("inverse", f"tl.rsqrt({spread} / {call.rows.columns} + {epsilon})")


def _place_rest(call: Reduction, mean: str, inverse: str) -> None:
    """The second and third results of a native norm."""
    for value, text in zip(call.node.outputs[1:], (mean, inverse), strict=False):
        call.rows.emitter.place(value.name, call.rows.row_coords(value.name), text)


def _normalized_rank(node: Node) -> int:
    normalized = node.args[1]
    return len(normalized) if isinstance(normalized, tuple) else 1


_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}

REDUCERS: dict[str, Reducer] = {
    "aten.sum.default": Reducer(_everything, _sum),
    "aten.sum.dim_IntList": Reducer(_dims(), _sum),
    "aten.mean.default": Reducer(_everything, _mean),
    "aten.mean.dim": Reducer(_dims(), _mean),
    "aten.adaptive_avg_pool2d.default": Reducer(_pooled, _mean),
    "aten.amax.default": Reducer(_dims(), _extreme("max")),
    "aten.amin.default": Reducer(_dims(), _extreme("min")),
    "aten.max.default": Reducer(_everything, _extreme("max")),
    "aten.min.default": Reducer(_everything, _extreme("min")),
    "aten.var.dim": Reducer(_dims(), _var, several=True),
    "aten.var.correction": Reducer(_dims(), _var, several=True),
    "aten.std.dim": Reducer(_dims(), _std, several=True),
    "aten.std.correction": Reducer(_dims(), _std, several=True),
    "aten.var_mean.dim": Reducer(_dims(), _var_mean, several=True),
    "aten.var_mean.correction": Reducer(_dims(), _var_mean, several=True),
    "aten.linalg_vector_norm.default": Reducer(_dims(2), _vector_norm),
    "aten.logsumexp.default": Reducer(_dims(), _logsumexp, several=True),
    "aten.softmax.int": Reducer(_dims(), norm=_softmax, several=True),
    "aten._softmax.default": Reducer(_dims(), norm=_softmax, several=True),
    "aten.log_softmax.int": Reducer(_dims(), norm=_log_softmax, several=True),
    "aten._log_softmax.default": Reducer(_dims(), norm=_log_softmax, several=True),
    "aten.layer_norm.default": Reducer(_normalized, norm=_layer_norm, several=True),
    "aten.native_layer_norm.default": Reducer(_normalized, norm=_layer_norm, several=True),
    "aten.rms_norm.default": Reducer(_normalized, norm=_rms_norm),
    "aten.group_norm.default": Reducer(_groups(1), norm=_group_norm, several=True),
    "aten.native_group_norm.default": Reducer(_groups(6), norm=_group_norm, several=True),
}
