"""Convolutions as implicit GEMM, with folded batch norm and whatever pointwise ops surround them."""

from math import prod

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.conv_design import PATCH_WIDTHS, Design, terms, tiles
from mkevolve.propose.ops.conv_finish import write_reduce
from mkevolve.propose.ops.conv_kernel import write_main, write_repack
from mkevolve.propose.ops.conv_match import CONVOLUTIONS, ConvProblem, match_conv
from mkevolve.propose.ops.conv_pack import columns_lines, fold_lines, pack_lines
from mkevolve.propose.ops.conv_tile import Job, check_design, define_output
from mkevolve.propose.shapes import Sizes
from mkevolve.propose.source import Source

DEEP = 16  # steps of the inner loop from which sharing them pays for a second launch
DOT = {Precision.IEEE: ("tf32x3", "ieee"), Precision.TF32: ("tf32", "tf32x3", "ieee")}


class ConvFamily(Family[ConvProblem]):
    """conv1d and conv2d with any stride, padding, dilation and groups; the sum of two of them.

    The second is how a residual block ends whose other branch is a projection.
    """

    def match(self, subgraph: Subgraph) -> ConvProblem | None:
        if not any(n.op in CONVOLUTIONS for n in subgraph.target.nodes):
            return None
        problem = match_conv(subgraph)
        # One channel a group makes no matrix product: `DepthwiseFamily` covers it.
        return None if any(c.is_depthwise for c in problem.convs) else problem

    def choices(self, match: ConvProblem, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        source = match.graph.values()[match.convs[0].source].spec
        table: dict[str, tuple[Setting, ...]] = {}
        if source.dtype == "float32":
            table["dot"] = DOT[precision]
        group = min(c.ci // c.groups for c in match.convs)
        tapped = any(c.window.taps > 1 for c in match.convs)
        if tapped and group <= 32:
            table["k_order"] = ("fused_taps", "per_tap") if group < 16 else ("per_tap", "fused_taps")
        if tapped and match.convs[0].spatial == 2:
            table["tile"] = ("flat", "patch")
        if tapped and group >= 16 and source.stride[1] != 1:
            table["repack"] = ("none", "nhwc")
        table |= _schedules(match, chip)
        if len(match.convs) == 1 and match.convs[0].norm is not None:
            table["norm"] = ("weights", "epilogue")
        return table

    def render(self, match: ConvProblem, point: Point) -> str | None:
        design = _design(match, point)
        found, blocks = terms(match, design)
        job = Job(Sizes(match.subgraph), match, design, found, blocks)
        if check_design(job) is not None:
            return None
        define_output(job.sizes, match.convs[0], match.result)
        return _source(job).render()


def _schedules(match: ConvProblem, chip: Chip) -> dict[str, tuple[Setting, ...]]:
    """Orders of tiles, persistent programs and split-K, where the target has enough or too few tiles."""
    found, blocks = terms(match, _design(match, {}))
    shape = match.graph.values()[match.result].spec.shape
    groups, rows = match.convs[0].groups, prod(shape) // shape[1]
    across = groups * tiles(shape[1] // groups, min(blocks.columns))
    count = tiles(rows, blocks.rows[0]) * groups * tiles(shape[1] // groups, blocks.columns[0])
    table: dict[str, tuple[Setting, ...]] = {}
    if across > 1:
        table["order"] = ("channels", "pixels", "grouped")
    if count > chip.processors:
        table["programs"] = (0, chip.processors, 2 * chip.processors)
    steps = tiles(found[0].packing.rows, blocks.inner[0])
    splits = [s for s in (2, 4, 8) if 2 * s <= steps]
    if len(found) == 1 and splits and count < 2 * chip.processors:
        table["split_k"] = (1, *splits)
        if steps >= DEEP and 2 * count < chip.processors:
            wanted = next((s for s in splits if s * count >= chip.processors), splits[-1])
            table["split_k"] = (wanted, 1, *(s for s in splits if s != wanted))
    return table


def _design(match: ConvProblem, point: Point) -> Design:
    group = min(c.ci // c.groups for c in match.convs)
    dtype = match.graph.values()[match.convs[0].source].spec.dtype
    dot = str(point.get("dot", "ieee")) if dtype == "float32" else None
    return Design(
        fused_taps=point.get("k_order", "fused_taps" if group < 16 else "per_tap") == "fused_taps",
        patch=point.get("tile") == "patch",
        order=str(point.get("order", "channels")),
        split=int(point.get("split_k", 1)),
        programs=int(point.get("programs", 0)),
        repack=point.get("repack") == "nhwc",
        fold=point.get("norm", "weights") == "weights",
        precision=dot,
    )


def _source(job: Job) -> Source:
    tunables: dict[str, tuple[Setting, ...]] = dict(job.blocks.table)
    if job.design.patch:
        tunables["BLOCK_W"] = tuple(w for w in PATCH_WIDTHS if w <= min(job.blocks.rows))
    source = Source(job.sizes, _doc(job), tunables)
    _prepare(job, source)
    for term in job.terms:
        if job.repacked(term):
            kernel = source.kernel(f"_repack{job.terms.index(term)}")
            write_repack(job, kernel, term)
            source.scratch(
                job.workspace(term),
                f"({job.sizes.host(*job.input(term))},)",
                job.sizes.dtype(term.conv.source),
            )
            source.launch(kernel)
    main = source.kernel("_conv")
    write_main(job, main)
    if job.design.split > 1:
        shape = (job.output[0], job.output[2], job.output[3])
        size = job.sizes.host(*shape)
        source.scratch("partial", f"({job.design.split}, {size}, {job.columns})")
        source.launch(main)
        reduce = source.kernel("_reduce")
        write_reduce(job, reduce)
        source.launch(reduce)
    else:
        source.launch(main)
    return source


def _prepare(job: Job, source: Source) -> None:
    """Weights and biases are packed; parameters that the surroundings read go on as they are."""
    lines: list[str] = []
    returns: list[str] = []
    for place, term in enumerate(job.terms):
        lines += fold_lines(term.conv, f"c{place}", into_weight=job.design.fold)
        lines += pack_lines(term.conv, f"c{place}", term.packing)
        lines.append(f"packed_w{place} = c{place}_packed")
        returns.append(f"packed_w{place}")
    width = job.terms[0].packing.columns
    if not job.design.fold and job.terms[0].conv.norm:
        lines += ["scale = c0_scale", *columns_lines("scale", job.groups, job.channels, width)]
        returns.append("scale")
    if any(t.conv.norm or t.conv.bias for t in job.terms):
        total = " + ".join(f"c{i}_bias" for i in range(len(job.terms)))
        lines += [f"shift = {total}", *columns_lines("shift", job.groups, job.channels, width)]
        returns.append("shift")
    around = {
        r for n in (*job.problem.epilogue, *(n for t in job.terms for n in job.problem.prologue(t.conv)))
        for r in n.reads
    }  # fmt: skip
    kept = [i.name for i in job.problem.graph.params if i.name in around]
    source.prepare(lines, (*returns, *kept))


def _doc(job: Job) -> str:
    """One line that says what the kernel computes and how."""
    conv, design = job.terms[0].conv, job.design
    size = "x".join(str(n) for n in conv.window.size)
    parts = [f"conv {size}, {conv.ci} to {conv.co} channels"]
    if len(job.terms) > 1:
        other = "x".join(str(n) for n in job.terms[1].conv.window.size)
        parts.append(f"plus conv {other} of another input")
    if conv.norm:
        parts.append("folded batch norm" if design.fold else "batch norm after the product")
    how = ["implicit GEMM", "taps x channels in one step" if job.terms[0].fused else "a tap at a time"]
    how += ["rectangular tiles"] * design.patch + [f"split-K {design.split}"] * (design.split > 1)
    how += ["persistent"] * (design.programs > 0) + ["input repacked to channels-last"] * design.repack
    tail = [n.op.split(".")[1] for n in job.problem.epilogue]
    if tail:
        parts.append("then " + ", ".join(tail))
    return f"{', '.join(parts)}: {', '.join(how)}."
