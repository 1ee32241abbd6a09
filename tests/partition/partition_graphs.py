"""Graphs for tests: a sketch that works out specs by running each op, blocks, and random graphs."""

import random

import torch

from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import CapturedModel, Leaf, Variant
from mkevolve.reference import run_node


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(tuple(tensor.shape), dtype, tuple(tensor.stride()))


class Sketch:
    """Builds a graph op by op; every method returns value names."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.env: dict[str, torch.Tensor] = {}
        self._count: dict[str, int] = {}

    def input(
        self, shape: tuple[int, ...], kind: str = "activation", target: str | None = None, **options: object
    ) -> str:
        name = self._name("a" if kind == "activation" else "w")
        self.env[name] = torch.empty(shape, device="meta", **options)
        self.inputs.append(Input(Value(name, spec_of(self.env[name])), InputKind(kind), target))
        return name

    def param(self, shape: tuple[int, ...], target: str = "layer.weight") -> str:
        return self.input(shape, "parameter", target)

    def op(self, name: str, *args: object, **kwargs: Arg) -> str:
        return self.ops(name, *args, **kwargs)[0]

    def ops(self, name: str, *args: object, **kwargs: Arg) -> tuple[str, ...]:
        label = self._name(name.split(".")[0])
        op = f"aten.{name}" if "." in name else f"aten.{name}.default"
        bare = Node(label, op, tuple(self._arg(a) for a in args), tuple(kwargs.items()), ())
        results = run_node(bare, self.env, torch.device("meta"))
        names = (label,) if len(results) == 1 else tuple(f"{label}.{i}" for i in range(len(results)))
        outputs = tuple(Value(n, spec_of(t)) for n, t in zip(names, results, strict=True))
        self.nodes.append(Node(label, op, bare.args, bare.kwargs, outputs))
        self.env.update(zip(names, results, strict=True))
        return names

    def graph(self, *outputs: str) -> Graph:
        kinds = list(InputKind)
        inputs = sorted(self.inputs, key=lambda i: kinds.index(i.kind))
        return Graph(tuple(inputs), tuple(self.nodes), tuple(Ref(o) for o in outputs))

    def _name(self, stem: str) -> str:
        number = self._count[stem] = self._count.get(stem, -1) + 1
        return f"{stem}_{number}" if number else stem

    def _arg(self, arg: object) -> Arg:
        if isinstance(arg, str) and arg in self.env:
            return Ref(arg)
        if isinstance(arg, tuple | list):
            return tuple(self._arg(a) for a in arg)
        return arg  # type: ignore[return-value]


def model(*graphs: Graph) -> CapturedModel:
    names = ["target", *(f"check_{i}" for i in range(1, len(graphs)))]
    variants = tuple(
        Variant(name, graph, tuple(Leaf(i.spec) for i in graph.activations))
        for name, graph in zip(names, graphs, strict=True)
    )
    return CapturedModel("sketch", "float32", False, variants, "", "")


def conv_bn_relu(sketch: Sketch, x: str, channels: int, name: str) -> str:
    width = sketch.env[x].shape[1]
    y = sketch.op(
        "conv2d", x, sketch.param((channels, width, 3, 3), f"{name}.conv.weight"), None, (1, 1), (1, 1)
    )
    gamma, beta = (sketch.param((channels,), f"{name}.bn.{k}") for k in ("weight", "bias"))
    mean, var = (sketch.input((channels,), "buffer", f"{name}.bn.running_{k}") for k in ("mean", "var"))
    y = sketch.op("batch_norm", y, gamma, beta, mean, var, False, 0.1, 1e-5, True)
    return sketch.op("relu", y)


def random_graph(rng: random.Random, size: int) -> Graph:
    """A graph of pointwise ops, reductions, products, views and copies over (4, 6) tensors."""
    s = Sketch()
    values = [s.input((4, 6)), s.input((4, 6)), s.param((6, 6), "w.weight"), s.param((6,), "b.bias")]
    wide = values[:2]
    while len(s.nodes) < size:
        x, y = rng.choice(wide), rng.choice(wide)
        kind = rng.randrange(9)
        if kind < 3:
            wide.append(s.op(rng.choice(["add.Tensor", "mul.Tensor", "maximum"]), x, y))
        elif kind == 3:
            wide.append(s.op(rng.choice(["relu", "tanh", "sigmoid"]), x))
        elif kind == 4:
            wide.append(s.op("linear", x, values[2], values[3]))
        elif kind == 5:
            wide.append(s.op("softmax.int", x, -1))
        elif kind == 6:
            wide.append(s.op("view", s.op("view", x, (2, 12)), (4, 6)))
        elif kind == 7:
            wide.append(s.op("sub.Tensor", x, s.op("mean.dim", y, (-1,), True)))
        else:
            left, right = s.ops("split.Tensor", x, 3, -1)
            wide.append(s.op("cat", (right, left), -1))
    read = {r for n in s.nodes for r in n.reads}
    last = [v.name for n in s.nodes for v in n.outputs if v.name not in read]
    return s.graph(*last)


def tensors(graph: Graph, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for i in graph.inputs:
        flat = torch.rand(i.spec.shape, generator=generator)
        found[i.name] = torch.empty_strided(i.spec.shape, i.spec.stride).copy_(flat)
    return found
