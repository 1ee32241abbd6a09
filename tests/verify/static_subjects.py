"""A candidate in parts, for tests of the static step: what is put into it is what is judged."""

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.verdict import Status, Step
from mkevolve.verify.static import check

HEAD = '''"""Doc."""
import math

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK": (128, 64)}
EPS = 1e-5


@triton.jit
def _twice(v):
    return v * 2


DECORATORS
@triton.jit
def _f(x, o, n, BLOCK: tl.constexpr, FLAG: tl.constexpr = 0):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    JIT
    tl.store(o + i, _twice(v) * EPS, mask=i < n)


def _grid(n, block):
    return (triton.cdiv(n, block),)


MODULE


def run(x, w, *, BLOCK):
    out = torch.empty_like(x)
    n = x.numel()
    RUN
    _f[GRID](x, out, n, BLOCK=BLOCK)
    return out
'''


def candidate(run="pass", jit="pass", module="", grid="_grid(n, BLOCK)", decorators="", head=HEAD):
    """The file with these parts; each may be of several lines."""
    text = head
    for mark, part, indent in (("RUN", run, 4), ("JIT", jit, 4), ("MODULE", module, 0)):
        text = text.replace(" " * indent + mark, "\n".join(" " * indent + p for p in part.split("\n")))
    return text.replace("GRID", grid).replace("DECORATORS\n", decorators + "\n" if decorators else "")


def subgraph(params=1):
    """One activation, and as many parameters."""
    spec = TensorSpec((4, 8), "float32", (8, 1))
    inputs = [Input(Value("x0", spec), InputKind.ACTIVATION)]
    inputs += [Input(Value(f"p{i}", spec), InputKind.PARAMETER, f"w{i}") for i in range(params)]
    node = Node("n0", "aten.relu.default", (Ref("x0"),), (), (Value("n0", spec),))
    graph = Graph(tuple(inputs), (node,), (Ref("n0"),))
    return Subgraph("sg_1", "fam_1", (("target", graph), ("check_0", graph)), "relu")


def assert_refused(source, text, line=True):
    """Refused by the static step, naming the line and (in its message) `text`."""
    verdict = check(source, subgraph())
    assert verdict is not None, source
    assert (verdict.status, verdict.step) == (Status.STATIC_ERROR, Step.STATIC)
    assert text in verdict.message, verdict.message
    assert verdict.message.startswith("line ") or not line
