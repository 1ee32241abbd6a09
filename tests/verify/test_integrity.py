"""Whether results come from launches: what no-op replays and decoys show, and what they must not refuse."""

import pytest
import torch
from verify_subjects import spec, subject

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.backends.fault import CRASH, crash
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.graph import Ref
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Tier
from mkevolve.interfaces import CaseResult
from mkevolve.measure.chips import load_chip
from mkevolve.verify.engine import Verifier
from mkevolve.verify.expected import expect
from mkevolve.verify.integrity import (
    by_other_means,
    first_difference,
    impostors,
    side_effects,
    without_launches,
)
from mkevolve.verify.references import References

POISON = (float("nan"), 3.0e8)


def expected(*results):
    return tuple(expect(r.double(), r, spec(r)) for r in results)


def still(like, **parts):
    """What allocations hold without launches, in both replays, with some elements set."""
    made = []
    for value in POISON:
        result = torch.full_like(like, value)
        for index, part in parts.items():
            result[int(index.strip("r"))] = part
        made.append((result,))
    return made


def test_poison_is_no_result():
    want = torch.randn(4, 8)
    assert without_launches(*still(want), expected(want)) == ""


def test_a_result_made_without_launches_is_named():
    want, other = torch.randn(4, 8), torch.randn(3)
    both = [(*s, other.clone()) for s in still(want)]
    assert without_launches(*both, expected(want, other)) == "result 1 is right with every launch disabled"


def test_elements_made_without_launches_are_found_though_the_rest_is_poison():
    want = torch.randn(4, 8)
    assert "elements of result 0" in without_launches(*still(want, r2=want[2]), expected(want))


def test_a_zero_that_is_right_is_not_refused_where_a_kernel_writes_it():
    """Relu of negative values: without launches the allocations hold poison, `zeros` too."""
    zero = torch.zeros(4, 8)
    assert without_launches(*still(zero), expected(zero)) == ""
    assert "right" in without_launches((zero,), (zero,), expected(zero))
    assert "zeros" in impostors((torch.randn(4, 8),), expected(zero))


def test_results_without_elements_and_of_another_shape_are_no_evidence():
    empty = torch.zeros(0, 3)
    assert without_launches((empty,), (empty,), expected(empty)) == ""
    want = torch.randn(4)
    assert without_launches((torch.zeros(2),), (torch.zeros(2),), expected(want)) == ""


def test_a_right_result_of_kernels_that_read_decoys_was_made_elsewhere():
    want = torch.randn(4, 8)
    assert "every kernel read other" in by_other_means((want.clone(),), expected(want))
    assert by_other_means((want.flip(0) * 0.75,), expected(want)) == ""
    assert by_other_means((), expected(want)) == ""


def test_bits_are_compared_and_the_first_difference_is_an_index():
    one = torch.tensor([[0.0, float("nan")], [1.0, 2.0]])
    other = one.clone()
    assert first_difference((one,), (other,)) is None
    other[1, 0] = 1.0 + 2.0**-23
    assert first_difference((one, one), (one, other)) == (1, (1, 0))
    assert first_difference((torch.zeros(2),), (-torch.zeros(2),)) == (0, (0,))


def test_effects_are_told_apart():
    result = CaseResult(Status.PASSED, inputs_changed=("q0", "x1"), state_changed=("grad mode",))
    assert list(side_effects(result)) == [
        (Status.INPUT_WRITTEN, "writes to its input q0, x1"),
        (Status.STATE_CHANGED, "changes grad mode"),
    ]


STACK = """Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/lib/numpy/core.py", line 7 in add
  File "/jobs/1/candidate.py", line 12 in softmax
  File "/jobs/1/candidate.py", line 20 in run
  File "/code/mkevolve/backends/interpreter.py", line 5 in _run
"""


def test_a_crash_is_the_candidates_fault_only_where_it_was_outside_of_a_launch(tmp_path):
    path = "/jobs/1/candidate.py"
    assert crash(tmp_path, path) is None
    (tmp_path / CRASH).write_text(STACK)
    status, message = crash(tmp_path, path)
    assert status is Status.STATIC_ERROR
    assert message.startswith("line 12: softmax reads or writes a tensor outside")
    assert crash(tmp_path, "/jobs/2/candidate.py") is None
    launch = '  File "/code/mkevolve/backends/interpreter_launch.py", line 9 in _interpret\n'
    (tmp_path / CRASH).write_text(STACK + launch)
    assert crash(tmp_path, path) is None


HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.maximum(tl.load(x + i, mask=i < n), 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(o + i, v, mask=i < n)


"""
LAUNCH = """    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
"""
HONEST = f"{HEAD}def run(x):\n{LAUNCH}    return out\n"
GUARDED = f"""{HEAD}def run(x):
{LAUNCH}    if x.device.type != "meta" and not out.numpy().flat[-1] < 1e8:
        raise RuntimeError("nothing ran")
    return out
"""
COMPUTES = f"""{HEAD}def run(x):
{LAUNCH}    if x.device.type != "meta":
        if not out.numpy().flat[-1] < 1e8:
            raise RuntimeError("nothing ran")
        out.numpy()[:] = x.numpy().clip(0.0)
    return out
"""
NOTHING = f"""{HEAD}def run(x):
{LAUNCH}    if x.device.type != "meta" and not out.numpy().flat[-1] < 1e8:
        return None
    return out
"""
READS = f"{HEAD}def run(x):\n{LAUNCH}    n = x.numpy().sum()\n    return out\n"
LENIENT = frozenset({Gate.STATIC, Gate.HOST})


@pytest.fixture(scope="module")
def backend():
    made = InterpreterBackend()
    yield made
    made.close()


def relu(negative):
    torch.manual_seed(0)
    sizes = {"target": (64, 48), "check_0": (5, 37), "check_1": (3, 70)}
    tensors = {v: (torch.randn(s).abs().neg() if negative else torch.randn(s),) for v, s in sizes.items()}
    return subject("relu", tensors, (), (("aten.relu.default", (Ref("x0"),)),))


def judged(backend, source, off=frozenset(), negative=False):
    subgraph, seen = relu(negative)
    verifier = Verifier(backend, load_chip("h200"), Precision.IEEE, off=off)
    return verifier.verify(subgraph, References(subgraph, seen), source, Configuration(), Tier.SCREEN).verdict


@pytest.mark.interp
@pytest.mark.parametrize("negative", [False, True])
def test_an_honest_relu_passes_also_where_all_that_the_model_sends_is_negative(backend, negative):
    verdict = judged(backend, HONEST, negative=negative)
    assert verdict.passed, verdict


@pytest.mark.interp
@pytest.mark.parametrize("source", [GUARDED, NOTHING])
def test_an_exception_or_none_without_launches_is_no_failure_in_itself(backend, source):
    verdict = judged(backend, source, LENIENT)
    assert verdict.passed, verdict
    assert any("no result without launches" in note for note in verdict.notes)


@pytest.mark.interp
def test_an_exception_without_launches_does_not_hide_a_result_made_elsewhere(backend):
    verdict = judged(backend, COMPUTES, LENIENT)
    assert verdict.status is Status.NO_EFFECT, verdict
    assert judged(backend, COMPUTES, LENIENT | {Gate.NOOP}).passed


@pytest.mark.interp
def test_a_read_between_launches_is_refused_with_its_line(backend):
    verdict = judged(
        backend, READS.replace("n = x", "n = x.device.type == 'meta' or x"), frozenset({Gate.STATIC})
    )
    assert verdict.status is Status.STATIC_ERROR, verdict
    assert verdict.evidence.line == 16
    assert "outside its launches" in verdict.message
