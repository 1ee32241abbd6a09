"""Convolution templates compiled for the chip: tensor cores in use, nothing spilled; and run in 16 bits."""

from dataclasses import replace

import pytest
import torch
from oracle import CHIP, parameters, request, subgraph
from test_conv import Projected, layer, settled, values
from torch import nn

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Configuration
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CompileJob, RunJob
from mkevolve.propose.template import TemplateProposer
from mkevolve.verify.static import check, tunables

pytestmark = pytest.mark.interp


@pytest.fixture(scope="module")
def backend():
    made = InterpreterBackend()
    yield made
    made.close()


def best(problem, precision=Precision.IEEE):
    offer = TemplateProposer().propose(replace(request(problem, limit=1), precision=precision))[0]
    assert check(offer.source, subgraph(problem)) is None
    return offer


def defaults(source):
    return Configuration(tuple((name, options[0]) for name, options in tunables(source)))


def compiled(backend, problem, offer):
    graph = subgraph(problem).target
    specs = tuple(i.spec for i in graph.activations), tuple(i.spec for i in graph.params)
    job = CompileJob(offer.source, defaults(offer.source), (("target", *specs),), CHIP, 60.0)
    result = backend.compile(job)
    assert result.status is Status.PASSED, result.message
    return result.plans[0].launches


def typed(problem, dtype):
    problem.module.to(dtype)
    inputs = tuple(tuple(t.to(dtype) for t in tensors) for tensors in problem.inputs)
    return type(problem)(f"{problem.name}_{dtype}", problem.module, inputs)


def conv(last=False, channels=64):
    x = values(8, channels, 28, 28, last=last)
    return layer("conv", nn.Conv2d(channels, 64, 3, padding=1, bias=False), (x,), norm=True)


OPERANDS = {torch.float16: ("float16", "native"), torch.bfloat16: ("bfloat16", "native")}


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", OPERANDS, ids=["float16", "bfloat16"])
def test_16_bit_convolutions_use_tensor_cores(backend, dtype, last):
    problem = typed(conv(last), dtype)
    (launch,) = compiled(backend, problem, best(problem))
    assert {(d.operand, d.precision) for d in launch.dots} == {OPERANDS[dtype]}
    assert any("wgmma" in name or "mma" in name for name, _ in launch.instructions)
    assert launch.resources.spills == 0


@pytest.mark.parametrize(
    ("precision", "dot"), [(Precision.IEEE, "tf32x3"), (Precision.TF32, "tf32")], ids=["ieee", "tf32"]
)
def test_float32_convolutions_keep_the_policy(backend, precision, dot):
    few, many = conv(channels=3), conv()
    for problem in (few, many):
        (launch,) = compiled(backend, problem, best(problem, precision))
        assert {d.precision for d in launch.dots} == {dot}
        assert any("mma" in name for name, _ in launch.instructions)
        assert launch.resources.spills == 0


def test_16_bit_results_round_once(backend):
    x, y = values(2, 18, 4, 5), values(2, 3, 4, 5, seed=3)
    joined = type(conv())("joined", settled(Projected(1)), ((x, y),))
    deep = layer("deep", nn.Conv2d(18, 18, 3, padding=1, groups=18), (x,), norm=True)
    for problem in (joined, deep):
        for dtype in (torch.float16, torch.bfloat16):
            given = typed(problem, dtype)
            offer = best(given)
            case = Case(given.name, "target", given.inputs[0], parameters(given))
            (result,) = backend.run(RunJob(offer.source, defaults(offer.source), (case,)))
            assert result.status is Status.PASSED, result.message
            wide = given.module.double()(*(t.double() for t in given.inputs[0]))
            error = (result.outputs[0].double() - wide).abs().max() / wide.abs().max()
            # Half an ulp of the result, and what rounding the folded weights adds.
            assert error < 1.5 * torch.finfo(dtype).eps


@pytest.mark.parametrize("groups", [1, 64])
def test_offsets_beyond_31_bits(backend, groups):
    module = nn.Conv2d(64, 64, 3, padding=1, groups=groups).to("meta", torch.float16)
    large, small = (
        torch.empty(s, device="meta", dtype=torch.float16) for s in ((256, 64, 512, 512), (1, 64, 5, 7))
    )
    problem = type(conv())(f"wide_{groups}", module, ((large,), (small,)))
    offer = best(problem)
    assert "tl.program_id(0).to(tl.int64)" in offer.source
    assert compiled(backend, problem, offer)[0].programs > 0
