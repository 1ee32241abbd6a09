"""The launch plan of real and of made-up candidates, for two chips, with no device."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from chip_specs import H200, MI300X

from mkevolve.data.candidate import Configuration
from mkevolve.data.chip import Chip
from mkevolve.data.graph import TensorSpec
from mkevolve.data.plan import LaunchPlan, TensorArg
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CompileJob, CompileResult
from mkevolve.measure.chips import load_chip

pytestmark = pytest.mark.interp
CALIBRATION = Path(__file__).parent.parent / "calibration"


def spec(*shape: int, dtype: str = "float16") -> TensorSpec:
    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorSpec(shape, dtype, stride)


def nhwc(n: int, c: int, h: int, w: int, dtype: str = "float16") -> TensorSpec:
    return TensorSpec((n, c, h, w), dtype, (c * h * w, 1, c * w, c))


# kernel: activations, params, grid, buffers by name
CASES = {
    "conv_nhwc": ([nhwc(10, 64, 56, 56)], [spec(64, 64, 3, 3)] + [spec(64)] * 4, (245, 1, 1), "x0 q0 q1 t0"),
    "matmul_gelu": ([spec(512, 256)], [spec(384, 256), spec(384)], (12, 1, 1), "x0 q0 q1 t0"),
    "softmax_row": ([spec(33, 512)], [], (33, 1, 1), "x0 t0"),
    "softmax_three_pass": ([spec(33, 512)], [], (33, 1, 1), "x0 t0"),
    "rms_norm": (
        [spec(128, 1024, dtype="bfloat16")],
        [spec(1024, dtype="bfloat16")],
        (128, 1, 1),
        "x0 q0 t0",
    ),
    "add_gelu": ([spec(128, 1000)], [spec(1000)], (125, 1, 1), "x0 q0 t0"),
    "add_gelu_columns": ([spec(600, 100)], [spec(100)], (3, 100, 1), "x0 q0 t0"),
    "depthwise_nhwc": ([nhwc(2, 96, 28, 28)], [spec(96, 1, 3, 3)], (98, 2, 1), "x0 q0 t0"),
    "attention": ([spec(2, 8, 512, 64)] * 3, [], (4, 16, 1), "x0 x1 x2 t0"),
}


def source(kernel: str) -> str:
    return (CALIBRATION / "kernels" / f"{kernel}.py").read_text()


def default(text: str) -> Configuration:
    """First value of each tunable, read from the source without importing it."""
    start = text.index("TUNABLES = ") + len("TUNABLES = ")
    table = eval(text[start : text.index("\n", start)])
    return Configuration(tuple((k, v[0]) for k, v in table.items()))


def compiled(
    backend,
    text: str,
    activations: Sequence[TensorSpec],
    params: Sequence[TensorSpec] = (),
    chip: Chip = H200,
    configuration: Configuration | None = None,
) -> CompileResult:
    settings = configuration or Configuration()
    return backend.compile(
        CompileJob(text, settings, (("target", tuple(activations), tuple(params)),), chip, deadline=60)
    )


def plan(
    backend, text: str, activations: Sequence[TensorSpec], params=(), chip=H200, configuration=None
) -> LaunchPlan:
    result = compiled(backend, text, activations, params, chip, configuration)
    assert result.status is Status.PASSED, result.message
    return result.plans[0]


@pytest.mark.parametrize("kernel", CASES)
def test_plan_of_a_measured_kernel(backend, kernel):
    activations, params, grid, names = CASES[kernel]
    found = plan(backend, source(kernel), activations, params, configuration=default(source(kernel)))
    assert [launch.grid for launch in found.launches] == [grid]
    assert [b.name for b in found.buffers] == names.split()
    assert all(b.fill is None for b in found.buffers)
    launch = found.launches[0]
    pointers = [a.buffer for a in launch.args if isinstance(a, TensorArg)]
    assert sorted(pointers) == sorted(names.split())
    assert len(launch.args) == len(launch.signature)
    assert all(kind.endswith(":16") for name, kind in launch.signature if kind.startswith("*"))
    assert [o.buffer for o in found.outputs] == ["t0"]
    assert 8 <= launch.resources.registers <= 255
    assert bool(launch.dots) == (kernel in ("conv_nhwc", "matmul_gelu", "attention"))


CHIPS = sorted(p.stem for p in (Path(__file__).parents[2] / "conf" / "chip").glob("*.yaml"))


@pytest.mark.parametrize("name", CHIPS)
def test_a_plan_for_every_chip_that_is_described(backend, name):
    activations, params, *_ = CASES["softmax_row"]
    chip = load_chip(name)
    found = plan(backend, source("softmax_row"), activations, params, chip, default(source("softmax_row")))
    launch = found.launches[0]
    assert found.chip == name
    assert 4 <= launch.resources.registers <= 255
    assert launch.resources.spills == 0
    kinds = {kind for kind, _ in launch.instructions}
    assert any(k.startswith("ld.global" if chip.backend == "cuda" else ("global_", "buffer_")) for k in kinds)


def test_output_keeps_the_strides_of_the_view_that_run_returns(backend):
    activations, params, *_ = CASES["conv_nhwc"]
    text = source("conv_nhwc")
    found = plan(backend, text, activations, params, configuration=default(text))
    assert found.outputs[0].spec == nhwc(10, 64, 56, 56)
    assert found.buffers[-1].spec == spec(10, 56, 56, 64)


def test_dots_and_instructions_name_tensor_cores(backend):
    activations, params, *_ = CASES["conv_nhwc"]
    text = source("conv_nhwc")
    half = plan(backend, text, activations, params, configuration=default(text)).launches[0]
    assert [(d.operand, d.accumulator, d.precision) for d in half.dots] == [("float16", "float32", "native")]
    assert "tl.dot" in text.splitlines()[(half.dots[0].line or 0) - 1]
    assert any(kind.startswith("wgmma") for kind, _ in half.instructions)
    full = [replace(s, dtype="float32") for s in (*activations, *params)]
    small = Configuration((("BLOCK_M", 64), ("BLOCK_K", 32), ("num_warps", 4), ("num_stages", 2)))
    dots = plan(backend, text, full[:1], full[1:], configuration=small).launches[0].dots
    assert {(d.operand, d.precision) for d in dots} == {("float32", "tf32")}


@pytest.mark.parametrize("kernel", ["conv_nhwc", "softmax_row", "attention"])
def test_amd_plan_has_resources_too(backend, kernel):
    activations, params, grid, _ = CASES[kernel]
    text = source(kernel)
    launch = plan(backend, text, activations, params, MI300X, default(text)).launches[0]
    assert launch.grid == grid
    assert 0 < launch.resources.registers <= 512
    kinds = " ".join(kind for kind, _ in launch.instructions)
    assert "buffer_load" in kinds or "global_load" in kinds
    assert ("v_mfma" in kinds) == (kernel != "softmax_row")


SPLIT_K = """
import torch, triton, triton.language as tl

@triton.jit
def part(x, w, o, M, K, SPLIT: tl.constexpr, B: tl.constexpr):
    s, m, k = tl.program_id(0), tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k0 in range(s * B, K, SPLIT * B):
        a = tl.load(x + m[:, None] * K + (k0 + k)[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(a, tl.load(w + (k0 + k)[:, None] * B + m[None, :]), acc, input_precision="tf32x3")
    tl.store(o + s * M * B + m[:, None] * B + m[None, :], acc, mask=m[:, None] < M)

@triton.jit
def total(p, o, n, scale, SPLIT: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for s in range(SPLIT):
        acc += tl.load(p + s * n + i, mask=i < n, other=0.0)
    tl.store(o + i, acc * scale, mask=i < n)

def run(x, w):
    (m, k), b = x.shape, w.shape[1]
    parts = x.new_zeros((2, m, b), dtype=torch.float32)
    out = torch.full_like(parts[0], 3.5)
    part[(2,)](x, w, parts, m, k, SPLIT=2, B=32)
    total[lambda meta: (triton.cdiv(m * b, meta["B"]),)](parts.flatten()[1:], out, m * b, 0.5, SPLIT=2, B=64)
    return out.t(), parts[1]
"""


def test_several_launches_fills_views_and_offsets(backend):
    found = plan(backend, SPLIT_K, [spec(20, 128, dtype="float32")], [spec(128, 32, dtype="float32")])
    assert [(b.name, b.fill) for b in found.buffers] == [("x0", None), ("q0", None), ("t0", 0.0), ("t1", 3.5)]
    first, second = found.launches
    assert (first.kernel, first.grid, second.kernel, second.grid) == ("part", (2, 1, 1), "total", (10, 1, 1))
    assert first.args == (
        TensorArg("x0", 0, "float32"),
        TensorArg("q0", 0, "float32"),
        TensorArg("t0", 0, "float32"),
        20,
        128,
    )
    assert dict(first.signature)["M"] == "i32"
    assert dict(first.signature)["K"] == "i32:16"
    assert {d.precision for d in first.dots} == {"tf32x3"}
    assert second.args == (TensorArg("t0", 1, "float32"), TensorArg("t1", 0, "float32"), 640, 0.5)
    assert dict(second.signature)["p"] == "*fp32"  # four bytes into the buffer: not divisible by 16
    assert dict(second.signature)["scale"] == "fp32"
    assert [(o.buffer, o.offset, o.spec.stride) for o in found.outputs] == [
        ("t1", 0, (1, 32)),
        ("t0", 640, (32, 1)),
    ]


ONE = """
import torch, triton, triton.language as tl

@triton.jit
def copy(x, o, n, one, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * one, mask=i < n)

def run(x):
    BODY
"""


COPY_TIMES = """out = torch.empty_like(x)
copy[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), {}, B=64)
return out"""


def one(body: str) -> str:
    return ONE.replace("BODY", body.replace("\n", "\n    "))


def test_empty_grid_launches_nothing_and_one_is_a_constant(backend):
    text = one(COPY_TIMES.format(1))
    empty = plan(backend, text, [spec(0, 7)])
    assert empty.launches == ()
    assert [b.name for b in empty.buffers] == ["x0", "t0"]
    launch = plan(backend, text, [spec(3, 7)]).launches[0]
    assert [name for name, _ in launch.signature] == ["x", "o", "n"]
    assert dict(launch.constants) == {"one": "1", "B": "64"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("return x + 1", Status.STATIC_ERROR, "aten.add.Tensor"),
        ("out = x.new_empty(x.shape)\nout.copy_(x)\nreturn out", Status.STATIC_ERROR, "aten.copy_.default"),
        ("return torch.empty(x.shape)", Status.STATIC_ERROR, "cpu"),
        ("return x.t().contiguous()", Status.STATIC_ERROR, "aten.clone.default"),
        ("return None", Status.WRONG_OUTPUT, "NoneType"),
        ("return x.no_such_name", Status.RUNTIME_ERROR, "line 10: AttributeError"),
        ("if x.sum() > 0: pass\nreturn x", Status.STATIC_ERROR, "aten.sum"),
        ("out = torch.empty_like(x)\ncopy[(1,)](x, out, 3, 1)\nreturn out", Status.RUNTIME_ERROR, "'B'"),
        ("o = torch.empty_like(x)\ncopy[(1,)](x, o, 3, 1, B=48)\nreturn o", Status.COMPILE_ERROR, "line 6:"),
        ("o = torch.empty_like(x)\ncopy[(1.5,)](x, o, 3, 1, B=64)\nreturn o", Status.RUNTIME_ERROR, "grid"),
        (
            "out = torch.empty_like(x)\ncopy[(1, 70000)](x, out, 3, 1, B=64)\nreturn out",
            Status.RESOURCE_ERROR,
            "grid y 70000 > 65535",
        ),
    ],
)  # fmt: skip
def test_broken_rules_are_named(backend, body, status, words):
    result = compiled(backend, one(body), [spec(4, 8)])
    assert result.status is status, result.message
    assert words in result.message
    assert result.plans == ()


def test_error_inside_a_function_that_the_kernel_calls_has_its_line(backend):
    text = SPLIT_K.replace("def total", "def inner(a):\n    return a @ a.no_such\n\n@triton.jit\ndef total")
    text = text.replace("acc * scale", "inner(acc) * scale")
    result = compiled(backend, text, [spec(20, 128, dtype="float32")], [spec(128, 32, dtype="float32")])
    assert result.status is Status.COMPILE_ERROR
    line = int(result.message.removeprefix("line ").split(":")[0])
    assert "no_such" in text.splitlines()[line - 1], result.message


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def run(x:\n", Status.STATIC_ERROR),
        ("x = 1\n", Status.STATIC_ERROR),
        ("import no_such_module\n", Status.RUNTIME_ERROR),
        ("def prepare():\n    return 3\ndef run(x):\n    return x\n", Status.STATIC_ERROR),
        ("import sys\ndef run(x):\n    sys.exit(0)\n", Status.RUNTIME_ERROR),
    ],
)
def test_files_that_are_no_candidates(backend, text, status):
    assert compiled(backend, text, [spec(4)]).status is status


def test_more_threads_than_a_program_may_have(backend):
    text = one(COPY_TIMES.format(2).replace("B=64", "B=4096, num_warps=64"))
    result = compiled(backend, text, [spec(4, 8)])
    assert result.status is Status.RESOURCE_ERROR, result.message
    assert "threads 2048 > 1024" in result.message


def test_device_side_descriptors_are_refused(backend):
    text = one(COPY_TIMES.format(2)).replace(
        "    tl.store(o + i,",
        "    d = tl.make_tensor_descriptor(x, [n], [1], [B])\n    tl.store(o + i, d.load([0]) +",
    )
    result = compiled(backend, text, [spec(64, 8)])
    assert result.status is Status.STATIC_ERROR, result.message
    line = text[: text.index("make_tensor_descriptor")].count("\n") + 1
    assert result.message.startswith(f"line {line}: tensor descriptors"), result.message


def test_what_the_assembler_refuses_is_named(backend):
    text = one(COPY_TIMES.format(2))
    store = '* one, mask=i < n, eviction_policy="evict_first", cache_modifier=".cs"'
    result = compiled(backend, text.replace("* one, mask=i < n", store), [spec(64, 8)])
    assert result.status is Status.COMPILE_ERROR, result.message
    assert "'.cs'" in result.message


def test_a_compile_job_has_a_deadline_and_may_crash(backend):
    hang = CompileJob(one("while True: pass"), Configuration(), (("t", (spec(4),), ()),), H200, 0.7)
    result = backend.compile(hang)
    assert (result.status, result.message) == (Status.TIMEOUT, "not done after 0.7 s of computing")
    result = compiled(backend, one("import os\nos.kill(os.getpid(), 11)"), [spec(4)])
    assert result.status is Status.RUNTIME_ERROR
    assert "SIGSEGV" in result.message


def test_autotune_with_several_configurations_is_refused(backend):
    text = one("out = torch.empty_like(x)\ncopy[(1,)](x, out, 3, 1)\nreturn out").replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'B': b}) for b in (32, 64)], key=['n'])\n@triton.jit",
    )
    result = compiled(backend, text, [spec(4, 8)])
    assert result.status is Status.STATIC_ERROR
    assert "TUNABLES" in result.message


def test_prepare_runs_for_real_and_slices_are_not_aligned(backend):
    text = one("return x").replace("def run(x):\n    return x", '''
def prepare(w):
    assert w.var() >= 0
    return w.flatten()[1:], torch.arange(int(w.shape[0]))

def run(x, w, steps):
    out = torch.empty_like(x)
    copy[(1,)](w, out, steps.numel(), 2, B=64)
    return out
''')  # fmt: skip
    found = plan(backend, text, [spec(4, 8)], [spec(4, 8)])
    assert [b.spec for b in found.buffers[1:3]] == [spec(31), spec(4, dtype="int64")]
    assert dict(found.launches[0].signature)["x"] == "*fp16"


def test_variants_are_recorded_in_one_job(backend):
    text = one(COPY_TIMES.format(2))
    sizes = {"target": 4096, "check_0": 100, "check_1": 7}
    job = CompileJob(text, Configuration(), tuple((k, (spec(n),), ()) for k, n in sizes.items()), H200)
    result = backend.compile(job)
    assert [p.variant for p in result.plans] == list(sizes)
    assert [p.launches[0].programs for p in result.plans] == [64, 2, 1]


def calibration_rows() -> list[dict]:
    return [json.loads(line) for line in (CALIBRATION / "h200.jsonl").read_text().splitlines()]


def specs_of(row: dict) -> tuple[list[TensorSpec], list[TensorSpec]]:
    kind, *sizes = row["case"][:-1] if row["case"][0] != "rows" else row["case"][:-2]
    dtype = next(c for c in row["case"] if c in ("float16", "float32", "bfloat16"))
    n = [int(s) for s in sizes]
    if kind == "conv":
        params = [spec(n[1], n[1], 3, 3, dtype=dtype)] + [spec(n[1], dtype=dtype)] * 4
        return [nhwc(n[0], n[1], n[2], n[2], dtype)], params
    if kind == "linear":
        return [spec(n[0], n[2], dtype=dtype)], [spec(n[1], n[2], dtype=dtype), spec(n[1], dtype=dtype)]
    if kind == "depthwise":
        return [nhwc(n[0], n[1], n[2], n[2], dtype)], [spec(n[1], 1, 3, 3, dtype=dtype)]
    if kind == "sdpa":
        return [spec(*n, 64, dtype=dtype)] * 3, []
    return [spec(*n, dtype=dtype)], [] if row["case"][-1] == "softmax" else [spec(n[1], dtype=dtype)]


def outcome(backend, row: dict) -> CompileResult:
    activations, params = specs_of(row)
    configuration = Configuration(tuple(row["config"].items()))
    return compiled(backend, source(row["kernel"]), activations, params, configuration=configuration)


@pytest.mark.parametrize("row", [r for r in calibration_rows() if "error" in r], ids=lambda r: r["kernel"])
def test_launch_failures_seen_on_the_chip_are_predicted(backend, row):
    result = outcome(backend, row)
    assert result.status is Status.RESOURCE_ERROR
    required = row["error"].split("Required: ")[1].split(",")[0]
    assert f"shared memory {required} > 232448" in result.message


@pytest.mark.slow
def test_launches_seen_on_the_chip_are_predicted_to_succeed(backend):
    rows = [r for r in calibration_rows() if "error" not in r]
    failed = [(r["kernel"], r["config"]) for r in rows if outcome(backend, r).status is not Status.PASSED]
    assert failed == []
