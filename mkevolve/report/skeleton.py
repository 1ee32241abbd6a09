"""A file to start a kernel from: it keeps the contract of a subgraph, and leaves the values to be written."""

from collections.abc import Iterator
from dataclasses import dataclass

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, TensorSpec

TODO = "TODO"  # what a person replaces; without that the file is refused for its values


@dataclass(frozen=True, slots=True)
class _Result:
    """One returned tensor: its number, and its spec at each of the variants (the target first)."""

    number: int
    specs: tuple[TensorSpec, ...]
    variants: tuple[str, ...]

    @property
    def spec(self) -> TensorSpec:
        return self.specs[0]


def skeleton(subgraph: Subgraph) -> str:
    """The text of a candidate with one kernel a result, which writes zeros."""
    graphs = [graph for _, graph in subgraph.variants]
    columns = zip(*([v.spec for v in g.output_values] for g in graphs), strict=True)
    names = tuple(name for name, _ in subgraph.variants)
    results = [_Result(i, specs, names) for i, specs in enumerate(columns)]
    parts = [_HEAD.format(ops=subgraph.ops)]
    parts += [_kernel(graphs, result) for result in results]
    parts += [_prepare(graphs[0]), _run(graphs, results)]
    return "\n\n\n".join(part for part in parts if part) + "\n"


_HEAD = '''\
"""{ops}: say here how it is computed."""

import torch
import triton
import triton.language as tl

TUNABLES = {{"BLOCK": (1024, 512, 256), "num_warps": (4, 8)}}  # the first value of each is the default'''


def _kernel(graphs: list[Graph], result: _Result) -> str:
    inputs = graphs[0].inputs
    pointers = "".join(f"{i.name}_ptr, " for i in inputs)
    lines = [
        "@triton.jit",
        f"def _result_{result.number}({pointers}out_ptr, size, BLOCK: tl.constexpr):",
        "    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offsets < size",
    ]
    for number, given in enumerate(inputs):
        if tuple(g.inputs[number].spec for g in graphs) == _as_dtype(result.specs, given.spec.dtype):
            zero = "0.0" if given.spec.is_float else "0"
            lines.append(f"    {given.name} = tl.load({given.name}_ptr + offsets, mask=mask, other={zero})")
    kind = "tl.float32" if result.spec.is_float else "tl.int32"
    return "\n".join(
        [
            *lines,
            f"    value = tl.zeros((BLOCK,), {kind})  # {TODO}: element `offsets` of result {result.number}",
            "    tl.store(out_ptr + offsets, value, mask=mask)",
        ]
    )


def _as_dtype(specs: tuple[TensorSpec, ...], dtype: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(s.shape, dtype, s.stride) for s in specs)


def _prepare(graph: Graph) -> str:
    if not graph.params:
        return ""
    names = ", ".join(i.name for i in graph.params)
    return (
        "# Optional: once per weight load, with any torch op. `run` then gets the activations and what this\n"
        f"# returns:\n# def prepare({names}):\n#     return {names}"
    )


def _run(graphs: list[Graph], results: list[_Result]) -> str:
    inputs = graphs[0].inputs
    names = ", ".join(i.name for i in inputs)
    lines = [f"def run({names}{', ' if names else ''}*, BLOCK, num_warps):"]
    for result in results:
        out, size = f"out{result.number}", f"size{result.number}"
        lines += [f"    {line}" for line in _allocation(graphs, result, out)]
        lines += [
            f"    {size} = {out}.numel()",
            f"    _result_{result.number}[(triton.cdiv({size}, BLOCK),)](",
            f"        {names}{', ' if names else ''}{out}, {size}, BLOCK=BLOCK, num_warps=num_warps",
            "    )",
        ]
    return "\n".join([*lines, f"    return {', '.join(f'out{r.number}' for r in results)}"])


def _allocation(graphs: list[Graph], result: _Result, name: str) -> Iterator[str]:
    """An uninitialised tensor with the boundary's shape and strides."""
    spec = result.spec
    rest = f"dtype=torch.{spec.dtype}"
    if graphs[0].inputs:
        rest += f", device={graphs[0].inputs[0].name}.device"
    sizes = [_size(graphs, [s.shape[d] for s in result.specs]) for d in range(len(spec.shape))]
    unknown = [d for d, size in enumerate(sizes) if size is None]
    for d in unknown:
        seen = ", ".join(f"{s.shape[d]} at {v}" for s, v in zip(result.specs, result.variants, strict=True))
        yield f"# {TODO}: size {d} of {name} is {seen}"
    known = [size if size is not None else str(spec.shape[d]) for d, size in enumerate(sizes)]
    order = sorted(range(len(known)), key=lambda d: (-spec.stride[d], d))
    if not _dense(spec, order):
        yield f"{name} = torch.empty_strided({_tuple(known)}, {_tuple(list(map(str, spec.stride)))}, {rest})"
    elif order == sorted(order):
        yield f"{name} = torch.empty({_tuple(known)}, {rest})"
    else:
        back = _tuple([str(order.index(d)) for d in range(len(order))])
        yield f"{name} = torch.empty({_tuple([known[d] for d in order])}, {rest}).permute{back}"


def _size(graphs: list[Graph], sizes: list[int]) -> str | None:
    """A size as an expression of the inputs' shapes that holds at every variant; None where none is found."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    dims = list(_dims(graphs))
    for text, values in dims:
        if values == sizes:
            return text
    for i, (left, first) in enumerate(dims):
        for right, second in dims[i + 1 :]:
            if [a * b for a, b in zip(first, second, strict=True)] == sizes:
                return f"{left} * {right}"
    for text, values in dims:
        factors = {n // v for n, v in zip(sizes, values, strict=True) if v and n % v == 0}
        if len(factors) == 1 and [v * min(factors) for v in values] == sizes:
            return f"{text} * {min(factors)}"
    return None


def _dims(graphs: list[Graph]) -> Iterator[tuple[str, list[int]]]:
    inputs: tuple[Input, ...] = graphs[0].inputs
    for number, given in enumerate(inputs):
        for axis in range(len(given.spec.shape)):
            yield f"{given.name}.shape[{axis}]", [g.inputs[number].spec.shape[axis] for g in graphs]


def _dense(spec: TensorSpec, order: list[int]) -> bool:
    expected = 1
    for d in reversed(order):
        if spec.shape[d] != 1 and spec.stride[d] != expected:
            return False
        expected *= spec.shape[d]
    return True


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
