"""What a convolution subgraph is made of: convolutions, folded norms, pointwise nodes around them."""

from dataclasses import dataclass

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Arg, Graph, InputKind, Node, Ref
from mkevolve.errors import ProposalError

CONVOLUTIONS = frozenset(
    {
        "aten.conv1d.default",
        "aten.conv1d.padding",
        "aten.conv2d.default",
        "aten.conv2d.padding",
        "aten.convolution.default",
    }
)
NORMS = frozenset(
    {
        "aten.batch_norm.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten.native_batch_norm.default",
        "aten.cudnn_batch_norm.default",
    }
)
SUMS = frozenset({"aten.add.Tensor", "aten.add_.Tensor"})

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Rows and columns of a kernel's reach; a 1-d convolution has one row.

    `pad` is the number of zeros in front of the input, `tail` behind it.
    """

    size: Pair
    stride: Pair
    pad: Pair
    tail: Pair
    dilation: Pair

    @property
    def taps(self) -> int:
        return self.size[0] * self.size[1]

    def padded(self, axis: int) -> bool:
        """Whether a tap can fall outside the input along rows (0) or columns (1)."""
        return self.pad[axis] > 0 or self.tail[axis] > 0


@dataclass(frozen=True, slots=True)
class Norm:
    """An eval-mode batch norm as names of parameters; a missing scale is 1, a missing shift 0."""

    weight: str | None
    bias: str | None
    mean: str
    var: str
    eps: float


@dataclass(frozen=True, slots=True)
class Conv:
    """One convolution and the batch norm that follows it. `result` names the value after the norm."""

    source: str
    weight: str
    bias: str | None
    norm: Norm | None
    window: Window
    groups: int
    ci: int
    co: int
    spatial: int  # number of spatial dimensions, 1 or 2
    result: str

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.ci


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """`result` is the sum of `convs` (one, or two of equal shape); the rest is pointwise around them."""

    convs: tuple[Conv, ...]
    result: str
    subgraph: Subgraph

    @property
    def graph(self) -> Graph:
        return self.subgraph.target

    def prologue(self, conv: Conv) -> tuple[Node, ...]:
        """Nodes between the graph's inputs and the convolution's input."""
        return needed(self.graph, (conv.source,), frozenset())

    @property
    def epilogue(self) -> tuple[Node, ...]:
        """Nodes between `result` (and the graph's inputs) and the graph's outputs."""
        outputs = tuple(o.name for o in self.graph.outputs if isinstance(o, Ref))
        return needed(self.graph, outputs, frozenset({self.result}))


def match_conv(subgraph: Subgraph) -> ConvProblem:
    """Find the convolutions of a subgraph.

    Raises `ProposalError` naming the op for anything that is neither a convolution, its folded norm nor
    something around them, and where the convolutions differ between variants.
    """
    convs = _convs(subgraph.target)
    for name, graph in subgraph.checks:
        if _convs(graph) != convs:
            raise ProposalError(
                f"conv2d: stride, padding or kernel at variant {name} differ from the target's"
            )
    if len(convs) > 2:
        raise ProposalError(f"conv2d: a subgraph with {len(convs)} convolutions is not covered")
    result = convs[0].result if len(convs) == 1 else _sum_of(subgraph.target, convs)
    problem = ConvProblem(convs, result, subgraph)
    around = (*problem.epilogue, *(n for c in convs for n in problem.prologue(c)))
    for node in around:
        if node.op in CONVOLUTIONS:
            raise ProposalError(f"{node.op}: a convolution that reads another one is not covered")
    return problem


def needed(graph: Graph, wanted: tuple[str, ...], stop: frozenset[str]) -> tuple[Node, ...]:
    """Return the nodes that `wanted` values depend on, in graph order, looking no further than `stop`."""
    todo, found = set(wanted) - stop, []
    for node in reversed(graph.nodes):
        if todo.intersection(v.name for v in node.outputs):
            found.append(node)
            todo.update(set(node.reads) - stop)
    return tuple(reversed(found))


def _convs(graph: Graph) -> tuple[Conv, ...]:
    return tuple(_conv(graph, node) for node in graph.nodes if node.op in CONVOLUTIONS)


def _conv(graph: Graph, node: Node) -> Conv:
    args = _conv_arguments(node)
    source, weight, bias = args[0], args[1], args[2]
    values = graph.values()
    params = {i.name for i in graph.params}
    if not isinstance(source, Ref) or not isinstance(weight, Ref) or weight.name not in params:
        raise ProposalError(f"{node.op}: the weight is computed by the subgraph")
    if bias is not None and (not isinstance(bias, Ref) or bias.name not in params):
        raise ProposalError(f"{node.op}: the bias is computed by the subgraph")
    if source.name in params:
        raise ProposalError(f"{node.op}: the input is a parameter")
    weight_shape = values[weight.name].spec.shape
    spatial = len(weight_shape) - 2
    if spatial not in (1, 2) or len(values[source.name].spec.shape) != spatial + 2:
        raise ProposalError(f"{node.op}: {spatial} spatial dimensions, or an input without a batch")
    if not values[source.name].spec.is_float or values[source.name].spec.dtype == "float64":
        raise ProposalError(f"{node.op}: dtype {values[source.name].spec.dtype} is not covered")
    norm, result = _norm_after(graph, node.outputs[0].name)
    return Conv(
        source=source.name,
        weight=weight.name,
        bias=bias.name if isinstance(bias, Ref) else None,
        norm=norm,
        window=_window(weight_shape[2:], args[3], args[4], args[5]),
        groups=_int(args[6]),
        ci=values[source.name].spec.shape[1],
        co=weight_shape[0],
        spatial=spatial,
        result=result,
    )


def _conv_arguments(node: Node) -> tuple[Arg, ...]:
    """Return input, weight, bias, stride, padding, dilation, groups."""
    if node.op == "aten.convolution.default":
        if node.args[6] is not False:
            raise ProposalError(f"{node.op}: transposed convolution is not covered")
        return (*node.args[:6], node.args[8])
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    defaults: tuple[Arg, ...] = (None, None, None, 1, 0, 1, 1)
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return tuple(given.get(n, d) for n, d in zip(names, defaults, strict=True))


def _window(size: tuple[int, ...], stride: Arg, padding: Arg, dilation: Arg) -> Window:
    reach = _pair(dilation, len(size), fill=1)
    extent = _pair(size, len(size), fill=1)
    if padding == "same":
        total = (reach[0] * (extent[0] - 1), reach[1] * (extent[1] - 1))
        pad = (total[0] // 2, total[1] // 2)
        # torch puts the odd element behind the input.
        tail = (total[0] - pad[0], total[1] - pad[1])
    else:
        pad = tail = _pair(0 if padding == "valid" else padding, len(size), fill=0)
    return Window(extent, _pair(stride, len(size), fill=1), pad, tail, reach)


def _pair(value: Arg, spatial: int, fill: int) -> Pair:
    numbers = tuple(_int(v) for v in value) if isinstance(value, tuple) else (_int(value),)
    if len(numbers) == 1:
        numbers *= spatial
    return (numbers[0], numbers[1]) if spatial == 2 else (fill, numbers[0])


def _int(value: Arg) -> int:
    if isinstance(value, int):
        return value
    raise ProposalError(f"conv2d: {value!r} is not a number that can be baked in")


def _norm_after(graph: Graph, value: str) -> tuple[Norm | None, str]:
    """Return the eval-mode batch norm that is the only reader of `value`, and the value to go on from."""
    readers = [n for n in graph.nodes if value in n.reads]
    if len(readers) != 1 or readers[0].op not in NORMS or Ref(value) in graph.outputs:
        return None, value
    node = readers[0]
    norm = _batch_norm(graph, node)
    if norm is None or node.args[0] != Ref(value):
        return None, value
    return norm, node.outputs[0].name


def _batch_norm(graph: Graph, node: Node) -> Norm | None:
    """Read an eval-mode batch norm over parameters; None where it uses batch statistics or more results."""
    used = {r for n in graph.nodes for r in n.reads} | {o.name for o in graph.outputs if isinstance(o, Ref)}
    if used.intersection(v.name for v in node.outputs[1:]):
        return None
    args = node.args
    if node.op != "aten._native_batch_norm_legit_no_training.default":
        if args[5] is not False:
            return None
        args = args[:5] + args[6:]
    params = {i.name for i in graph.inputs if i.kind is not InputKind.ACTIVATION}
    names = tuple(a.name if isinstance(a, Ref) else None for a in args[1:5])
    weight, bias, mean, var = names
    if mean is None or var is None or not {n for n in names if n} <= params:
        return None
    return Norm(weight, bias, mean, var, float(str(args[6])))


def _sum_of(graph: Graph, convs: tuple[Conv, ...]) -> str:
    """Return the value that adds both results and is their only reader."""
    first, second = (c.result for c in convs)
    for node in graph.nodes:
        if node.op in SUMS and {a.name for a in node.args if isinstance(a, Ref)} == {first, second}:
            shapes = {graph.values()[v].spec.shape for v in (first, second, node.outputs[0].name)}
            alone = all(sum(v in n.reads for n in graph.nodes) == 1 for v in (first, second))
            kept = {Ref(first), Ref(second)}.intersection(graph.outputs)
            if alone and not kept and len(shapes) == 1 and node.kwarg("alpha", 1) == 1:
                return node.outputs[0].name
    raise ProposalError("conv2d: two convolutions are covered only where their results are added")
