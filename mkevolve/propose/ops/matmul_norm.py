"""A layer norm or RMS norm before a matrix product: its statistics are taken by each block of rows."""

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve.data.graph import Arg, Graph, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import ZERO, Coord, Coords
from mkevolve.propose.ops.matmul_terms import Contraction
from mkevolve.propose.ops.matmul_tile import Tile, Walk
from mkevolve.propose.rules import literal

LAYER, RMS = "aten.layer_norm.default", "aten.rms_norm.default"


@dataclass(frozen=True, slots=True)
class Norm:
    """`result = (source - mean) / std * weight + bias` over the inner dimension; an RMS norm has no mean."""

    source: str
    result: str
    weight: str | None
    bias: str | None
    eps: float
    centred: bool


def match_norm(graph: Graph, terms: tuple[Contraction, ...], products: list[Node], dtype: str) -> Norm | None:
    """The norm whose result is the left operand of all terms, over its whole inner dimension; None without.

    Raises `ProposalError` naming the op for a norm anywhere else. `dtype` gives an RMS norm its default eps.
    """
    nodes = [n for n in graph.nodes if n.op in (LAYER, RMS)]
    if not nodes:
        return None
    node, first = nodes[0], terms[0]
    result = node.outputs[0].name
    readers = [n.name for n in graph.nodes if result in n.reads]
    plain = len(nodes) == 1 and first.lhs == result and readers == [n.name for n in products]
    shape = node.args[1]
    whole = isinstance(shape, tuple) and len(shape) == 1 and first.lhs_labels[-1:] == first.inner
    if not plain or not whole or Ref(result) in graph.outputs or not isinstance(node.args[0], Ref):
        raise ProposalError(f"{node.op} that is not the left operand of the product")
    centred = node.op == LAYER
    eps = _argument(node, 4 if centred else 3, "eps")
    return Norm(
        source=node.args[0].name,
        result=result,
        weight=_name(_argument(node, 2, "weight")),
        bias=_name(_argument(node, 3, "bias")) if centred else None,
        eps=float(eps) if isinstance(eps, int | float) else _default_eps(dtype, centred),
        centred=centred,
    )


def _argument(node: Node, index: int, name: str) -> Arg:
    return node.args[index] if len(node.args) > index else node.kwarg(name)


def _name(arg: Arg) -> str | None:
    return arg.name if isinstance(arg, Ref) else None


def _default_eps(dtype: str, centred: bool) -> float:
    """layer_norm: 1e-5. rms_norm: the machine epsilon of the input's dtype, float32's for narrower ones."""
    return 1e-5 if centred else {"float64": 2.0**-52}.get(dtype, 2.0**-23)


def write_statistics(tile: Tile, norm: Norm, size: str, coords: Callable[[Coord], Coords]) -> None:
    """Write `rstd` (and `mean`) of every row of the tile; `coords` places an inner index in the source.

    One pass: sums of the distance from the row's first element, and of its square, so that a large mean
    does not cancel.
    """
    kernel = tile.kernel
    if norm.centred:
        first = tile.emitter.pull(norm.source, coords(ZERO)).cast("float32")
        kernel.line(f"shift = {first}")
        kernel.line("sums = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)")
    kernel.line("squares = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)")

    def body(inside: str) -> None:
        mask = f"({inside})[None, :]" if inside else ""
        value = tile.emitter.pull(norm.source, coords(Coord("ks[None, :]", (mask,) if mask else ())))
        text = f"{value.cast('float32')} - shift" if norm.centred else value.cast("float32")
        delta = kernel.assign("delta", f"tl.where({mask}, {text}, 0)" if mask else text)
        if norm.centred:
            kernel.line(f"sums += {delta}")
        kernel.line(f"squares += {delta} * {delta}")

    Walk("0", size, size, True).write(tile.emitter, body)
    if norm.centred:
        kernel.line(f"offset = tl.sum(sums, 1)[:, None] / {size}")
        kernel.line("mean = shift + offset")
        kernel.line(f"variance = tl.sum(squares, 1)[:, None] / {size} - offset * offset")
        kernel.line(f"rstd = tl.rsqrt(tl.where(variance < 0, 0, variance) + {literal(norm.eps)})")
        return
    kernel.line(f"rstd = tl.rsqrt(tl.sum(squares, 1)[:, None] / {size} + {literal(norm.eps)})")


def place_normalised(tile: Tile, norm: Norm, coords: Coords) -> None:
    """Place the norm's result at the coordinates of a tile of the left operand."""
    emitter = tile.emitter
    value = emitter.pull(norm.source, coords).cast("float32")
    text = f"({value} - mean) * rstd" if norm.centred else f"{value} * rstd"
    if norm.weight is not None:
        text += f" * {emitter.pull(norm.weight, coords[-1:]).cast('float32')}"
    if norm.bias is not None:
        text += f" + {emitter.pull(norm.bias, coords[-1:]).cast('float32')}"
    emitter.place(norm.result, coords, tile.kernel.assign("normed", text))
