"""The `compile` fall-back: a canonical graph as an fx module, given to `torch.compile`."""

import operator
from collections.abc import Callable

import torch
from torch import fx

from mkevolve.data.graph import Arg, Graph, Ref, Symbol
from mkevolve.reference import resolve_op


def compile_graph(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> Callable[..., object]:
    """Compile a graph for the sizes and the device of `tensors`; the compiler runs at the first call."""
    device = tensors[0].device if tensors else torch.device("cpu")
    return torch.compile(to_fx(graph, device), dynamic=False)


def to_fx(graph: Graph, device: torch.device) -> fx.GraphModule:
    """Write a graph as an fx module: its inputs by position, a tuple of its outputs."""
    made = fx.Graph()
    env: dict[str, fx.Node] = {i.name: made.placeholder(i.name) for i in graph.inputs}
    for node in graph.nodes:
        args = tuple(_argument(a, env, device) for a in node.args)
        kwargs = {k: _argument(v, env, device) for k, v in node.kwargs}
        call = made.call_function(resolve_op(node.op), args, kwargs)
        if len(node.outputs) == 1:
            env[node.outputs[0].name] = call
        else:
            for i, value in enumerate(node.outputs):
                env[value.name] = made.call_function(operator.getitem, (call, i))
    made.output(tuple(env[o.name] for o in graph.outputs if isinstance(o, Ref)))
    return fx.GraphModule(torch.nn.Module(), made)


def _argument(arg: Arg, env: dict[str, fx.Node], device: torch.device) -> fx.node.Argument:
    match arg:
        case Ref(name):
            return env[name]
        case Symbol("device", _):
            return device
        case Symbol(_, name):
            found: fx.node.Argument = getattr(torch, name)
            return found
        case tuple():
            return [_argument(a, env, device) for a in arg]
        case _:
            return arg
