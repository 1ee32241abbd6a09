import json
import statistics
from dataclasses import replace

import fit_cost_model as calibration
import make_features
import pytest

from mkevolve.data.codec import decode
from mkevolve.data.measurement import Clock, Traffic
from mkevolve.data.plan import Buffer, LaunchPlan
from mkevolve.measure.chips import load_chip
from mkevolve.measure.cost_model import BAND, DEFAULT, estimate
from mkevolve.measure.features import features
from mkevolve.measure.occupancy import resident

H200 = load_chip("h200")
ROWS = [json.loads(line) for line in (calibration.HERE / "h200.jsonl").read_text().splitlines()]
STORED = json.loads((calibration.HERE / "features.json").read_text())


@pytest.fixture(scope="module")
def timed():
    return calibration.load()[0]


@pytest.fixture(scope="module")
def everything():
    return calibration.load_all()


def example(kernel, **config):
    """The first stored plan and traffic of a kernel whose configuration has these values."""
    for row, entry in zip(ROWS, STORED, strict=True):
        if row["kernel"] == kernel and config.items() <= row["config"].items() and entry["plan"]:
            return decode(LaunchPlan, entry["plan"]), tuple(decode(Traffic, t) for t in entry["traffic"])
    raise LookupError(kernel)


def changed(plan, **resources):
    launch = plan.launches[0]
    return replace(plan, launches=(replace(launch, resources=replace(launch.resources, **resources)),))


def test_it_ranks_what_was_measured(timed):
    found = calibration.figures(timed, [calibration.predict(r, DEFAULT) for r in timed])
    assert statistics.median(found.spearman) >= 0.7
    assert found.ordered >= 0.85
    assert statistics.median(found.factors) <= 2
    # What it reaches now; lower these only with a reason.
    assert found.ordered >= 0.97
    assert statistics.median(found.factors) <= 1.15


def test_it_ranks_every_precision_of_a_product(everything):
    fp32 = [r for r in everything if r.kernel.endswith("_fp32")]
    found = calibration.figures(fp32, [calibration.predict(r, DEFAULT) for r in fp32])
    assert len({r.config.split("PREC=")[1].split()[0] for r in fp32}) == 3
    assert statistics.median(found.spearman) >= 0.85
    assert found.ordered >= 0.9
    assert statistics.median(found.factors) <= 1.25


def test_it_ranks_kernels_that_its_constants_never_saw(everything):
    held = calibration.left_out(everything, json.loads(calibration.CONSTANTS.read_text()))
    found = calibration.figures(everything, held)
    assert statistics.median(found.spearman) >= 0.7
    assert found.ordered >= 0.85
    assert statistics.median(found.factors) <= 2
    inside = sum(f <= BAND for f in found.factors) / len(found.factors)
    assert inside >= 0.85, "the band must hold for kernels outside the calibration set"


def test_the_constants_in_the_code_are_the_fitted_ones_rounded():
    fitted = json.loads(calibration.CONSTANTS.read_text())["all"]
    for name, value in fitted.items():
        assert 0.75 < getattr(DEFAULT, name) / value < 1.35, name


def test_every_launch_failure_is_predicted_and_no_other():
    _, failed, false_alarms = calibration.load()
    assert failed
    assert all("shared memory" in (refused or "") for _, refused in failed)
    assert not false_alarms


def test_the_estimate_is_the_sum_that_the_fit_uses(timed):
    plan, traffic = example("rms_norm")
    found = estimate(plan, traffic, H200)
    row = next(r for r in timed if r.kernel == "rms_norm")
    assert found.us == pytest.approx(calibration.predict(row, DEFAULT))
    assert found.clock is Clock.MODEL
    assert found.low < found.us < found.high
    assert dict(found.terms)["dram"] > dict(found.terms)["vector"]


def test_spills_registers_and_tails_cost_time():
    plan, traffic = example("attention", BLOCK_M=128, BLOCK_N=64, num_warps=4, num_stages=3)
    before = estimate(plan, traffic, H200).us
    assert estimate(changed(plan, spills=400), traffic, H200).us > before
    assert estimate(changed(plan, shared=200_000), traffic, H200).us > before
    more = tuple(replace(t, total=t.total * 4) for t in traffic)
    assert estimate(plan, more, H200).us > 3 * before


def test_fills_are_paid_for():
    plan, traffic = example("rms_norm")
    (out,) = [b for b in plan.buffers if b.name == "t0"]
    zeroed = replace(plan, buffers=(*plan.buffers, Buffer("t1", out.spec, 0.0)))
    extra = estimate(zeroed, traffic, H200).us - estimate(plan, traffic, H200).us
    assert extra == pytest.approx(H200.launch_us + out.spec.nbytes / H200.dram_measured * 1e6)


def test_products_take_the_rate_of_their_precision():
    plan, traffic = example("conv_nhwc", BLOCK_M=128, BLOCK_K=64, num_warps=8, num_stages=2)
    launch = plan.launches[0]
    rates = {}
    for precision in ("tf32", "tf32x3", "ieee"):
        dots = tuple(replace(d, precision=precision) for d in launch.dots)
        found = features(replace(launch, dots=dots), traffic[0], {b.name: b for b in plan.buffers}, H200)
        ((rate, flops),) = found.flops
        rates[precision] = (rate, flops)
    assert rates["tf32"][0] == rates["tf32x3"][0] == "tf32"
    assert rates["tf32x3"][1] == 3 * rates["tf32"][1]
    assert rates["ieee"] == ("vector", rates["tf32"][1])


def test_memory_traffic_is_extrapolated_but_never_beyond_the_buffers():
    plan, traffic = example("matmul_gelu", BLOCK_M=128, BLOCK_N=128)
    buffers = {b.name: b for b in plan.buffers}
    found = features(plan.launches[0], traffic[0], buffers, H200)
    sizes = sum(b.spec.nbytes for b in plan.buffers)
    assert found.dram == pytest.approx(sizes, rel=0.01)
    assert found.l2 > 5 * found.dram


def test_reading_again_what_the_cache_cannot_hold_reaches_memory():
    plan, traffic = example("softmax_three_pass", BLOCK=1024)
    buffers = {b.name: b for b in plan.buffers}
    held = features(plan.launches[0], traffic[0], buffers, H200)
    small = features(plan.launches[0], traffic[0], buffers, replace(H200, l2_size=1 << 20))
    assert held.dram == pytest.approx(sum(b.spec.nbytes for b in plan.buffers))
    assert small.dram > 1.8 * held.dram


def test_occupancy_is_limited_by_the_scarcest():
    plan, _ = example("softmax_row", num_warps=8)
    few = replace(plan.launches[0].resources, registers=32, shared=0, num_warps=8)
    assert resident(few, H200) == 8
    assert resident(replace(few, registers=255), H200) == 1
    assert resident(replace(few, shared=100_000), H200) == 2
    assert resident(replace(few, num_warps=1), H200) == 32
    assert resident(replace(few, registers=64), load_chip("mi300x")) == 4


def test_traffic_must_fit_the_plan():
    plan, traffic = example("rms_norm")
    with pytest.raises(ValueError, match="1 launches"):
        estimate(plan, traffic * 2, H200)


@pytest.mark.interp
def test_stored_features_can_be_made_again():
    chosen = [0, 41, 50, 60, 79, 90]
    for number, made in zip(chosen, make_features.features([ROWS[i] for i in chosen]), strict=True):
        stored = STORED[number]
        assert made["traffic"] == stored["traffic"], ROWS[number]
        for new, old in zip(made["plan"]["launches"], stored["plan"]["launches"], strict=True):
            assert new["grid"] == old["grid"]
            assert new["resources"]["shared"] == pytest.approx(old["resources"]["shared"], rel=0.1)
            # Another compiler may allot other registers.
            assert new["resources"]["registers"] == pytest.approx(old["resources"]["registers"], rel=0.5)
