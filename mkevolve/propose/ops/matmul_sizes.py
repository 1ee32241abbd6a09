"""First guesses for matrix products: tile sizes, split of the inner dimension, dot precision, weight layout.

The defaults come from timings on an H200 (fp16, bf16: 128x128x64 with 8 warps and 3 stages; fp32 as three
tf32 products: 128x64x32 with 4 warps; IEEE fp32 dots want the column index fastest in memory).
"""

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.model import Precision
from mkevolve.propose.ops.matmul_match import Product

Tunables = dict[str, tuple[Setting, ...]]
ENOUGH_TILES = 132
"""Tiles that keep a large chip busy; fewer ask for smaller tiles."""


def precisions(dtype: str, policy: Precision) -> tuple[str, ...]:
    """Values of `input_precision` that the policy allows, fastest first; 16-bit operands have no choice."""
    if dtype != "float32":
        return ("ieee",)
    return ("tf32x3", "ieee") if policy is Precision.IEEE else ("tf32", "tf32x3", "ieee")


def layouts(product: Product, precision: str) -> tuple[str, ...]:
    """Layouts of the weight: which index `prepare` makes fastest, or `given`."""
    if not product.weights:
        return ("given",)
    if product.dtype != "float32" or precision == "ieee":
        return ("n_fastest", "given", "k_fastest")
    fast = product.weights[0].labels[-1] in product.terms[0].inner
    return ("given", "n_fastest") if fast else ("k_fastest", "given")


def splits(product: Product, chip: Chip) -> tuple[int, ...]:
    """Parts of the inner dimension; several come first only where tiles are few and it is long."""
    first = product.terms[0]
    inner = product.extent(first.inner)
    tiles = -(-product.extent(first.rows) // 64) * -(-product.extent(first.columns) // 128)
    room = 2 * chip.processors // max(tiles * product.extent(first.batch), 1)
    best = max(s for s in (1, 2, 4, 8) if s == 1 or (s <= room and inner // s >= 1024))
    return tuple(dict.fromkeys((best, *(s for s in (1, 2, 4, 8) if s == 1 or inner // s >= 64))))


def methods(product: Product) -> tuple[str, ...]:
    """`dot` (tensor cores) and `rows` (multiply and add, a row a program), where each makes sense."""
    first = product.terms[0]
    rows = product.extent(first.rows)
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
        "BLOCK_K": fit((256, 128, 512), product.extent(first.inner)),
        "num_warps": (4, 8, 2),
    }


def dot_tunables(product: Product, precision: str) -> Tunables:
    """Blocks of the tensor-core variant; the first tile is the largest that still fills the chip."""
    first = product.terms[0]
    m, n, k = (product.extent(x) for x in (first.rows, first.columns, first.inner))
    many = len(product.terms) > 1
    if product.dtype != "float32":
        tiles = ((128, 128), (128, 64), (64, 64)) if not many else ((128, 128), (64, 128), (64, 64))
        table: Tunables = {
            "BLOCK_M": (128, 64, 256) if not many else (128, 64),
            "BLOCK_N": (128, 64, 256) if not many else (128, 64),
            "BLOCK_K": (64,) if m > 64 else (128, 64),
            "num_warps": (8, 4) if m > 64 else (4, 8),
            "num_stages": (3, 4, 2) if m > 64 else (4, 3, 2),
        }
    else:
        tiles = ((128, 64), (64, 64)) if precision != "ieee" else ((64, 64),)
        table = {
            "BLOCK_M": (128, 64),
            "BLOCK_N": (64, 128) if not many else (64, 32),
            "BLOCK_K": (32, 16),
            "num_warps": (4, 8),
            "num_stages": (3, 2),
        }
    work = product.extent(first.batch)
    filling = [t for t in tiles if -(-m // t[0]) * -(-n // t[1]) * work >= ENOUGH_TILES]
    best = filling[0] if filling else tiles[-1]
    for name, size, block in (("BLOCK_M", m, best[0]), ("BLOCK_N", n, best[1])):
        blocks = tuple(b for b in table[name] if isinstance(b, int))
        table[name] = fit((block, *(b for b in blocks if b != block)), size)
    blocks = tuple(b for b in table["BLOCK_K"] if isinstance(b, int))
    table["BLOCK_K"] = fit(blocks, k)
    return table


def fit(blocks: tuple[int, ...], size: int, least: int = 16) -> tuple[int, ...]:
    """Blocks that are no longer than the size needs, at least `least`."""
    cap = max(least, 1 << max(size - 1, 1).bit_length())
    kept = tuple(b for b in blocks if b <= cap)
    return kept if blocks[0] <= cap else tuple(dict.fromkeys((cap, *kept)))
