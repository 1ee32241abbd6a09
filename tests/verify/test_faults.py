"""The usual faults, as Python functions: each must be refused, by the draw that is there for it."""

import pytest
import torch
from function_backend import SOURCE, FunctionBackend
from verify_subjects import subject

from mkevolve.data.candidate import Configuration
from mkevolve.data.graph import Ref
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Tier
from mkevolve.measure.chips import load_chip
from mkevolve.verify.engine import Verifier
from mkevolve.verify.gates import Gate
from mkevolve.verify.references import References

F = torch.nn.functional


def verdict(subgraph, seen, function, tier=Tier.SCREEN):
    """Of a function of the activations and parameters; the rules of the source do not concern it."""
    backend = FunctionBackend(subgraph, lambda case: function(*case.activations, *case.params))
    verifier = Verifier(backend, load_chip("h200"), Precision.IEEE, off=frozenset({Gate.STATIC}))
    return verifier.verify(subgraph, References(subgraph, seen), SOURCE, Configuration(), tier).verdict


def sized(*tensors):
    """The same tensors at the target and at two check sizes: fewer rows."""
    torch.manual_seed(0)
    return {
        "target": tensors,
        "check_0": tuple(t[:5] for t in tensors),
        "check_1": tuple(t[-2:] for t in tensors),
    }


def softmax(x):
    return torch.softmax(x, -1)


def softmax_without_its_maximum(x):
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


def skipped_tail(x):
    out = softmax(x)
    out[..., x.shape[-1] // 16 * 16 :] = 0.0
    return out


def every_eighth_element(x):
    out = softmax(x)
    out.view(-1)[::8] = 0.0
    return out


@pytest.mark.parametrize(
    ("fault", "distribution", "pattern"),
    [
        (softmax_without_its_maximum, "large", "NaN"),
        (skipped_tail, "captured", "tail (axis 1 from 64 of 70)"),
        (every_eighth_element, "captured", "stripes (every 8 of axis 1, from 0), zeros"),
        (lambda x: softmax(x).roll(1, -1), "captured", "displaced (by -1 along axis 1)"),
        (lambda x: torch.where(x.isnan(), 0.0, x).softmax(-1), "nan", "finite where"),
        (lambda x: softmax(1.01 * x), "captured", "noise"),
    ],
)
def test_faults_of_a_softmax(fault, distribution, pattern, make_subject):
    subgraph, seen = make_subject("softmax")
    assert verdict(subgraph, seen, softmax).passed
    found = verdict(subgraph, seen, fault)
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.distribution == distribution
    assert pattern in found.evidence.pattern
    assert found.evidence.pattern in found.message
    assert found.evidence.tensor == "result 0"
    assert found.evidence.index is not None
    assert 0.0 < found.evidence.share <= 1.0
    assert found.evidence.error > found.evidence.allowed


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (48,), weight, bias, 1e-5)


def one_pass(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias


@pytest.mark.parametrize(
    ("fault", "distribution"),
    [
        (one_pass, "offset"),
        (lambda x, w, b: F.layer_norm(x, (48,), w, b, 0.0), None),
        (
            lambda x, w, b: F.layer_norm(x, (48,), w, None, 1e-5),
            "redraw",
        ),  # what the model sends: a bias of 0
        (lambda x, w, b: F.layer_norm(x, (48,), None, b, 1e-5), "redraw"),  # and a weight of 1
    ],
)
def test_faults_of_a_layer_norm(fault, distribution, make_subject):
    subgraph, seen = make_subject("layer_norm")
    assert verdict(subgraph, seen, layer_norm).passed
    found = verdict(subgraph, seen, fault)
    assert found.status is Status.WRONG_VALUE
    assert distribution in (None, found.evidence.distribution)


@pytest.mark.parametrize(("at", "value"), [(3, 0.0), (4, 1.0), (2, 0.0), (1, 1.0)])
def test_a_statistic_at_its_initial_value_may_not_be_left_out(at, value, make_subject):
    subgraph, seen = make_subject("conv")

    def right(x, w, *norm):
        weight, bias, mean, variance = norm
        y = F.batch_norm(F.conv2d(x, w, padding=1), mean, variance, weight, bias)
        return F.relu(y).contiguous(memory_format=torch.channels_last)

    def wrong(*tensors):
        return right(*tensors[: at + 1], torch.full_like(tensors[at + 1], value), *tensors[at + 2 :])

    assert verdict(subgraph, seen, right).passed
    assert verdict(subgraph, seen, wrong).status is Status.WRONG_VALUE


def scaled(by):
    """x0 + by * x1: what is added changes nothing that would be refused, on values of the usual size."""
    torch.manual_seed(0)
    variants = sized(torch.rand(64, 40), torch.rand(64, 40))
    ops = (("aten.mul.Tensor", (Ref("x1"), by)), ("aten.add.Tensor", (Ref("x0"), Ref("n0"))))
    return subject("scaled", variants, (), ops)


@pytest.mark.parametrize("by", [1.0, 1e-4, 1e-7])
def test_an_input_of_little_effect_may_not_be_left_out(by):
    subgraph, seen = scaled(by)
    assert verdict(subgraph, seen, lambda x, y: x + by * y).passed
    found = verdict(subgraph, seen, lambda x, y: x + 1e-30 * y)
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.distribution == ("emphasis" if by < 1e-5 else "captured")


def test_an_epsilon_that_is_an_input_may_not_be_left_out():
    torch.manual_seed(0)
    ops = (("aten.add.Tensor", (Ref("x0"), Ref("p0"))), ("aten.rsqrt.default", (Ref("n0"),)))
    subgraph, seen = subject("eps", sized(torch.rand(64, 40) + 0.5), (torch.tensor(1e-6),), ops)
    assert verdict(subgraph, seen, lambda x, e: torch.rsqrt(x + e)).passed
    assert verdict(subgraph, seen, lambda x, e: torch.rsqrt(x)).status is Status.WRONG_VALUE


@pytest.mark.parametrize("value", [True, False])
def test_a_mask_that_was_the_same_everywhere_may_not_be_left_out(value):
    torch.manual_seed(0)
    ops = (("aten.where.ScalarOther", (Ref("x1"), Ref("x0"), 7.0)),)
    mask = torch.full((64, 40), value)
    subgraph, seen = subject("masked", sized(torch.randn(64, 40), mask), (), ops)
    assert verdict(subgraph, seen, lambda x, m: torch.where(m, x, 7.0)).passed
    found = verdict(subgraph, seen, lambda x, m: torch.where(torch.full_like(m, value), x, 7.0))
    assert found.status is Status.WRONG_VALUE


def test_an_index_that_was_always_zero_may_not_be_left_out():
    torch.manual_seed(0)
    ops = (("aten.embedding.default", (Ref("p0"), Ref("x0"))),)
    subgraph, seen = subject("rows", sized(torch.zeros(64, dtype=torch.int64)), (torch.randn(9, 40),), ops)
    assert verdict(subgraph, seen, lambda i, table: table[i]).passed
    found = verdict(subgraph, seen, lambda i, table: table[torch.zeros_like(i)])
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.distribution == "emphasis"


def test_weights_that_are_integers_matter():
    torch.manual_seed(0)
    ops = (("aten.mul.Tensor", (Ref("x0"), Ref("p0"))),)
    weights = torch.randint(-9, 9, (40,), dtype=torch.int8)
    subgraph, seen = subject("int8", sized(torch.randn(64, 40)), (weights,), ops)
    found = verdict(subgraph, seen, lambda x, w: x * w)
    assert found.passed
    assert not any("p0" in note for note in found.notes)


def test_an_input_without_effect_is_a_note():
    torch.manual_seed(0)
    ops = (("aten.mul.Tensor", (Ref("x1"), 0.0)), ("aten.add.Tensor", (Ref("x0"), Ref("n0"))))
    subgraph, seen = subject("idle", sized(torch.rand(64, 40), torch.rand(64, 40)), (), ops)
    found = verdict(subgraph, seen, lambda x, y: x + 0.0 * y)
    assert found.passed
    assert "x1 does not change the result" in found.notes


def test_the_input_itself_is_no_relu_of_it():
    torch.manual_seed(0)
    ops = (("aten.relu.default", (Ref("x0"),)),)
    subgraph, seen = subject("relu", sized(torch.rand(64, 40)), (), ops)
    passed = verdict(subgraph, seen, torch.relu)
    assert passed.passed
    assert not any("would pass" in note for note in passed.notes)
    found = verdict(subgraph, seen, lambda x: torch.where(x.isfinite(), x, torch.relu(x)))
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.distribution == "centred"


def test_a_reference_that_is_the_identity_keeps_the_note():
    torch.manual_seed(0)
    subgraph, seen = subject("same", sized(torch.randn(64, 40)), (), (("aten.clone.default", (Ref("x0"),)),))
    found = verdict(subgraph, seen, torch.clone)
    assert found.passed
    assert "x0 unchanged would pass every case" in found.notes


def attention(q, k, v, dropped=False):
    scores = q.double() @ k.double().transpose(-1, -2) / 8.0
    if dropped:  # as a maximum does that does not propagate NaN
        scores = torch.where(scores.isnan(), -float("inf"), scores)
    top = scores.max(-1, keepdim=True).values
    weights = torch.exp(scores - torch.where(top.isinf(), 0.0, top))
    total = weights.sum(-1, keepdim=True)
    return ((weights / torch.where(total == 0, 1.0, total)) @ v.double()).to(q.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_propagates_nan(dtype, make_subject):
    subgraph, seen = make_subject("attention", dtype)
    assert verdict(subgraph, seen, attention).passed
    found = verdict(subgraph, seen, lambda q, k, v: attention(q, k, v, dropped=True))
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.distribution == "nonfinite"


def test_integers_and_booleans_are_exact():
    torch.manual_seed(0)
    ops = (("aten.gt.Scalar", (Ref("x0"), 0.0)),)
    subgraph, seen = subject("positive", sized(torch.randn(64, 40)), (), ops)
    assert verdict(subgraph, seen, lambda x: x > 0).passed
    assert verdict(subgraph, seen, lambda x: x > 1e-3).status is Status.WRONG_VALUE
    ops = (("aten.argmax.default", (Ref("x0"), -1)),)
    subgraph, seen = subject("argmax", sized(torch.randn(64, 40)), (), ops)
    assert verdict(subgraph, seen, lambda x: x.argmax(-1)).passed

    def off_by_one_in_one_place(x):
        found = x.argmax(-1)
        found[0] += 1
        return found

    found = verdict(subgraph, seen, off_by_one_in_one_place)
    assert found.status is Status.WRONG_VALUE
    assert found.evidence.index == (0,)


def test_replaced_draws_are_counted():
    torch.manual_seed(0)
    ops = (("aten.exp.default", (Ref("x0"),)),)
    subgraph, seen = subject("exp", sized(torch.randn(64, 40)), (), ops)
    found = verdict(subgraph, seen, torch.exp)
    assert found.passed
    assert found.evidence.replaced > 0  # exp(100) is infinite
