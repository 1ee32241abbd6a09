"""Runs a subgraph for its reference: in float64, as eager, and with inputs that differ in the last bit."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch

from mkevolve.data.graph import Graph
from mkevolve.data.model import Precision
from mkevolve.reference import run_graph, run_graph_fp64
from mkevolve.verify.eager import run_eager
from mkevolve.verify.expected import Expected, expect, tolerance
from mkevolve.verify.work import in_float32

Tensors = tuple[torch.Tensor, ...]


def expectations(
    graph: Graph, tensors: Tensors, precision: Precision, special: bool = False
) -> tuple[Expected, ...]:
    """What is expected of each output; with `special` inputs, NaN or infinite, attention is its formula."""
    inputs = _named(graph, tensors)
    with _one_thread(), plain_attention() if special else nullcontext():
        wide = _tensors(run_graph_fp64(graph, inputs))
        eager = _tensors(run_eager(graph, inputs, precision))
        near = _tensors(run_graph_fp64(graph, {name: _nudged(t) for name, t in inputs.items()}))
        outputs = zip(wide, eager, graph.output_values, near, strict=True)
        return tuple(expect(w, e, v.spec, n) for w, e, v, n in outputs)


def expectations_fp32(
    graph: Graph, tensors: Tensors, small: tuple[Expected, ...] | None, special: bool = False
) -> tuple[Expected, ...]:
    """The same around a reference in float32; eager's error is that of a `small` case."""
    single = tuple(t.float() if t.is_floating_point() else t for t in tensors)
    with plain_attention() if special else nullcontext():
        outputs = _tensors(run_graph(in_float32(graph), _named(graph, single)))
    return tuple(
        tolerance(o, v.spec, small[at] if small else None)
        for at, (o, v) in enumerate(zip(outputs, graph.output_values, strict=True))
    )


def results(graph: Graph, tensors: Tensors) -> Tensors:
    """The outputs in float64."""
    with _one_thread():
        return _tensors(run_graph_fp64(graph, _named(graph, tensors)))


def _named(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> Mapping[str, torch.Tensor]:
    return {i.name: t for i, t in zip((*graph.activations, *graph.params), tensors, strict=True)}


def _tensors(results: Iterable[object]) -> tuple[torch.Tensor, ...]:
    return tuple(r for r in results if isinstance(r, torch.Tensor))


def _nudged(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, each value moved up or down by one unit in the last place of float32."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=torch.Generator().manual_seed(tensor.numel()))
    return tensor.double() * (1.0 + 2.0**-23 * (2 * signs - 1))


@contextmanager
def _one_thread() -> Iterator[None]:
    """How a sum is cut among threads changes its last bits, and so what is allowed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as its formula: the fused kernel of the CPU drops a NaN in short rows."""
    flash: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_flash_sdp(flash)
