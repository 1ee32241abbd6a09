"""What a subgraph takes at least on a chip, and what eager is estimated to take for it, op by op."""

from collections.abc import Mapping
from dataclasses import dataclass

from mkevolve.data.chip import Chip
from mkevolve.data.graph import Graph, Node, Ref, TensorSpec
from mkevolve.data.measurement import Clock, Measurement
from mkevolve.data.model import Precision
from mkevolve.measure.cost_model import DEFAULT
from mkevolve.measure.operations import (
    TRANSCENDENTAL,
    Product,
    bytes_read,
    bytes_written,
    is_view,
    product,
    reads_of,
    short,
)

Specs = Mapping[str, TensorSpec]

# Shares of the measured rates that library kernels reach, from eager's times on the calibration set.
_STREAM = 0.75
_TRANSCENDENTAL = 0.45
_MATRIX = 0.75  # of what a large product reaches
_VECTOR = 0.75  # of the fp32 rate
_GROUPED = 0.15  # of the vector rate: depthwise convolutions
_SPREAD = 1.7  # factor between the estimate and either end of its band


@dataclass(frozen=True, slots=True)
class Roofline:
    """A lower bound: every input byte read once, every output byte written once, every product done once at
    the datasheet's rates (`basis`), memory and arithmetic fully overlapped, no launch.
    """

    us: float
    bytes: int
    flops: float
    memory_us: float
    compute_us: float
    basis: str = "datasheet"

    @property
    def limit(self) -> str:
        """What bounds it: `memory` or `compute`."""
        return "memory" if self.memory_us >= self.compute_us else "compute"


def bound(graph: Graph, chip: Chip, precision: Precision) -> Roofline:
    """The lower bound of a subgraph under a precision policy, on a cold cache."""
    specs = {name: value.spec for name, value in graph.values().items()}
    moved = sum(_needed(graph, i.name, specs) for i in graph.inputs)
    moved += sum(v.spec.nbytes for v in graph.output_values)
    products = [p for node in graph.nodes if (p := product(node, specs)) is not None]
    compute = sum(p.flops / _peak(p.operand, chip, precision) for p in products) * 1e6
    memory = moved / chip.dram_bytes * 1e6
    return Roofline(max(memory, compute), moved, sum(p.flops for p in products), memory, compute)


def estimate_eager(graph: Graph, chip: Chip, precision: Precision) -> Measurement:
    """Eager's time on the model clock: one library kernel an op, views free; a value that fits in half of the
    L2 cache is read from there by the op after the one that made it.
    """
    specs = {name: value.spec for name, value in graph.values().items()}
    fresh: set[str] = set()
    launches, memory, compute, total = 0, 0.0, 0.0, 0.0
    for node in graph.nodes:
        if is_view(node):
            fresh.update(v.name for v in node.outputs if fresh & set(node.reads))
            continue
        moved, arithmetic = _memory_us(node, specs, chip, fresh), _compute_us(node, specs, chip, precision)
        launches += 1
        memory += moved
        compute += arithmetic
        total += max(moved, arithmetic)
        fresh = {v.name for v in node.outputs if v.spec.nbytes < chip.l2_size / 2}
    us = DEFAULT.start + total + launches * chip.launch_us if launches else 0.0
    terms = (("launches", launches * chip.launch_us), ("memory", memory), ("compute", compute))
    return Measurement(Clock.MODEL, us, us / _SPREAD, us * _SPREAD, terms)


def _needed(graph: Graph, name: str, specs: Specs) -> int:
    """Bytes of an input that must be read: what its most demanding reader needs."""
    readers = [node for node in graph.nodes if name in node.reads]
    returned = any(isinstance(o, Ref) and o.name == name for o in graph.outputs)
    if returned or not readers:
        return specs[name].nbytes if returned else 0
    return max(reads_of(node, name, specs) for node in readers)


def _peak(operand: str, chip: Chip, precision: Precision) -> float:
    """The fastest that the policy allows: `ieee` lets three TF32 products stand for one of fp32."""
    if operand != "float32":
        return _rate(operand, chip)
    matrix = dict(chip.matrix)
    tf32 = matrix.get("tf32", 0.0)
    return max(chip.matrix_rate("float32"), tf32 if precision is Precision.TF32 else tf32 / 3)


def _rate(dtype: str, chip: Chip) -> float:
    """Rate of a dtype; one that the chip's tables lack counts as the slowest listed."""
    rates = dict(chip.vector) | dict(chip.matrix)
    return rates.get(dtype, min(rates.values()))


def _memory_us(node: Node, specs: Specs, chip: Chip, fresh: set[str]) -> float:
    share = _TRANSCENDENTAL if short(node.op) in TRANSCENDENTAL else _STREAM
    cached = sum(specs[name].nbytes for name in dict.fromkeys(node.reads) if name in fresh)
    read = max(bytes_read(node, specs) - cached, 0)
    stream = (read + bytes_written(node)) / (chip.dram_measured * share)
    return (stream + cached / (chip.l2_bytes * share)) * 1e6


def _compute_us(node: Node, specs: Specs, chip: Chip, precision: Precision) -> float:
    work = product(node, specs)
    if work is None:
        return 0.0
    return work.flops / _library_rate(work, chip, precision) * 1e6


def _library_rate(work: Product, chip: Chip, precision: Precision) -> float:
    if work.grouped:
        return _GROUPED * _rate("float32", chip) if work.operand != "float64" else _rate("float64", chip)
    matrix = dict(chip.matrix)
    if work.operand == "float32" and (precision is Precision.IEEE or "tf32" not in matrix):
        return chip.matrix_rate("float32") * _VECTOR
    rate = matrix["tf32"] if work.operand == "float32" else _rate(work.operand, chip)
    return rate * chip.matrix_reached * _MATRIX
