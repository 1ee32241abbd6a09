from pathlib import Path

import pytest

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.verdict import Status
from mkevolve.verify.static import check, tunables

KERNELS = sorted((Path(__file__).parent.parent / "calibration" / "kernels").glob("*.py"))

HEAD = '''"""Doc."""
import math

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK": (128, 64)}
EPS = 1e-5
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _twice(v):
    return v * 2


@triton.jit
def _f(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    JIT
    tl.store(o + i, _twice(v) * EPS, mask=i < n)


def _grid(n, block):
    return (triton.cdiv(n, block),)


PREPARE


def run(x, w, *, BLOCK):
    out = torch.empty_like(x)
    n = x.numel()
    RUN
    _f[_grid(n, BLOCK)](x, out, n, BLOCK=BLOCK)
    return out
'''


def file(run="pass", jit="pass", prepare="", head=HEAD):
    return head.replace("    RUN", f"    {run}").replace("    JIT", f"    {jit}").replace("PREPARE", prepare)


def unary(params=1):
    spec = TensorSpec((4, 8), "float32", (8, 1))
    inputs = [Input(Value("x0", spec), InputKind.ACTIVATION)]
    inputs += [Input(Value(f"p{i}", spec), InputKind.PARAMETER, f"w{i}") for i in range(params)]
    node = Node("n0", "aten.relu.default", (Ref("x0"),), (), (Value("n0", spec),))
    graph = Graph(tuple(inputs), (node,), (Ref("n0"),))
    return Subgraph("sg_1", "fam_1", (("target", graph), ("check_0", graph)), "relu")


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_calibration_kernels_pass(path):
    assert check(path.read_text(), None) is None


HONEST = {
    "plain": {},
    "two outputs": {"run": "a, b = out.view(-1), x.stride(0) * 2 + x.shape[-1]"},
    "lambda grid": {"run": 'grid = lambda m: (triton.cdiv(n, m["BLOCK"]), 1)'},
    "conditional": {"run": "k = 4 if x.dtype == torch.float16 else 8"},
    "split k": {"run": "t = torch.zeros((4, *x.shape), device=x.device, dtype=torch.float32)"},
    "loop": {"run": "for s in x.shape[:-1]: n = n * s // s"},
    "math": {"run": "scale = 1.0 / math.sqrt(x.shape[-1])"},
    "raise": {"run": 'assert x.is_contiguous(), f"strides {x.stride()}"'},
    "is none": {"run": "flag = w is not None"},
    "views": {"run": "y = x.permute(1, 0).unsqueeze(0)[:, 1:].reshape(-1)"},
    "second launch": {"run": "_f[(1,)](x, out, n, BLOCK=64, num_warps=2)"},
    "choose kernel": {"run": "k = _f if n > 8 else _f; k[(1,)](x, out, n, BLOCK=BLOCK)"},
    "jit where": {"jit": "v = tl.where(v > 0, v, tl.zeros_like(v)).to(tl.float32)"},
    "jit loop": {"jit": "for k in tl.range(0, n, BLOCK): v += tl.load(x + k)"},
    "jit reduce": {"jit": "v = v - tl.max(v, 0) + tl.math.exp2(v)"},
    "prepare": {"prepare": "def prepare(w):\n    return (w.double() * 2 + torch.sqrt(w)).float()"},
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_passes(name):
    assert check(file(**HONEST[name]), unary()) is None


REFUSED = {
    "operator": ({"run": "out = x + w"}, "torch compute"),
    "matmul operator": ({"run": "out = x @ w"}, "torch compute"),
    "negation": ({"run": "y = -x"}, "torch compute"),
    "in place": ({"run": "out += x"}, "torch compute"),
    "element": ({"run": "out[0] = x[0]"}, "element"),
    "method": ({"run": "out = x.relu()"}, ".relu"),
    "bound method": ({"run": "f = x.relu"}, ".relu"),
    "view then compute": ({"run": "out = x.view(-1).abs()"}, ".abs"),
    "copy": ({"run": "out.copy_(x)"}, ".copy_"),
    "functional": ({"run": "out = torch.relu(x)"}, "torch.relu"),
    "ops": ({"run": "out = torch.ops.aten.relu(x)"}, "torch.ops"),
    "function as value": ({"run": "f = torch.relu"}, "torch.relu"),
    "out argument": ({"run": "torch.empty(3, out=out)"}, "out="),
    "tensor index": ({"run": "y = x[w]"}, "indexes"),
    "item": ({"run": "n = x.item()"}, ".item"),
    "int of tensor": ({"run": "n = int(x[0])"}, "int(...)"),
    "branch on value": ({"run": "n = 1 if x else 2"}, "branches"),
    "sum builtin": ({"run": "out = sum([x, w])"}, "sum(...)"),
    "list of tensors": ({"run": "y = [x, w][0] * 2"}, "torch compute"),
    "comprehension": ({"run": "y = [t * 2 for t in (x, w)]"}, "torch compute"),
    "late in a loop": ({"run": "a = b = 1\n    for i in (1, 2): s = a + 1; a = b; b = x"}, "torch compute"),
    "lambda default": ({"run": "grid = lambda m, t=x: (t + t,)"}, "lambda"),
    "f-string": ({"run": 'y = f"{x + 1}"'}, "torch compute"),
    "raise": ({"run": "if n < 0: raise ValueError(x + 1)"}, "torch compute"),
    "format spec": ({"run": 'y = f"{n:{exec(3)}}"'}, "exec"),
    "value of a fill": ({"run": "t = torch.full((4,), x[0])"}, "tensor's value"),
    "name of a module": ({"prepare": "def g(math):\n    return math", "run": "y = g(x)"}, "another meaning"),
    "lambda hides a module": ({"run": "g = lambda math: math.sqrt()"}, "another meaning"),
    "exec": ({"run": 'exec("1")'}, "exec"),
    "getattr": ({"run": 'getattr(torch, "relu")(x)'}, "getattr"),
    "globals": ({"run": "globals()"}, "globals"),
    "dunder": ({"run": "y = x.__class__"}, "__class__"),
    "format walk": ({"run": 'y = "{0.x}".format(3)'}, ".format"),
    "kernel attribute": ({"run": "_f.cache = 1"}, "state"),
    "kernel read": ({"run": "y = _f.fn"}, ".fn"),
    "function state": ({"run": "run.last = out"}, "state"),
    "pointer": ({"run": "y = x.data_ptr()"}, ".data_ptr"),
    "global": ({"run": "global EPS"}, "global"),
    "try": ({"run": "try:\n        n = 1\n    except: n = 2"}, "try"),
    "with": ({"run": "with torch.no_grad(): n = 1"}, "with"),
    "warmup": ({"run": "_f[(1,)](x, out, n, BLOCK=64, warmup=True)"}, "warmup"),
    "tunables read": ({"run": 'y = TUNABLES["BLOCK"]'}, "TUNABLES"),
    "nested function": ({"run": "def g(): return 1"}, "table of arguments"),
    "recursion": ({"run": "return run(x, w, BLOCK=BLOCK)"}, "itself"),
    "keywords": ({"run": "_f[(1,)](x, out, n, **{})"}, "**"),
    "jit open": ({"jit": 'open("/tmp/a")'}, "open"),
    "jit torch": ({"jit": "v = torch.relu(v)"}, "torch"),
    "jit attribute": ({"jit": "v = v.handle"}, ".handle"),
    "jit module": ({"jit": "v = tl.core.os"}, "triton.language.core"),
    "jit import": ({"jit": "import os"}, "Import"),
    "jit assembly": ({"jit": "v = tl.inline_asm_elementwise(v)"}, "inline_asm"),
    "jit host call": ({"jit": "v = _grid(v, 2)"}, "_grid"),
    "prepare launches": ({"prepare": "def prepare(w):\n    _f[(1,)](w, w, 1)\n    return w"}, "only run"),
    "prepare file": ({"prepare": "def prepare(w):\n    torch.save(w, 'a')\n    return w"}, "torch.save"),
    "prepare closure": ({"prepare": "def prepare(w):\n    return lambda t: t"}, "lambda"),
    "prepare module": ({"prepare": "def prepare(w):\n    return torch.nn.Linear(1, 1)"}, "torch.nn"),
    "prepare random": ({"prepare": "def prepare(w):\n    return torch.rand_like(w)"}, "rand_like"),
    "prepare arguments": ({"prepare": "def prepare(w, b):\n    return w"}, "2 parameters"),
    "default argument": ({"prepare": "def g(a=[]):\n    return a"}, "default"),
    "decorator": ({"prepare": "@torch.compile\ndef g(a):\n    return a"}, "decorator"),
    "autotune": ({"prepare": "@triton.autotune([], [])\n@triton.jit\ndef g(a):\n    pass"}, "TUNABLES"),
    "module statement": ({"prepare": "torch.manual_seed(0)"}, "module level"),
    "module state": ({"prepare": "CACHE = {}"}, "CACHE"),
    "class": ({"prepare": "class A: pass"}, "class"),
    "import": ({"prepare": "import os"}, "import of os"),
    "from import": ({"prepare": "from torch import compile"}, "torch.compile"),
    "redefinition": ({"prepare": "def _grid(a):\n    return a"}, "defined already"),
    "power": ({"prepare": "BIG = 9 ** 9 ** 9"}, "BIG"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_code_is_named(name):
    parts, text = REFUSED[name]
    verdict = check(file(**parts), unary())
    assert verdict is not None
    assert verdict.status is Status.STATIC_ERROR
    assert text in verdict.message
    assert verdict.message.startswith("line ")


def test_line_is_the_offending_one():
    source = file(run="out = x + w")
    verdict = check(source, unary())
    assert verdict is not None
    line = int(verdict.evidence.where.removeprefix("line "))
    assert "x + w" in source.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("*, BLOCK)", "*, BLOCK, EXTRA)", "EXTRA"),
        ("*, BLOCK)", "BLOCK)", "keyword-only"),
        ("(x, w, *", "(x, w, u, *", "x0, p0"),
        ("def run(", "def main(", "no function run"),
        ("(128, 64)", "[128, 64]", "tuple"),
        ("(128, 64)", "(128, 128)", "different"),
        ('{"BLOCK": (128, 64)}', "dict(BLOCK=(1,))", "literal"),
        ("    return out", "    return 3", "must return"),
        ("    _f[_grid(n, BLOCK)](x, out, n, BLOCK=BLOCK)\n", "", "launches no kernel"),
        ("import math", "import math\nx = (", "not Python"),
    ],
)
def test_contract(old, new, text):
    assert old in HEAD
    verdict = check(file(head=HEAD.replace(old, new)), unary())
    assert verdict is not None
    assert text in verdict.message


def test_prepared_count_is_checked():
    prepare = "def prepare(w):\n    return w, w"
    verdict = check(file(prepare=prepare), unary())
    assert verdict is not None
    assert "2 from prepare" in verdict.message


def test_tunables_are_read_in_order():
    assert tunables(file()) == (("BLOCK", (128, 64)),)
    assert tunables("TUNABLES = 3") != ()


def test_a_huge_or_deep_file_is_a_verdict():
    assert check("x = 1\n" * 20000, None) is not None
    assert check("x = " + "(" * 5000 + ")" * 5000, None) is not None
    assert check("x = " + "-" * 50000 + "1", None) is not None
