"""Subgraphs of the tutorial and honest kernels, beside those of `verify_subjects.py`."""

from collections.abc import Callable

import torch
from verify_subjects import Ops, Subject, _r, _rows, subject

from mkevolve.data.graph import Ref, Symbol

Dtype = torch.dtype
X0, X1, P0, P1 = Ref("x0"), Ref("x1"), Ref("p0"), Ref("p1")
N0, N1, N2, N3 = (Ref(f"n{i}") for i in range(4))


def _line(n: int, count: int, dtype: Dtype) -> tuple[torch.Tensor, ...]:
    return tuple(_r(n, dtype=dtype) for _ in range(count))


def vector_add(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: _line(n, 2, dtype) for v, n in sizes.items()}
    return subject("vector_add", variants, (), (("aten.add.Tensor", (X0, X1)),))


def masked_scale(dtype: Dtype = torch.float32) -> Subject:
    """Dropout whose mask is given: the kept elements are scaled by 1 / (1 - 0.2)."""
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: (_r(n, dtype=dtype), torch.rand(n) < 0.8) for v, n in sizes.items()}
    ops: Ops = (("aten.mul.Tensor", (X0, X1)), ("aten.mul.Tensor", (N0, 1.25)))
    return subject("masked_scale", variants, (), ops)


def matmul_leaky(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (72, 80), "check_0": (69, 80), "check_1": (16, 80)}
    ops: Ops = (("aten.mm.default", (X0, P0)), ("aten.leaky_relu.default", (N0, 0.01)))
    return subject("matmul_leaky", _rows(sizes, dtype), (_r(80, 56, dtype=dtype, scale=0.15),), ops)


def matmul(dtype: Dtype = torch.float32) -> Subject:
    sizes = {
        "target": ((72, 72), (72, 56)),
        "check_0": ((16, 140), (140, 40)),
        "check_1": ((69, 20), (20, 33)),
    }
    variants = {v: (_r(*a, dtype=dtype), _r(*b, dtype=dtype, scale=0.15)) for v, (a, b) in sizes.items()}
    return subject("matmul", variants, (), (("aten.mm.default", (X0, X1)),))


def asin(dtype: Dtype = torch.float32) -> Subject:
    """The arc sine of something that is never outside [-1, 1]."""
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: _line(n, 1, dtype) for v, n in sizes.items()}
    ops: Ops = (
        ("aten.sin.default", (X0,)),
        ("aten.mul.Tensor", (N0, 0.9)),
        ("aten.asin.default", (N1,)),
    )
    return subject("asin", variants, (), ops)


def causal_attention(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 2, 70, 64), "check_0": (2, 2, 37, 64), "check_1": (1, 2, 20, 64)}
    heads = {v: tuple(_r(*s, dtype=dtype) for _ in range(3)) for v, s in sizes.items()}
    call = (X0, X1, Ref("x2"), None, 0.0, True)
    ops: Ops = (("aten.scaled_dot_product_attention.default", call),)
    return subject("causal_attention", heads, (), ops)


def two_products(dtype: Dtype = torch.float32) -> Subject:
    """Two products of different sizes, as grouped matrix multiplication has them."""
    sizes = {"target": (72, 40), "check_0": (90, 20), "check_1": (16, 100)}
    variants = {v: (_r(m, 72, dtype=dtype), _r(n, 30, dtype=dtype)) for v, (m, n) in sizes.items()}
    params = (_r(72, 104, dtype=dtype, scale=0.15), _r(30, 56, dtype=dtype, scale=0.15))
    ops: Ops = (("aten.mm.default", (X0, P0)), ("aten.mm.default", (X1, P1)))
    return subject("two_products", variants, params, ops, outputs=2)


def scaled_int8(dtype: Dtype = torch.float32) -> Subject:
    """x @ (int8 weight * one scale for 16 rows of a column)."""
    sizes = {"target": (130, 64), "check_0": (101, 64), "check_1": (16, 64)}
    params = (torch.randint(-127, 128, (64, 40), dtype=torch.int8), (torch.rand(4, 40) / 400).to(dtype))
    ops: Ops = (
        ("aten.to.dtype", (P0, Symbol("dtype", str(dtype).removeprefix("torch.")))),
        ("aten.view.default", (N0, (4, 16, 40))),
        ("aten.unsqueeze.default", (P1, 1)),
        ("aten.mul.Tensor", (N1, N2)),
        ("aten.view.default", (N3, (64, 40))),
        ("aten.mm.default", (X0, Ref("n4"))),
    )
    return subject("scaled_int8", _rows(sizes, dtype), params, ops)


def relu(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    return subject("relu", _rows(sizes, dtype), (), (("aten.relu.default", (X0,)),))


def add_rows(dtype: Dtype = torch.float32) -> Subject:
    """A transposed operand and one that is broadcast: strides must be passed."""
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (9, 2)}
    variants = {v: (_r(n, m, dtype=dtype).t(), _r(m, 1, dtype=dtype)) for v, (m, n) in sizes.items()}
    ops: Ops = (("aten.mul.Tensor", (X0, X1)), ("aten.contiguous.default", (N0,)))
    return subject("add_rows", variants, (), ops)


def mean_all(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (70, 48), "check_0": (5, 48), "check_1": (13, 7)}
    return subject("mean_all", _rows(sizes, dtype), (), (("aten.mean.default", (X0,)),))


def max_and_index(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (1, 70)}
    variants = _rows(sizes, dtype)
    ops: Ops = (("aten.amax.default", (X0, (-1,))), ("aten.argmax.default", (X0, -1)))
    return subject("max_and_index", variants, (), ops, 2)


def histogram(dtype: Dtype = torch.float32) -> Subject:
    """How often each of eight classes occurs: integers in, integers out."""
    del dtype
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: (torch.randint(0, 8, (n,)),) for v, n in sizes.items()}
    ops: Ops = (
        ("aten.one_hot.default", (X0, 8)),
        ("aten.sum.dim_IntList", (N0, (0,))),
    )
    return subject("histogram", variants, (), ops)


def cumsum(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (1, 70)}
    return subject("cumsum", _rows(sizes, dtype), (), (("aten.cumsum.default", (X0, -1)),))


def positive(dtype: Dtype = torch.float32) -> Subject:
    """A mask: where one tensor is at least the other."""
    sizes = {"target": 1000, "check_0": 257, "check_1": 128}
    variants = {v: _line(n, 2, dtype) for v, n in sizes.items()}
    return subject("positive", variants, (), (("aten.ge.Tensor", (X0, X1)),))


def swiglu(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 48), "check_1": (1, 48)}
    variants = {v: (_r(*s, dtype=dtype), _r(*s, dtype=dtype)) for v, s in sizes.items()}
    ops: Ops = (("aten.silu.default", (X0,)), ("aten.mul.Tensor", (N0, X1)))
    return subject("swiglu", variants, (), ops)


def rotary(dtype: Dtype = torch.float32) -> Subject:
    """Rotary embedding of (batch, heads, length, 16): halves are rotated by the given cosines and sines."""
    sizes = {"target": (2, 2, 40, 16), "check_0": (1, 2, 13, 16), "check_1": (2, 1, 1, 16)}
    variants = {}
    for v, s in sizes.items():
        angles = torch.rand(s[2], 8).mul(6.0)
        variants[v] = (_r(*s, dtype=dtype), angles.cos().to(dtype), angles.sin().to(dtype))
    low, high = Ref("n0"), Ref("n1")
    ops: Ops = (
        ("aten.slice.Tensor", (X0, 3, 0, 8)),
        ("aten.slice.Tensor", (X0, 3, 8, 16)),
        ("aten.mul.Tensor", (low, X1)),
        ("aten.mul.Tensor", (high, Ref("x2"))),
        ("aten.sub.Tensor", (N2, N3)),
        ("aten.mul.Tensor", (high, X1)),
        ("aten.mul.Tensor", (low, Ref("x2"))),
        ("aten.add.Tensor", (Ref("n5"), Ref("n6"))),
        ("aten.cat.default", ((Ref("n4"), Ref("n7")), -1)),
    )
    return subject("rotary", variants, (), ops)


def cross_entropy(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (2, 70)}
    variants = {v: (_r(m, n, dtype=dtype), torch.randint(0, 37, (m,))) for v, (m, n) in sizes.items()}
    ops: Ops = (("aten.cross_entropy_loss.default", (X0, X1, None, 0)),)
    return subject("cross_entropy", variants, (), ops)


def max_pool(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 16, 12, 10), "check_0": (1, 16, 5, 7), "check_1": (2, 16, 3, 4)}
    images = {v: (_r(*s, dtype=dtype).to(memory_format=torch.channels_last),) for v, s in sizes.items()}
    ops: Ops = (("aten.max_pool2d.default", (X0, (3, 3), (2, 2), (1, 1))),)
    return subject("max_pool", images, (), ops)


def batched(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (3, 40, 24, 36), "check_0": (2, 17, 9, 20), "check_1": (1, 16, 33, 5)}
    variants = {
        v: (_r(b, m, k, dtype=dtype), _r(b, k, n, dtype=dtype, scale=0.2))
        for v, (b, m, k, n) in sizes.items()
    }
    return subject("batched", variants, (), (("aten.bmm.default", (X0, X1)),))


def embedding(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": 100, "check_0": 33, "check_1": 1}
    variants = {v: (torch.randint(0, 20, (n,)),) for v, n in sizes.items()}
    return subject("embedding", variants, (_r(20, 24, dtype=dtype),), (("aten.embedding.default", (P0, X0)),))


def linear_bias(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (72, 40), "check_0": (37, 40), "check_1": (5, 40)}
    params = (_r(24, 40, dtype=dtype, scale=0.15), _r(24, dtype=dtype))
    return subject("linear_bias", _rows(sizes, dtype), params, (("aten.linear.default", (X0, P0, P1)),))


def transpose_add(dtype: Dtype = torch.float32) -> Subject:
    """A contiguous copy of the transpose, plus a row: an output in another order than its input."""
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (9, 2)}
    ops: Ops = (("aten.t.default", (X0,)), ("aten.add.Tensor", (N0, 1.0)), ("aten.contiguous.default", (N1,)))
    return subject("transpose_add", _rows(sizes, dtype), (), ops)


def gated_thirds(dtype: Dtype = torch.float32) -> Subject:
    """The three parts of a fused projection, (batch, length, 3, 32): a scaled one, added and multiplied."""
    sizes = {"target": (2, 20, 3, 32), "check_0": (1, 7, 3, 32), "check_1": (2, 1, 3, 32)}
    variants = {v: (_r(*s, dtype=dtype),) for v, s in sizes.items()}
    ops: Ops = (
        ("aten.unbind.int", (X0, 2)),
        ("aten.mul.Tensor", (Ref("n0.0"), 0.125)),
        ("aten.add.Tensor", (N1, Ref("n0.1"))),
        ("aten.mul.Tensor", (N2, Ref("n0.2"))),
    )
    return subject("gated_thirds", variants, (), ops)


def quantize_rows(dtype: Dtype = torch.float32) -> Subject:
    """int8 with one scale a row: two results, one of integers."""
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (2, 70)}
    ops: Ops = (
        ("aten.abs.default", (X0,)),
        ("aten.amax.default", (N0, (-1,), True)),
        ("aten.clamp.default", (N1, 1e-6)),
        ("aten.div.Tensor", (X0, N2)),
        ("aten.mul.Tensor", (N3, 127.0)),
        ("aten.round.default", (Ref("n4"),)),
        ("aten.to.dtype", (Ref("n5"), Symbol("dtype", "int8"))),
        ("aten.div.Tensor", (N2, 127.0)),
    )
    return subject("quantize_rows", _rows(sizes, dtype), (), ops, outputs=2)


def group_norm(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (2, 12, 6, 5), "check_0": (1, 12, 3, 4), "check_1": (2, 12, 1, 7)}
    variants = {v: (_r(*s, dtype=dtype),) for v, s in sizes.items()}
    params = (torch.ones(12, dtype=dtype), torch.zeros(12, dtype=dtype))
    ops: Ops = (("aten.group_norm.default", (X0, 3, P0, P1, 1e-5)),)
    return subject("group_norm", variants, params, ops)


def sort_values(dtype: Dtype = torch.float32) -> Subject:
    sizes = {"target": (20, 12), "check_0": (5, 13), "check_1": (2, 16)}
    return subject("sort_values", _rows(sizes, dtype), (), (("aten.sort.default", (X0, -1)),))


KERNEL_SUBJECTS: dict[str, Callable[..., Subject]] = {
    f.__name__: f
    for f in (
        vector_add, masked_scale, matmul_leaky, matmul, asin, causal_attention, two_products, scaled_int8,
        relu, add_rows, mean_all, max_and_index, histogram, cumsum, positive, swiglu, rotary, cross_entropy,
        max_pool, batched, embedding, linear_bias, transpose_add,
        gated_thirds, quantize_rows, group_norm, sort_values,
    )
}  # fmt: skip
