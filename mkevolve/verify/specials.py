"""Where NaN and infinities are put into the inputs of a graph, so that what must come out is not in doubt.

Attention is the hard case. A key that a mask leaves out may reach the result (0 * NaN) or not, as the
implementation likes, and so may an infinite score. What is certain: a query with a NaN gives a row of NaN, a
value with a NaN that every query sees gives a column of NaN, and so does a NaN in the first position of a
sequence, which every query sees also where attention is causal.
"""

from collections import Counter
from enum import StrEnum

import torch

from mkevolve.data.graph import Arg, Graph, Node, Ref

ATTENTION = "aten.scaled_dot_product_attention.default"
_VIEWS = frozenset(
    f"aten.{op}"
    for op in (
        "view.default",
        "reshape.default",
        "transpose.int",
        "permute.default",
        "unsqueeze.default",
        "squeeze.dim",
        "expand.default",
        "contiguous.default",
        "clone.default",
    )
)
_KEYS = 8  # with fewer, all scores of an infinite query may be minus infinity


class Special(StrEnum):
    """What is put into one activation."""

    ALL = "all"  # a NaN and both infinities
    NAN = "nan"  # a NaN
    QUERY = "query"  # a NaN and an infinity
    FIRST = "first"  # a NaN in the first place
    NONE = "none"


def specials(graph: Graph, only_nan: bool = False) -> tuple[Special, ...] | None:
    """What goes into each activation; None where nothing certain would come out.

    With `only_nan` no infinity: in one row with a NaN it would hide that the NaN was dropped.
    """
    put = _specials(graph)
    if put is None or not only_nan:
        return put
    return tuple(Special.NAN if s in (Special.ALL, Special.QUERY) else s for s in put)


def _specials(graph: Graph) -> tuple[Special, ...] | None:
    floats = [i.spec.is_float for i in graph.activations]
    found = [n for n in graph.nodes if n.op == ATTENTION]
    if not found:
        return tuple(Special.ALL if f else Special.NONE for f in floats)
    direct: dict[str, Special] = {}
    for node in found:
        query, value = (_origin(graph, node.args[at]) for at in (0, 2))
        if query is None:
            direct = {}
            break
        open_to_all = _argument(node, 3, "attn_mask") is None and _argument(node, 5, "is_causal") is not True
        keys = _keys(graph, node)
        direct[query] = Special.QUERY if open_to_all and keys >= _KEYS else Special.NAN
        if value is not None and open_to_all:
            direct[value] = Special.NAN
    if direct:
        return tuple(direct.get(i.name, Special.NONE) for i in graph.activations)
    if any(_argument(n, 3, "attn_mask") is not None for n in found):
        return None
    return tuple(Special.FIRST if f else Special.NONE for f in floats)


def spoil(values: torch.Tensor, special: Special, rng: torch.Generator) -> torch.Tensor:
    """The values with NaN and infinities in them, apart from each other; few values stay as they are.

    A NaN goes near the start and an infinity near the end: what the first and the last program read.
    """
    if special is Special.NONE or values.numel() < (1 if special is Special.FIRST else 8):
        return values
    flat = values.reshape(-1).clone()
    if special is Special.FIRST:
        flat[0] = torch.nan
        return flat.reshape(values.shape)
    near = 1 + torch.randint(max(flat.numel() // 64, 1), (2,), generator=rng)
    flat[int(near[0])] = torch.nan
    if special is not Special.NAN:
        flat[-1 - int(near[1])] = torch.inf
    if special is Special.ALL:
        flat[flat.numel() // 2] = -torch.inf
    return flat.reshape(values.shape)


def _origin(graph: Graph, arg: Arg) -> str | None:
    """The activation that an argument is a view of, where nothing else reads either."""
    readers = Counter(name for node in graph.nodes for name in node.reads)
    readers.update(o.name for o in graph.outputs if isinstance(o, Ref))
    makers = {value.name: node for node in graph.nodes for value in node.outputs}
    while isinstance(arg, Ref) and readers[arg.name] == 1:
        maker = makers.get(arg.name)
        if maker is None:
            return arg.name if arg.name in {i.name for i in graph.activations} else None
        if maker.op not in _VIEWS:
            return None
        arg = maker.args[0]
    return None


def _argument(node: Node, at: int, name: str) -> Arg:
    return node.args[at] if len(node.args) > at else dict(node.kwargs).get(name)


def _keys(graph: Graph, node: Node) -> int:
    key = node.args[1]
    return graph.values()[key.name].spec.shape[-2] if isinstance(key, Ref) else 0
