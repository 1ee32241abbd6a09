"""Scaled dot-product attention with pointwise work around it."""

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.attention_explicit import match_explicit
from mkevolve.propose.ops.attention_kernel import AttentionKernel, Plan
from mkevolve.propose.ops.attention_match import OP, Attention, match_attention
from mkevolve.propose.ops.matmul_sizes import Tunables, fit, precisions
from mkevolve.propose.shapes import Sizes, power_of_two
from mkevolve.propose.source import Source

MOST_HEADS = 65535
"""Programs along the second axis of a grid."""


Numbers = tuple[int, ...]
_SINGLE: tuple[tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]], ...] = (
    (((64, 128, 32), (64, 32)), ((4, 8), (2, 3))),
    (((32, 64), (32, 16)), ((4, 8), (2, 1))),
)
"""fp32 on tensor cores: (rows, columns), (warps, stages); heads of up to 64, larger ones. Without tensor
cores the second serves all sizes: larger tiles spill.
"""
_HALF: tuple[tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]], ...] = (
    (((64, 128), (64, 128, 32)), ((4, 8), (3, 2))),
    (((128, 64), (64, 128, 32)), ((8, 4), (3, 2))),
    (((64, 128), (32, 64)), ((8, 4), (2, 3))),
)
"""fp16 and bf16: the same; heads of up to 64, up to 128, larger ones."""


class AttentionFamily(Family[Attention]):
    """Flash-style attention: causal, boolean or additive mask, shared key heads, any strides; also written
    out as two products around a softmax.

    `loop`: whole blocks of keys without masks and then the rest, or one masked loop. `exponent`: base two
    with the factor folded into the scale, or base e. `order`: blocks of queries upwards, downwards (the long
    causal ones first), or neighbouring programs on different heads.
    """

    def match(self, subgraph: Subgraph) -> Attention | None:
        return match_attention(subgraph) or match_explicit(subgraph)

    def choices(self, match: Attention, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        long = match.causal or match.columns[0] >= 512
        orders = ("down", "up", "heads") if match.causal else ("up", "heads")
        return {
            "dot": precisions(match.dtype, precision),
            "loop": ("split", "one") if long else ("one", "split"),
            "exponent": ("two", "e"),
            "order": orders if _heads(match) <= MOST_HEADS else ("heads",),
        }

    def render(self, match: Attention, point: Point) -> str | None:
        plan = Plan(
            precision=str(point["dot"]),
            split=point["loop"] == "split",
            base_two=point["exponent"] == "two",
            order=str(point["order"]),
        )
        doc = f"{match.subgraph.ops}: running softmax over blocks of keys, {plan.order} order."
        source = Source(Sizes(match.subgraph), doc, _tunables(match, plan.precision))
        AttentionKernel(source, match, plan).write()
        return source.render()


def _heads(match: Attention) -> int:
    """The most programs' worth of heads at any variant."""
    counts = [1] * len(match.rows)
    for dim in match.lead:
        counts = [a * b for a, b in zip(counts, dim, strict=True)]
    return max(counts)


def _tunables(match: Attention, precision: str) -> Tunables:
    """Blocks whose tiles of query, key and value fit in shared memory at the first guess."""
    depth = power_of_two(max(match.depth, match.width, 16))
    if depth > 512:
        raise ProposalError(f"{OP} with heads of {max(match.depth, match.width)}")
    if match.dtype == "float32":
        blocks, options = _SINGLE[0 if depth <= 64 and precision != "ieee" else 1]
    else:
        blocks, options = _HALF[0 if depth <= 64 else 1 if depth <= 128 else 2]
    return {
        "BLOCK_M": fit(blocks[0], match.rows[0]),
        "BLOCK_N": fit(blocks[1], match.columns[0]),
        "num_warps": options[0],
        "num_stages": options[1],
    }
