"""Matrix products (linear, mm, addmm, bmm, baddbmm, matmul, einsum) with pointwise work around them."""

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.matmul_kernels import PARTIAL, Plan, write_dot
from mkevolve.propose.ops.matmul_match import Product, Weight, match_product
from mkevolve.propose.ops.matmul_rows import write_rows
from mkevolve.propose.ops.matmul_sizes import (
    crews,
    dot_tunables,
    layouts,
    methods,
    precisions,
    row_tunables,
    splits,
)
from mkevolve.propose.shapes import Sizes
from mkevolve.propose.source import Source


class MatmulFamily(Family[Product]):
    """One product, or up to three of equal sizes over the same left operand, with prologue and epilogue.

    `method`: tensor cores, or rows of multiply and add. `weight`: as given, or packed by `prepare` with the
    column or the inner index fastest. `order`: which tiles run together. `split_k`: parts of the inner
    dimension, added by a second launch in a fixed order. `persistent`: programs that share all tiles (0: one
    a tile). `tail`: whole blocks without masks and a tail, or masks everywhere. `epilogue`: in the same
    kernel, or after it.
    """

    def match(self, subgraph: Subgraph) -> Product | None:
        return match_product(subgraph)

    def choices(self, match: Product, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        dots = precisions(match.dtype, precision)
        found: dict[str, tuple[Setting, ...]] = {
            "method": methods(match),
            "dot": dots,
            "weight": layouts(match, dots[0]),
            "order": ("row", "grouped", "column"),
            "split_k": splits(match, chip),
            "persistent": crews(match, chip),
            "tail": ("split", "masked"),
            "epilogue": ("fused", "separate"),
        }
        return found

    def render(self, match: Product, point: Point) -> str | None:
        sizes = Sizes(match.subgraph)
        if point["method"] == "rows":
            source = Source(sizes, f"{match.subgraph.ops}: one row a program.", row_tunables(match))
            write_rows(source, match)
            return source.render()
        split, programs = int(point["split_k"]), int(point["persistent"])
        separate = point["epilogue"] == "separate"
        if match.is_single(match.terms[0].rows) or (separate and split > 1):
            return None
        plan = Plan(
            precision=str(point["dot"]),
            packed="" if point["weight"] == "given" else str(point["weight"])[0],
            order=str(point["order"]),
            split_k=split,
            persistent=programs > 0,
            split_tail=point["tail"] == "split",
            separate=separate,
        )
        tunables = dot_tunables(match, plan.precision, split)
        if programs:
            tunables["PROGRAMS"] = (programs,)
        source = Source(sizes, f"{match.subgraph.ops}: {_title(plan)}.", tunables)
        if plan.packed:
            _pack(source, match, plan.packed)
        if plan.two_passes:
            _scratch(source, match, plan)
        write_dot(source, match, plan)
        return source.render()


def _title(plan: Plan) -> str:
    parts = [f"{plan.order} order of tiles"]
    parts += [f"weight packed with {plan.packed} fastest"] * bool(plan.packed)
    parts += [f"{plan.split_k} parts of the inner dimension"] * (plan.split_k > 1)
    parts += ["persistent programs"] * plan.persistent
    parts += ["epilogue in a second kernel"] * plan.separate
    return ", ".join(parts)


def _pack(source: Source, product: Product, fastest: str) -> None:
    """Write `prepare`: every weight as a dense matrix with the inner or the column index fastest."""
    lines, packed = [], []
    for number, (weight, term) in enumerate(zip(product.weights, product.terms, strict=True)):
        labels = (*term.inner, *term.columns) if fastest == "n" else (*term.columns, *term.inner)
        lines.append(f"w{number} = {_dense(weight, labels)}")
        packed.append(f"w{number}")
    names = {w.name for w in product.weights}
    rest = [i.name for i in source.sizes.graph.params if i.name not in names]
    source.prepare(lines, [*packed, *rest])


def _dense(weight: Weight, labels: tuple[str, ...]) -> str:
    order = [weight.labels.index(x) for x in labels]
    if order == sorted(order):
        return f"{weight.name}.contiguous()"
    return f"{weight.name}.permute({', '.join(map(str, order))}).contiguous()"


def _scratch(source: Source, product: Product, plan: Plan) -> None:
    first, host = product.terms[0], source.sizes.host
    parts = [f"{plan.split_k * len(product.terms)}"]
    for labels in (first.batch, first.rows, first.columns):
        text = host(*(product.dims[x] for x in labels))
        parts += [text] * (text != "1")
    source.scratch(PARTIAL, f"({', '.join(parts)},)" if len(parts) == 1 else f"({', '.join(parts)})")
