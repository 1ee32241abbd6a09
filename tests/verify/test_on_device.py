"""The verifier on a device: honest kernels pass, cheats are refused, foreign kernels are found."""

import pytest
import torch
from cheat_files import CHEATS, Trials
from kernel_bench import CALIBRATION, HONEST, TUTORIALS, Bench

from mkevolve.backends.confinement import Measure
from mkevolve.backends.cuda import CudaBackend
from mkevolve.data.gates import Gate
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Step, Tier
from mkevolve.measure.chips import load_chip
from mkevolve.verify import engine
from mkevolve.verify.engine import Verifier
from mkevolve.verify.references import References
from mkevolve.verify.static import nan_notes

pytestmark = pytest.mark.gpu

SOFTMAX = """
import torch, triton, triton.language as tl

@triton.jit
def rows(x, o, columns, B: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.program_id(0) * columns
    v = tl.load(x + row + at, mask=at < columns, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row + at, e / tl.sum(e, 0), mask=at < columns)

def run(x):
    out = torch.empty_like(x)
    rows[(x.shape[0],)](x, out, x.shape[1], B=128)
    return out
"""
COPIED_BY_TORCH = SOFTMAX.replace(
    "    rows[(x.shape[0],)](x, out,",
    "    held = torch.empty_like(x)\n    with torch._C._DisableTorchDispatch():\n        held.copy_(x)\n"
    "    rows[(x.shape[0],)](held, out,",
)
TWICE_ON_A_DEVICE = SOFTMAX.replace(
    "    return out",
    "    if x.is_cuda:\n        rows[(x.shape[0],)](x, out, x.shape[1], B=128)\n    return out",
)


@pytest.fixture(scope="module")
def device():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs the chip of the tests")
    made = CudaBackend(load_chip("h200"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def bench(device):
    return Bench(device)


@pytest.fixture(scope="module")
def trials(device):
    unconfined = CudaBackend(load_chip("h200"), without=frozenset(Measure))
    yield Trials(device, unconfined)
    unconfined.close()


def verify(device, make_subject, source, tier, off=frozenset()):
    subgraph, seen = make_subject("softmax")
    verifier = Verifier(device, load_chip("h200"), Precision.IEEE, off=off)
    configuration = engine.Configuration()
    return verifier.verify(subgraph, References(subgraph, seen), source, configuration, tier).verdict


@pytest.mark.parametrize("path", [*TUTORIALS, *HONEST, *CALIBRATION], ids=lambda p: p.stem)
def test_honest_kernel_is_accepted(path, bench):
    finding = bench.find(path, Tier.SCREEN)
    if finding.verdict.status is Status.WRONG_VALUE and nan_notes(path.read_text()):
        assert finding.verdict.evidence.distribution in ("nan", "nonfinite"), finding.verdict
        return  # passes without a device only, with a note: here it drops NaN
    assert finding.verdict.status is Status.PASSED, finding.verdict
    assert finding.verdict.evidence.compared > 0
    assert len(finding.plans) > 1


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda c: c.name)
def test_cheat_is_refused(cheat, trials, monkeypatch):
    if cheat.deadline is not None:
        monkeypatch.setitem(engine.DEADLINE, cheat.tier, cheat.deadline)
    verdict = trials.verdict(cheat)
    if verdict.passed and cheat.at is Gate.ORDER:
        pytest.skip("only the interpreter turns the order of program instances")
    assert not verdict.passed
    assert verdict.message
    if cheat.device or verdict.step in (Step.STATIC, Step.COMPILE):
        assert verdict.status is cheat.status, verdict


@pytest.mark.parametrize("cheat", [c for c in CHEATS if c.device], ids=lambda c: c.name)
def test_mechanism_is_real_on_a_device(cheat, trials):
    assert trials.verdict(cheat, frozenset(cheat.gates)).status is cheat.without


def test_the_accept_tier_says_how_much_is_own(device, make_subject):
    verdict = verify(device, make_subject, SOFTMAX, Tier.ACCEPT)
    assert verdict.status is Status.PASSED, verdict
    assert "own kernels: 100 % of the device time" in verdict.notes


def test_a_foreign_kernel_that_gives_the_right_result_is_found(device, make_subject):
    off = frozenset({Gate.STATIC})
    assert verify(device, make_subject, COPIED_BY_TORCH, Tier.SCREEN, off).passed
    verdict = verify(device, make_subject, COPIED_BY_TORCH, Tier.ACCEPT, off)
    assert verdict.status is Status.FOREIGN_KERNEL, verdict
    assert "the launch plan does not hold: Memcpy DtoD" in verdict.message


def test_a_launch_that_the_plan_does_not_hold_is_found(device, make_subject):
    verdict = verify(device, make_subject, TWICE_ON_A_DEVICE, Tier.SCREEN, frozenset({Gate.STATIC}))
    assert verdict.status is Status.FOREIGN_KERNEL, verdict
    assert verdict.message == "kernel rows was launched 2 times, 1 by the launch plan"


def test_nan_that_the_device_drops_is_found(device, make_subject):
    source = SOFTMAX.replace(
        "    e = tl.exp(v - tl.max(v, 0))", "    e = tl.exp(tl.maximum(v - tl.max(v, 0), -1e4))"
    )
    verdict = verify(device, make_subject, source, Tier.SCREEN)
    assert verdict.status is Status.WRONG_VALUE, verdict
    assert verdict.evidence.distribution in ("nan", "nonfinite")
