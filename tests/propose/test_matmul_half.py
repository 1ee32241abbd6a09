"""Products and attention in half precision: values, and tensor-core instructions in the compiled code."""

import pytest
import torch
import torch.nn.functional as F
from oracle import CHIP, Problem, check, default_configuration, function, propose, subgraph
from torch import nn

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CompileJob

pytestmark = pytest.mark.interp
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3}


def values(*shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(64)
        self.a, self.b = nn.Linear(64, 96, bias=False), nn.Linear(64, 96, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return F.silu(self.a(y)) * self.b(y)


def problems(dtype, length):
    tolerance = TOLERANCE[dtype]
    x = values(2, length, 64, dtype=dtype)
    layer = nn.Sequential(nn.Linear(64, 72), nn.GELU()).to(dtype)
    yield Problem(f"linear {dtype}", layer, ((x,), (x[:1, :5].clone(),)), tolerance)
    yield Problem(f"gated {dtype}", Gated().to(dtype), ((x,),), tolerance)
    heads = tuple(values(2, length, 3, 16, dtype=dtype, seed=s).transpose(1, 2) for s in range(3))
    yield function(f"causal {dtype}", causal, heads, tolerance=tolerance)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_values_round_once(tmp_path, dtype):
    assert check(list(problems(dtype, 37)), tmp_path, limit=1) == {}


def test_dots_reach_the_tensor_cores():
    """16-bit operands as they are, fp32 as three tf32 products; the IEEE variant stays off tensor cores."""
    backend = InterpreterBackend()
    try:
        for dtype, operand in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
            for problem in problems(dtype, 128):
                dots, instructions = _compiled(backend, problem, propose(problem, 1)[0])
                assert dots == {(operand, "native")}
                assert any("wgmma" in name for name in instructions), problem.name
        single = Problem("single", nn.Linear(64, 72), ((values(2, 128, 64, dtype=torch.float32),),))
        best, ieee = propose(single, 2)
        dots, instructions = _compiled(backend, single, best)
        assert dots == {("float32", "tf32x3")}
        assert any("mma" in name for name in instructions)
        dots, instructions = _compiled(backend, single, ieee)
        assert dots == {("float32", "ieee")}
        assert not any("mma" in name for name in instructions)
    finally:
        backend.close()


def _compiled(backend, problem, candidate):
    graph = subgraph(problem).target
    sizes = tuple(i.spec for i in graph.activations), tuple(i.spec for i in graph.params)
    configuration = default_configuration(candidate.source)
    job = CompileJob(candidate.source, configuration, (("target", *sizes),), CHIP, deadline=60.0)
    result = backend.compile(job)
    assert result.status is Status.PASSED, result.message
    launches = result.plans[0].launches
    assert all(launch.resources.shared <= CHIP.shared_per_program for launch in launches)
    dots = {(d.operand, d.precision) for launch in launches for d in launch.dots}
    return dots, {name for launch in launches for name, _ in launch.instructions}
