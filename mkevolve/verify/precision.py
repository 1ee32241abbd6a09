"""The precision policy as a floor, read from what the compiler was given: products, sums, casts, buffers."""

import re

from mkevolve.data.graph import Graph
from mkevolve.data.model import Precision
from mkevolve.data.plan import Dot, Launch, LaunchPlan, TensorArg

_ALLOWED = {
    Precision.IEEE: frozenset({"ieee", "tf32x3"}),
    Precision.TF32: frozenset({"ieee", "tf32x3", "tf32"}),
}
_WIDE = frozenset({"float32", "float64", "int32"})
_PRODUCT = re.compile(r"mm|matmul|linear|conv|einsum|attention|\bdot\b|\bmv\b|bilinear|addmv|addr")

Fault = tuple[int | None, str]


def precision_fault(
    plan: LaunchPlan, graph: Graph, precision: Precision, undecided: tuple[int, ...]
) -> Fault | None:
    """The first thing in a plan that is less precise than the policy: its line, and what it is.

    `undecided` are lines of products that leave their precision open.
    """
    floor = _Floor(graph, precision, undecided)
    for launch in plan.launches:
        fault = floor.launch(launch)
        if fault is not None:
            return fault
    for buffer in plan.buffers:
        bits = _bits(buffer.spec.dtype)
        if bits is not None and floor.bits is not None and bits < floor.bits:
            maker = "prepare gives" if buffer.name.startswith("q") else "run allocates"
            return None, f"{maker} {buffer.spec.dtype} ({buffer.name}): {floor.reason}"
    return None


class _Floor:
    """What one subgraph demands: `bits` of its narrowest float, None where it has none."""

    def __init__(self, graph: Graph, precision: Precision, undecided: tuple[int, ...]) -> None:
        self._precision = precision
        self._undecided = undecided
        values = graph.values()
        self._dtypes = {v.spec.dtype for v in values.values()}
        self.bits = _narrowest(self._dtypes)
        read = {
            values[name].spec.dtype for node in graph.nodes if _PRODUCT.search(node.op) for name in node.reads
        }
        products = _narrowest(read)
        self._product_bits = self.bits if products is None else products
        self.reason = f"nothing in the subgraph has less than {self.bits} bits; stay in float{self.bits}"

    def launch(self, launch: Launch) -> Fault | None:
        """The first fault of a launch."""
        for dot in launch.dots:
            fault = self._dot(dot)
            if fault:
                return dot.line, fault
        for total in (s for s in launch.sums if s.dtype not in _WIDE):
            return total.line, f"a {total.what} is kept in {total.dtype}; float32 is the least: cast first"
        for cast in launch.casts:
            bits = _bits(cast.result)
            if bits is not None and self.bits is not None and bits < self.bits:
                return cast.line, f"{cast.source} is rounded to {cast.result}: {self.reason}"
        for arg in launch.args:
            bits = _bits(arg.dtype) if isinstance(arg, TensorArg) else None
            if isinstance(arg, TensorArg) and bits is not None and self.bits is not None and bits < self.bits:
                return None, f"kernel {launch.kernel} reads {arg.buffer} as {arg.dtype}: {self.reason}"
        return None

    def _dot(self, dot: Dot) -> str:
        if dot.accumulator not in _WIDE:
            return f"tl.dot accumulates in {dot.accumulator}; float32 is the least"
        bits = _bits(dot.operand)
        if bits is None and self.bits is not None and not self._dtypes & {dot.operand, "uint8"}:
            return f"tl.dot on {dot.operand}, which the subgraph has not: floats may not be quantised"
        if bits is not None and self._product_bits is not None and bits < self._product_bits:
            return f"tl.dot on {dot.operand}, where the subgraph multiplies in float{self._product_bits}"
        if dot.operand != "float32":
            return ""
        if dot.line in self._undecided or (dot.line is None and self._undecided):
            return "tl.dot on float32 leaves input_precision open: write it out"
        if dot.precision not in _ALLOWED[self._precision]:
            allowed = " or ".join(sorted(_ALLOWED[self._precision]))
            return f"tl.dot on float32 in {dot.precision}, under precision={self._precision}: use {allowed}"
        return ""


def _narrowest(dtypes: set[str]) -> int | None:
    return min((b for d in dtypes if (b := _bits(d)) is not None), default=None)


def _bits(dtype: str) -> int | None:
    """Bits of a float; None for other dtypes."""
    if dtype.startswith("float8"):
        return 8
    return {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}.get(dtype)
