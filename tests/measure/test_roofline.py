import json
import statistics
from pathlib import Path

import pytest

from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.measurement import Clock
from mkevolve.data.model import Precision
from mkevolve.measure.chips import load_chip
from mkevolve.measure.roofline import bound, estimate_eager

CALIBRATION = Path(__file__).parents[1] / "calibration"
H200 = load_chip("h200")
IEEE, TF32 = Precision.IEEE, Precision.TF32


def spec(*shape, dtype="float32"):
    stride, step = [], 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return TensorSpec(shape, dtype, tuple(stride))


def graph(inputs, nodes, outputs=None):
    """Inputs are (name, spec); nodes (name, op, args, spec); names in args are read."""
    made = [
        Node(
            name,
            f"aten.{op}.default",
            tuple(Ref(a) if isinstance(a, str) else a for a in args),
            (),
            (Value(name, s),),
        )
        for name, op, args, s in nodes
    ]
    kind = InputKind.ACTIVATION
    found = tuple(Input(Value(n, s), kind) for n, s in inputs)
    return Graph(found, tuple(made), tuple(Ref(o) for o in outputs or [nodes[-1][0]]))


def linear(m, n, k, dtype):
    return graph(
        [("x", spec(m, k, dtype=dtype)), ("w", spec(n, k, dtype=dtype)), ("b", spec(n, dtype=dtype))],
        [
            ("y", "linear", ("x", "w", "b"), spec(m, n, dtype=dtype)),
            ("z", "gelu", ("y",), spec(m, n, dtype=dtype)),
        ],
    )


def conv(n, c, h, dtype, groups=1):
    image, weight = spec(n, c, h, h, dtype=dtype), spec(c, c // groups, 3, 3, dtype=dtype)
    ends = [("z", "silu", ("y",), image)]
    if groups == 1:
        ends = [("n", "batch_norm", ("y", "g"), image), ("z", "relu", ("n",), image)]
    return graph(
        [("x", image), ("w", weight), ("g", spec(c, dtype=dtype))],
        [("y", "conv2d", ("x", "w", None, (1, 1), (1, 1), (1, 1), groups), image), *ends],
    )


def rows(m, n, dtype, what):
    x = spec(m, n, dtype=dtype)
    if what == "softmax":
        return graph([("x", x)], [("y", "softmax", ("x", -1), x)])
    inputs = [("x", x), ("w", spec(n, dtype=dtype))]
    if what == "rms":
        return graph(inputs, [("y", "rms_norm", ("x", (n,), "w"), x)])
    return graph(inputs, [("y", "add", ("x", "w"), x), ("z", "gelu", ("y",), x)])


def sdpa(b, h, t, dtype):
    s = spec(b, h, t, 64, dtype=dtype)
    inputs = [("q", s), ("k", s), ("v", s)]
    return graph(inputs, [("y", "scaled_dot_product_attention", ("q", "k", "v"), s)])


def test_memory_bound_counts_each_byte_once():
    found = bound(rows(1024, 1024, "float32", "gelu"), H200, IEEE)
    assert found.bytes == (2 * 1024 * 1024 + 1024) * 4
    assert found.us == pytest.approx(found.bytes / H200.dram_bytes * 1e6)
    assert found.limit == "memory"
    assert found.basis == "datasheet"


def test_compute_bound_follows_the_precision_policy():
    half = bound(linear(8192, 8192, 8192, "bfloat16"), H200, IEEE)
    assert half.flops == 2 * 8192**3
    assert half.us == pytest.approx(half.flops / 989.4e12 * 1e6)
    assert half.limit == "compute"
    exact = bound(linear(8192, 8192, 8192, "float32"), H200, IEEE)
    fast = bound(linear(8192, 8192, 8192, "float32"), H200, TF32)
    # Under `ieee` three TF32 products may stand for one of fp32.
    assert exact.us == pytest.approx(3 * fast.us)
    assert fast.us == pytest.approx(2 * half.us)


def test_convolution_counts_its_window():
    found = bound(conv(2, 16, 8, "float16"), H200, IEEE)
    assert found.flops == 2 * (2 * 16 * 8 * 8) * 16 * 9
    assert bound(conv(2, 16, 8, "float16", groups=16), H200, IEEE).flops == found.flops / 16


def test_attention_counts_both_products():
    assert bound(sdpa(2, 3, 128, "float16"), H200, IEEE).flops == 2 * 2 * 2 * 3 * 128 * 128 * 64


def test_einsum_counts_every_index_once():
    x, w = spec(2, 3, 5), spec(2, 5, 7)
    inputs = (
        Input(Value("x", x), InputKind.ACTIVATION),
        Input(Value("w", w), InputKind.ACTIVATION),
    )
    node = Node(
        "y", "aten.einsum.default", ("bij,bjk->bik", (Ref("x"), Ref("w"))), (), (Value("y", spec(2, 3, 7)),)
    )
    assert bound(Graph(inputs, (node,), (Ref("y"),)), H200, IEEE).flops == 2 * 2 * 3 * 5 * 7


def test_an_embedding_reads_only_the_rows_it_returns():
    table = graph(
        [("w", spec(50000, 64)), ("i", spec(4, 8, dtype="int64"))],
        [("y", "embedding", ("w", "i"), spec(4, 8, 64))],
    )
    assert bound(table, H200, IEEE).bytes == 2 * 4 * 8 * 64 * 4 + 4 * 8 * 8


def test_unused_inputs_and_views_cost_nothing():
    x = spec(64, 64)
    plain = graph([("x", x)], [("y", "relu", ("x",), x)])
    viewed = graph(
        [("x", x), ("unused", spec(4096, 4096))],
        [("v", "view", ("x", (4096,)), spec(4096)), ("y", "relu", ("v",), spec(4096))],
    )
    assert bound(viewed, H200, IEEE).us == bound(plain, H200, IEEE).us
    assert estimate_eager(viewed, H200, IEEE).us == pytest.approx(estimate_eager(plain, H200, IEEE).us)


def test_eager_pays_for_every_op_and_never_beats_the_bound():
    one = rows(4096, 4096, "float16", "softmax")
    two = rows(4096, 4096, "float16", "gelu")
    for g in (one, two, linear(512, 512, 512, "float32"), conv(4, 64, 56, "float32")):
        eager = estimate_eager(g, H200, IEEE)
        assert eager.clock is Clock.MODEL
        assert eager.low < eager.us < eager.high
        assert eager.us > bound(g, H200, IEEE).us
    launches = {g: dict(estimate_eager(g, H200, IEEE).terms)["launches"] for g in (one, two)}
    assert launches[two] == 2 * launches[one]


def calibrated(name):
    seen = {}
    for line in (CALIBRATION / name).read_text().splitlines():
        row = json.loads(line)
        seen[tuple(row["case"])] = row["eager_us"]
    for (kind, *sizes), us in seen.items():
        words = [int(s) if s.isdigit() else s for s in sizes]
        if kind == "depthwise":
            yield conv(*words, groups=words[1]), us
        else:
            yield {"conv": conv, "linear": linear, "rows": rows, "sdpa": sdpa}[kind](*words), us


def test_eager_is_within_a_factor_of_two_of_what_was_measured():
    # Convolutions in fp32 ran in TF32 there, as torch allows by default.
    factors = []
    for g, us in calibrated("h200.jsonl"):
        found = estimate_eager(g, H200, TF32)
        factors.append(max(found.us / us, us / found.us))
    assert statistics.median(factors) < 1.4
    assert sum(f <= 2 for f in factors) >= 0.85 * len(factors)


def test_eager_products_in_ieee_are_close_to_what_was_measured():
    # torch's default: matrix products in ieee fp32.
    products = [(g, us) for g, us in calibrated("h200_fp32.jsonl") if "linear" in g.nodes[0].op]
    assert len(products) == 2
    for g, us in products:
        assert estimate_eager(g, H200, IEEE).us == pytest.approx(us, rel=0.3)
