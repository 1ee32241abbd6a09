"""A single wrong character in a tutorial kernel must be refused, and the verdict must say where."""

import itertools

import pytest
import yaml
from kernel_bench import TUTORIALS, Bench
from mutants import mutants

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.verdict import Status, Tier

pytestmark = pytest.mark.interp

PATHS = {path.stem: path for path in TUTORIALS}
EQUIVALENT = {
    kernel: {entry["mutant"]: entry["reason"] for entry in entries}
    for kernel, entries in yaml.safe_load(
        (TUTORIALS[0].parent / "equivalent_mutants.yaml").read_text()
    ).items()
}
WRONG, OUTSIDE, COMPILE = Status.WRONG_VALUE, Status.OUT_OF_BOUNDS, Status.COMPILE_ERROR
TELLING = [
    # mask, operator, pointer, axis
    ("vector_add", "<-><=: mask = offs <= n", OUTSIDE),
    ("vector_add", "*->+: offs = pid + BLOCK + tl.arange(0, BLOCK)", WRONG),
    ("vector_add", "0->1: pid = tl.program_id(axis=1)", WRONG),
    ("vector_add", "y_ptr->x_ptr: y = tl.load(x_ptr + offs, mask=mask)", WRONG),
    ("fused_softmax", "<-><=: mask = offs <= cols", OUTSIDE),
    ("fused_softmax", "-->+: z = tl.exp(x + tl.max(x, axis=0))", WRONG),
    ("fused_softmax", "0->1: z = tl.exp(x - tl.max(x, axis=1))", COMPILE),
    ("masked_dropout", "-->+: out = x * keep.to(tl.float32) / (1 + p)", WRONG),
    ("masked_dropout", "n->p: mask = offs < p", WRONG),
    ("masked_dropout", "/->*: out = x * keep.to(tl.float32) * (1 - p)", WRONG),
    ("layer_norm_forward", "0.0->1.0: x = tl.load(X + cols, mask=cols < N, other=1.0).to(tl.float32)", WRONG),
    ("layer_norm_forward", "+->-: rstd = 1 / tl.sqrt(tl.sum(square, axis=0) / N - eps)", WRONG),
    ("layer_norm_forward", "0.0->1.0: d = tl.where(cols < N, x - mean, 1.0)", WRONG),
    (
        "layer_norm_forward",
        "1e-5->1e-6: layer_norm_kernel[(M,)](rows, y, weight, bias, rows.stride(0), N, 1e-6, BLOCK=BLOCK)",
        WRONG,
    ),
    ("libdevice_asin", "0.9->0.1: x = libdevice.asin(0.1 * libdevice.sin(x))", WRONG),
    ("libdevice_asin", "y_ptr->x_ptr: tl.store(x_ptr + offs, x, mask=mask)", Status.INPUT_WRITTEN),
    ("libdevice_asin", "+->-: tl.store(y_ptr - offs, x, mask=mask)", OUTSIDE),
    ("matmul", "0.01->0.02: return tl.where(x >= 0, x, 0.02 * x)", WRONG),
    ("matmul", "stride_ak->stride_am: a_ptrs += BLOCK_K * stride_am", OUTSIDE),
    ("matmul", "BLOCK_K->BLOCK_N: a_ptrs += BLOCK_N * stride_ak", WRONG),
    (
        "flash_attention",
        '>=->>: s = tl.where((offs_m[:, None] > cols[None, :]) & (cols[None, :] < length), s, float("-inf"))',
        WRONG,
    ),
    ("flash_attention", "*->+: l_i = l_i + alpha + tl.sum(p, 1)", WRONG),
    ("flash_attention", "1->2: m_ij = tl.maximum(m_i, tl.max(s, 2))", COMPILE),
    (
        "grouped_gemm",
        "-->+: one_tile(a1, b1, c1, tile + tiles0, M1, N1, K1, BLOCK_M, BLOCK_N, BLOCK_K)",
        WRONG,
    ),
    (
        "grouped_gemm",
        "b1->b0: one_tile(a1, b0, c1, tile - tiles0, M1, N1, K1, BLOCK_M, BLOCK_N, BLOCK_K)",
        WRONG,
    ),
    ("grouped_gemm", "<-><=: if tile <= tiles0:", WRONG),
    ("grouped_gemm", "+=->=: acc = tl.dot(a, b)", WRONG),
    ("persistent_matmul", "%->*: return first_m + (tile * size_m), (tile % in_group) // size_m", WRONG),
    ("persistent_matmul", "BLOCK_N->BLOCK_M: offs_n = pid_n * BLOCK_M + tl.arange(0, BLOCK_N)", WRONG),
    (
        "persistent_matmul",
        "tiles_m->tiles_k: for tile in tl.range(start, tiles_k * tiles_n, PROGRAMS):",
        WRONG,
    ),
    ("block_scaled_matmul", "1->2: offs_n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)", WRONG),
    ("block_scaled_matmul", "*->+: s = tl.load(s_ptr + k + N + offs_n, mask=n_mask, other=0.0)", WRONG),
    ("block_scaled_matmul", "<-><=: n_mask = offs_n <= N", OUTSIDE),
]
PART = 25  # mutants of one slow test
PARTS = [
    pytest.param(stem, start, id=f"{stem}-{start}")
    for stem, path in PATHS.items()
    for start in range(0, len(mutants(path.read_text())), PART)
]


@pytest.fixture(scope="module")
def bench():
    backend = InterpreterBackend()
    yield Bench(backend)
    backend.close()


def by_name(stem):
    return {m.name: m for m in mutants(PATHS[stem].read_text())}


def is_located(verdict):
    """Whether the verdict names a tensor and an index in it, or the line; a whole result where it is that.

    Where every grid became empty there is no element and no line to name.
    """
    evidence = verdict.evidence
    if verdict.status is Status.NO_EFFECT and not evidence.compared:
        return "every grid has a 0" in verdict.message
    if verdict.status is Status.WRONG_OUTPUT:
        return "result" in verdict.message
    if verdict.status is Status.WRONG_VALUE:
        return evidence.tensor.startswith("result") and evidence.index is not None and evidence.pattern
    return evidence.line is not None or (evidence.tensor and evidence.index is not None)


@pytest.mark.parametrize(
    ("stem", "name", "status"),
    TELLING,
    ids=[f"{stem}-{name.split(':')[0]}-{i}" for i, (stem, name, _) in enumerate(TELLING)],
)
def test_telling_mutant_is_refused_with_its_place(stem, name, status, bench):
    mutant = by_name(stem)[name]
    verdict = bench.find(PATHS[stem], Tier.SCREEN, mutant.source).verdict
    assert verdict.status is status, verdict
    assert is_located(verdict), verdict
    if status is Status.COMPILE_ERROR:
        assert verdict.evidence.line == mutant.line, verdict


def test_every_kernel_has_telling_mutants_and_equivalents_exist():
    assert {stem for stem, _, _ in TELLING} == set(PATHS)
    for stem, known in EQUIVALENT.items():
        assert set(known) <= set(by_name(stem)), stem
        assert all(known.values())


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "start"), PARTS)
def test_only_equivalent_mutants_survive(stem, start, bench):
    survivors, lost = set(), []
    part = list(itertools.islice(by_name(stem).values(), start, start + PART))
    for mutant in part:
        verdict = bench.find(PATHS[stem], Tier.SCREEN, mutant.source).verdict
        if verdict.passed:
            verdict = bench.find(PATHS[stem], Tier.ACCEPT, mutant.source).verdict
        if verdict.passed:
            survivors.add(mutant.name)
        elif not is_located(verdict):
            lost.append((mutant.name, verdict.status.value, verdict.message))
    assert survivors == {m.name for m in part} & set(EQUIVALENT.get(stem, {}))
    assert not lost
