"""Small subgraphs with what reached them, made by running their ops."""

from collections.abc import Callable, Mapping

import torch

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.reference import run_node
from mkevolve.verify.observe import Observation, observation

Ops = tuple[tuple[str, tuple[Arg, ...]], ...]


def spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride()))


def graph(
    activations: tuple[torch.Tensor, ...], params: tuple[torch.Tensor, ...], ops: Ops, outputs: int = 1
) -> Graph:
    """Ops name their inputs `x0`, `p0`, `n0`, ...; the last `outputs` ops are returned."""
    env = {f"x{i}": t for i, t in enumerate(activations)} | {f"p{i}": t for i, t in enumerate(params)}
    kinds = [InputKind.ACTIVATION] * len(activations) + [InputKind.PARAMETER] * len(params)
    inputs = tuple(
        Input(Value(n, spec(t)), k, n if k is InputKind.PARAMETER else None)
        for (n, t), k in zip(env.items(), kinds, strict=True)
    )
    nodes = []
    for at, (op, args) in enumerate(ops):
        blank = Node(f"n{at}", op, args, (), ())
        results = run_node(blank, env)
        names = [f"n{at}"] if len(results) == 1 else [f"n{at}.{i}" for i in range(len(results))]
        env.update(zip(names, results, strict=True))
        nodes.append(Node(f"n{at}", op, args, (), tuple(Value(n, spec(env[n])) for n in names)))
    returned = tuple(Ref(n.outputs[0].name) for n in nodes[-outputs:])
    return Graph(inputs, tuple(nodes), returned)


Subject = tuple[Subgraph, Observation]


def subject(
    name: str,
    variants: Mapping[str, tuple[torch.Tensor, ...]],
    params: tuple[torch.Tensor, ...],
    ops: Callable[[tuple[torch.Tensor, ...]], Ops] | Ops,
    outputs: int = 1,
) -> Subject:
    """A subgraph whose first variant is the target; the others are what was captured."""
    graphs = tuple(
        (v, graph(a, params, ops(a) if callable(ops) else ops, outputs)) for v, a in variants.items()
    )
    seen = tuple((v, a) for v, a in variants.items() if v != "target")
    found = Subgraph(f"sg_{name}", f"fam_{name}", graphs, name)
    return found, observation(found.id, seen, params)


def _r(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape) * scale).to(dtype)


def _rows(sizes: Mapping[str, tuple[int, int]], dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, ...]]:
    return {v: (_r(*s, dtype=dtype),) for v, s in sizes.items()}


SIZES = {"target": (64, 96), "check_0": (5, 37), "check_1": (1, 70)}


def softmax(dtype: torch.dtype = torch.float32) -> Subject:
    return subject("softmax", _rows(SIZES, dtype), (), (("aten.softmax.int", (Ref("x0"), -1)),))


def gelu(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    ops: Ops = (("aten.add.Tensor", (Ref("x0"), Ref("p0"))), ("aten.gelu.default", (Ref("n0"),)))
    return subject("add_gelu", _rows(sizes, dtype), (_r(48, dtype=dtype),), ops)


def rms_norm(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    ops: Ops = (("aten.rms_norm.default", (Ref("x0"), (48,), Ref("p0"), 1e-6)),)
    return subject("rms_norm", _rows(sizes, dtype), (torch.ones(48, dtype=dtype),), ops)


def layer_norm(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    ops: Ops = (("aten.layer_norm.default", (Ref("x0"), (48,), Ref("p0"), Ref("p1"), 1e-5)),)
    params = (torch.ones(48, dtype=dtype), torch.zeros(48, dtype=dtype))
    return subject("layer_norm", _rows(sizes, dtype), params, ops)


def linear(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (100, 40), "check_0": (5, 40), "check_1": (1, 40)}
    params = (_r(24, 40, dtype=dtype, scale=0.15), _r(24, dtype=dtype))

    def ops(a: tuple[torch.Tensor, ...]) -> Ops:
        del a
        return (
            ("aten.linear.default", (Ref("x0"), Ref("p0"), Ref("p1"))),
            ("aten.gelu.default", (Ref("n0"),)),
        )

    found, seen = subject("linear_gelu", _rows(sizes, dtype), params, ops)
    tanh = tuple((v, _with_tanh(g)) for v, g in found.variants)
    return Subgraph(found.id, found.family, tanh, found.ops), seen


def _with_tanh(g: Graph) -> Graph:
    gelu_node = g.nodes[-1]
    node = Node(gelu_node.name, gelu_node.op, gelu_node.args, (("approximate", "tanh"),), gelu_node.outputs)
    return Graph(g.inputs, (*g.nodes[:-1], node), g.outputs)


def conv(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 32, 12, 10), "check_0": (1, 32, 5, 7), "check_1": (2, 32, 3, 5)}
    images = {v: (_r(*s, dtype=dtype).to(memory_format=torch.channels_last),) for v, s in sizes.items()}
    params = (
        _r(32, 32, 3, 3, dtype=dtype, scale=0.06),
        torch.ones(32, dtype=dtype),
        torch.zeros(32, dtype=dtype),
        torch.zeros(32, dtype=dtype),
        torch.ones(32, dtype=dtype),
    )
    norm = (Ref("n0"), Ref("p1"), Ref("p2"), Ref("p3"), Ref("p4"), False, 0.1, 1e-5, False)
    ops: Ops = (
        ("aten.conv2d.default", (Ref("x0"), Ref("p0"), None, (1, 1), (1, 1))),
        ("aten.batch_norm.default", norm),
        ("aten.relu.default", (Ref("n1"),)),
    )
    return subject("conv", images, params, ops)


def depthwise(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 24, 12, 10), "check_0": (1, 24, 5, 7), "check_1": (2, 24, 3, 5)}
    images = {v: (_r(*s, dtype=dtype).to(memory_format=torch.channels_last),) for v, s in sizes.items()}
    ops: Ops = (
        ("aten.conv2d.default", (Ref("x0"), Ref("p0"), None, (1, 1), (1, 1), (1, 1), 24)),
        ("aten.silu.default", (Ref("n0"),)),
    )
    return subject("depthwise", images, (_r(24, 1, 3, 3, dtype=dtype),), ops)


def attention(dtype: torch.dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 2, 70, 64), "check_0": (1, 2, 37, 64), "check_1": (2, 1, 5, 64)}
    heads = {v: tuple(_r(*s, dtype=dtype) for _ in range(3)) for v, s in sizes.items()}
    ops: Ops = (("aten.scaled_dot_product_attention.default", (Ref("x0"), Ref("x1"), Ref("x2"))),)
    return subject("attention", heads, (), ops)


def positive_relu(dtype: torch.dtype = torch.float32) -> Subject:
    """A ReLU of what is never negative in the model."""
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    variants = {v: (torch.rand(s).to(dtype),) for v, s in sizes.items()}
    return subject("positive_relu", variants, (), (("aten.relu.default", (Ref("x0"),)),))


def small_term(dtype: torch.dtype = torch.float32) -> Subject:
    """x0 + 1e-7 * x1, of values between 0 and 1."""
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    variants = {v: (torch.rand(s).to(dtype), torch.rand(s).to(dtype)) for v, s in sizes.items()}
    ops: Ops = (("aten.mul.Tensor", (Ref("x1"), 1e-7)), ("aten.add.Tensor", (Ref("x0"), Ref("n0"))))
    return subject("small_term", variants, (), ops)


def always_kept(dtype: torch.dtype = torch.float32) -> Subject:
    """Dropout by a mask that was true everywhere in the model."""
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: (_r(n, dtype=dtype), torch.ones(n, dtype=torch.bool)) for v, n in sizes.items()}
    ops: Ops = (("aten.mul.Tensor", (Ref("x0"), Ref("x1"))), ("aten.mul.Tensor", (Ref("n0"), 1.25)))
    return subject("always_kept", variants, (), ops)


SUBJECTS: dict[str, Callable[..., Subject]] = {
    "softmax": softmax,
    "add_gelu": gelu,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "linear_gelu": linear,
    "conv": conv,
    "depthwise": depthwise,
    "attention": attention,
    "positive_relu": positive_relu,
    "small_term": small_term,
    "always_kept": always_kept,
}
