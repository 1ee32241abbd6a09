"""Runs a graph of `data/graph.py` with torch: as written, or in float64 as an oracle.

Gradients and autocast are off while a graph runs; its casts are in the graph.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

import torch

from mkevolve.data.graph import FLOAT_DTYPES, Arg, Graph, Node, Ref, Symbol
from mkevolve.errors import CaptureError

Literal: TypeAlias = "bool | int | float | str | tuple[Literal, ...] | None"
Result: TypeAlias = "torch.Tensor | Literal"

# Bit patterns and random streams depend on the dtype, so the oracle computes these in the captured one.
_KEPT_DTYPE = frozenset(
    f"aten.{op}"
    for op in (
        "view.dtype",
        "bernoulli.default",
        "bernoulli.p",
        "dropout.default",
        "native_dropout.default",
        "rand.default",
        "rand_like.default",
        "randn.default",
        "randn_like.default",
    )
)


@cache
def resolve_op(name: str) -> torch._ops.OpOverload:
    """Find the overload `namespace.op.overload`; raises CaptureError where this torch has none."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        raise CaptureError(f"torch {torch.__version__} has no operator {name}") from None
    assert isinstance(found, torch._ops.OpOverload)
    return found


def run_node(
    node: Node, env: Mapping[str, torch.Tensor], device: torch.device | None = None
) -> tuple[torch.Tensor, ...]:
    """Run one node on the tensors named in `env` and return its tensors in the order of `node.outputs`.

    `device` is where tensors are created; None means that of a tensor in `env`.
    """
    where = device or _device(env)
    args = [_argument(a, env, where) for a in node.args]
    kwargs = {k: _argument(v, env, where) for k, v in node.kwargs}
    return _tensors(resolve_op(node.op)(*args, **kwargs))


def run_graph(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> tuple[Result, ...]:
    """Run a graph and return its outputs: tensors, or the literals that the graph holds.

    `inputs` maps the name of every input of the graph to a tensor; its shape may differ from the captured
    one where the graph's arguments allow it. Values are dropped after their last use. An output may be an
    input itself or a view of one, as in eager.
    """
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in node.reads}
    kept = {o.name for o in graph.outputs if isinstance(o, Ref)}
    with _plain_torch():
        env = _inputs(graph, inputs)
        device = _device(env)
        for i, node in enumerate(graph.nodes):
            _store(node, run_node(node, env, device), env)
            for name in {*node.reads, *(v.name for v in node.outputs)}:
                if last_use.get(name, i) <= i and name not in kept:
                    env.pop(name, None)
    return tuple(_output(o, env) for o in graph.outputs)


def evaluate(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Run a graph and return every named tensor of it, inputs included."""
    with _plain_torch():
        env = _inputs(graph, inputs)
        device = _device(env)
        for node in graph.nodes:
            _store(node, run_node(node, env, device), env)
    return env


def run_graph_fp64(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> tuple[Result, ...]:
    """Run a graph in float64, as an oracle: every floating-point tensor and every cast is float64.

    Integers and booleans stay as they are, so a branch on a rounded float (argmax, a comparison) can differ
    from the working precision. Random ops draw in the captured dtype, to follow the same random stream.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # for what integers become when divided, and for literals
    try:
        with _plain_torch():
            env = {k: _widened(t) for k, t in _inputs(graph, inputs).items()}
            device = _device(env)
            specs = {name: v.spec.dtype for name, v in graph.values().items()}
            for node in graph.nodes:
                _store(node, _run_node_fp64(node, env, specs, device), env)
    finally:
        torch.set_default_dtype(default)
    return tuple(_output(o, env) for o in graph.outputs)


def _run_node_fp64(
    node: Node, env: Mapping[str, torch.Tensor], specs: Mapping[str, str], device: torch.device
) -> tuple[torch.Tensor, ...]:
    if node.op in _KEPT_DTYPE:
        narrow = {name: env[name].to(_dtype(specs[name])) for name in node.reads}
        return tuple(_widened(t) for t in run_node(node, narrow, device))
    args = tuple(_widened_arg(a) for a in node.args)
    if node.op == "aten._softmax.default" or node.op == "aten._log_softmax.default":
        args = (*args[:2], False)  # half_to_float is refused for float64
    wide = Node(node.name, node.op, args, tuple((k, _widened_arg(v)) for k, v in node.kwargs), node.outputs)
    return tuple(_widened(t) for t in run_node(wide, env, device))


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _widened_arg(arg: Arg) -> Arg:
    if isinstance(arg, tuple):
        return tuple(_widened_arg(a) for a in arg)
    if isinstance(arg, Symbol) and arg.kind == "dtype" and arg.name in FLOAT_DTYPES:
        return Symbol("dtype", "float64")
    return arg


def _inputs(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    missing = [i.name for i in graph.inputs if i.name not in inputs]
    if missing:
        raise ValueError(f"no tensor for graph inputs {', '.join(missing)}")
    return {i.name: inputs[i.name] for i in graph.inputs}


def _store(node: Node, results: tuple[torch.Tensor, ...], env: MutableMapping[str, torch.Tensor]) -> None:
    if len(results) != len(node.outputs):
        raise ValueError(f"{node.name}: {node.op} returned {len(results)} tensors, not {len(node.outputs)}")
    env.update((v.name, t) for v, t in zip(node.outputs, results, strict=True))


def _output(output: Arg, env: Mapping[str, torch.Tensor]) -> Result:
    if isinstance(output, Ref):
        return env[output.name]
    if isinstance(output, Symbol):
        raise ValueError(f"a graph cannot return the {output.kind} {output.name}")
    return output  # type: ignore[return-value]  # a captured literal holds no Ref


def _tensors(result: object) -> tuple[torch.Tensor, ...]:
    if isinstance(result, torch.Tensor):
        return (result,)
    if isinstance(result, tuple | list):
        return tuple(t for t in result if isinstance(t, torch.Tensor))
    return ()


def _argument(arg: Arg, env: Mapping[str, torch.Tensor], device: torch.device) -> object:
    match arg:
        case Ref(name):
            return env[name]
        case Symbol("device", _):
            return device
        case Symbol("dtype" | "layout" | "memory_format", name):
            return _dtype(name)
        case tuple():
            return [_argument(a, env, device) for a in arg]
        case _:
            return arg


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)  # layouts and memory formats are attributes of torch too
    return found


def _device(env: Mapping[str, torch.Tensor]) -> torch.device:
    return next((t.device for t in env.values()), torch.device("cpu"))


@contextmanager
def _plain_torch() -> Iterator[None]:
    with (
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield
