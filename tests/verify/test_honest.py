"""Honest kernels in many styles must be accepted: a refusal here is a fault of the verifier."""

import pytest
from kernel_bench import CALIBRATION, HONEST, TUTORIALS, Bench

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.verdict import Status, Tier
from mkevolve.search.params import default_configuration, space_of

pytestmark = pytest.mark.interp

EVERY = [*TUTORIALS, *HONEST, *CALIBRATION]
HEAVY = {  # the accept tier takes a second or more
    "attention_two_launches",
    "batched_three_axes",
    "block_scaled_matmul",
    "conv_half_nhwc",
    "flash_attention",
    "flash_block_pointers",
    "grouped_gemm",
    "layer_norm_welford",
    "linear_split_k",
    "matmul_shifted_tiles",
    "max_pool_nhwc",
    "persistent_matmul",
    "scaled_int8_dequantize",
    "sort_rows",
    *(path.stem for path in CALIBRATION),
}


@pytest.fixture(scope="module")
def bench():
    backend = InterpreterBackend()
    yield Bench(backend)
    backend.close()


def accepted(finding):
    evidence = finding.verdict.evidence
    assert finding.verdict.status is Status.PASSED, finding.verdict
    assert evidence.compared > 0
    assert evidence.error <= evidence.allowed
    assert finding.target_plan.variant == "target"
    assert finding.traffic
    return finding


def variations(path):
    """Configurations that differ from the default in one setting."""
    source = path.read_text()
    default = dict(default_configuration(source).settings)
    for name, options in space_of(source):
        for option in options[1:]:
            yield pytest.param(
                path,
                Configuration(tuple((default | {name: option}).items())),
                id=f"{path.stem}-{name}={option}",
            )


def test_there_are_enough():
    assert len(TUTORIALS) >= 10
    assert len(HONEST) >= 20
    assert len(CALIBRATION) >= 10


@pytest.mark.parametrize("path", [p for p in EVERY if p.stem not in HEAVY], ids=lambda p: p.stem)
def test_honest_kernel_is_accepted(path, bench):
    finding = accepted(bench.find(path, Tier.ACCEPT))
    assert len(finding.plans) > 1


@pytest.mark.parametrize("path", [p for p in EVERY if p.stem in HEAVY], ids=lambda p: p.stem)
def test_honest_kernel_with_many_products_passes_the_screen(path, bench):
    accepted(bench.find(path, Tier.SCREEN))


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in EVERY if p.stem in HEAVY], ids=lambda p: p.stem)
def test_honest_kernel_with_many_products_is_accepted(path, bench):
    accepted(bench.find(path, Tier.ACCEPT))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "configuration"), [case for path in (*TUTORIALS, *HONEST) for case in variations(path)]
)
def test_honest_kernel_is_accepted_in_other_configurations(path, configuration, bench):
    accepted(bench.find(path, Tier.ACCEPT, configuration=configuration))


@pytest.mark.slow
@pytest.mark.parametrize("path", [*TUTORIALS, *HONEST], ids=lambda p: p.stem)
def test_ten_runs_agree(path, bench):
    verdicts = [bench.find(path, Tier.SCREEN).verdict for _ in range(10)]
    assert all(v == verdicts[0] for v in verdicts)
    assert verdicts[0].passed


def test_a_copy_on_the_host_is_refused_with_the_cure(bench):
    path = next(p for p in HONEST if p.stem == "strided_broadcast")
    head, sep, tail = path.read_text().partition("def run(a, b):\n")
    verdict = bench.find(path, Tier.SCREEN, head + sep + "    a = a.contiguous()\n" + tail).verdict
    assert verdict.status is Status.STATIC_ERROR
    assert "strides" in verdict.message, verdict


def test_screen_tier_runs_less(bench):
    path = TUTORIALS[0]
    screened = bench.find(path, Tier.SCREEN).verdict.evidence
    accepted_ = bench.find(path, Tier.ACCEPT)
    assert accepted_.verdict.evidence.cases > 2 * screened.cases
    assert [p.variant for p in accepted_.plans] == ["target", "check_0", "check_1"]
