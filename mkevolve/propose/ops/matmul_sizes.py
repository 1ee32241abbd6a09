"""First guesses for matrix products: tile sizes, split of the inner dimension, dot precision, weight layout.

The defaults come from timings on an H200 (fp16, bf16: 128x128x64 with 8 warps and 3 stages; fp32 as three
tf32 products: 128x64x32 with 4 warps; IEEE fp32 dots want the column index fastest in memory).
"""

from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.model import Precision
from mkevolve.propose.ops.matmul_match import Product

Tunables = dict[str, tuple[Setting, ...]]
ENOUGH_TILES = 132
"""Tiles that keep a large chip busy; fewer ask for smaller tiles."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Options of every tunable, and tiles (rows, columns) from large to small to start with."""

    shapes: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inner: tuple[int, ...]
    warps: tuple[int, ...]
    stages: tuple[int, ...]


def precisions(dtype: str, policy: Precision) -> tuple[str, ...]:
    """Values of `input_precision` that the policy allows, fastest first; 16-bit operands have no choice."""
    if dtype != "float32":
        return ("ieee",)
    return ("tf32x3", "ieee") if policy is Precision.IEEE else ("tf32", "tf32x3", "ieee")


def layouts(product: Product, precision: str) -> tuple[str, ...]:
    """Layouts of the weight: which index `prepare` makes fastest, or `given`."""
    if not product.weights:
        return ("given",)
    fast = product.weights[0].labels[-1] in product.terms[0].inner
    if product.dtype != "float32":
        return ("given", "n_fastest" if fast else "k_fastest")
    if precision == "ieee":
        return ("n_fastest", "given") if fast else ("given", "k_fastest")
    return ("given", "n_fastest") if fast else ("k_fastest", "given")


def tiles(product: Product, rows: int, columns: int) -> int:
    """Tiles of this size at the target, over all of the batch."""
    first = product.terms[0]
    across = -(-product.extent(first.rows) // rows) * -(-product.extent(first.columns) // columns)
    return across * product.extent(first.batch)


def splits(product: Product, chip: Chip) -> tuple[int, ...]:
    """Parts of the inner dimension: several only where tiles are few, and first only where it is long."""
    inner, made = product.extent(product.terms[0].inner), tiles(product, 64, 128)
    kept = [s for s in (1, 2, 4, 8) if s == 1 or (inner // s >= 64 and made * s <= 4 * chip.processors)]
    best = max(s for s in kept if s == 1 or (inner // s >= 1024 and made * s <= 2 * chip.processors))
    return (best, *(s for s in kept if s != best))


def crews(product: Product, chip: Chip) -> tuple[int, ...]:
    """Numbers of persistent programs; 0 is one program a tile, the only choice where tiles are few."""
    many = tiles(product, 64, 64) > chip.processors
    return (0, chip.processors, 2 * chip.processors) if many else (0,)


def methods(product: Product) -> tuple[str, ...]:
    """`dot` (tensor cores) and `rows` (multiply and add, a row a program), where each makes sense."""
    first = product.terms[0]
    rows = product.extent(first.rows)
    if product.norm is not None:
        return ("dot",)
    if product.is_single(first.rows):
        return ("rows",)
    if rows <= 4:
        return ("rows", "dot")
    return ("dot", "rows") if rows <= 64 else ("dot",)


def row_tunables(product: Product) -> Tunables:
    """Blocks of the variant without tensor cores."""
    first = product.terms[0]
    return {
        "BLOCK_N": fit((16, 32, 64), product.extent(first.columns), least=4),
        "BLOCK_K": fit((512, 256, 128), product.extent(first.inner)),
        "num_warps": (4, 8, 2),
    }


def dot_tunables(product: Product, precision: str, split_k: int) -> Tunables:
    """Blocks of the tensor-core variant; the first tile is the largest that still fills the chip."""
    first = product.terms[0]
    m, n, k = (product.extent(x) for x in (first.rows, first.columns, first.inner))
    table = _half_blocks(product, m) if product.dtype != "float32" else _single_blocks(product, precision)
    full = [s for s in table.shapes if tiles(product, *s) * split_k >= ENOUGH_TILES]
    best = full[0] if full else table.shapes[-1]
    return {
        "BLOCK_M": fit((best[0], *(x for x in table.rows if x != best[0])), m),
        "BLOCK_N": fit((best[1], *(x for x in table.columns if x != best[1])), n),
        "BLOCK_K": fit(table.inner, k),
        "num_warps": table.warps,
        "num_stages": table.stages,
    }


def _half_blocks(product: Product, rows: int) -> Blocks:
    single = len(product.terms) == 1
    few = rows <= 64 or tiles(product, 64, 64) < 2 * ENOUGH_TILES
    shapes = ((128, 128), (128, 64), (64, 64)) if single else ((128, 128), (64, 128), (64, 64))
    return Blocks(
        shapes=shapes,
        rows=(128, 64, 256) if single else (128, 64),
        columns=(128, 64, 256) if single else (128, 64),
        inner=(128, 64) if rows <= 64 else (64,),
        warps=(4, 8) if few else (8, 4),
        stages=(4, 3, 2) if few else (3, 4, 2),
    )


def _single_blocks(product: Product, precision: str) -> Blocks:
    if precision == "ieee":
        shapes: tuple[tuple[int, int], ...] = ((64, 64),)
    else:
        shapes = ((128, 64), (64, 64)) if len(product.terms) == 1 else ((64, 64),)
    return Blocks(
        shapes=shapes,
        rows=(128, 64),
        columns=(64, 128) if len(product.terms) == 1 else (64, 32),
        inner=(32, 16),
        warps=(4, 8),
        stages=(3, 2),
    )


def fit(blocks: tuple[int, ...], size: int, least: int = 16) -> tuple[int, ...]:
    """Blocks that are no longer than the size needs, at least `least`."""
    cap = max(least, 1 << max(size - 1, 1).bit_length())
    kept = tuple(b for b in blocks if b <= cap)
    return kept if blocks[0] <= cap else tuple(dict.fromkeys((cap, *kept)))
