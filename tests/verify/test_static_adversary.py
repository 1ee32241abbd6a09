"""Whole attacks, each of a kind that a list of rules would not name; the static step stops every one."""
# ruff: noqa: RUF001

import pytest
from static_subjects import assert_refused, candidate

ATTACKS = {
    # the file that is read is not the file that runs
    "comment opened by utf-7": ("# coding: utf-7\n#+AAo-import os\n" + candidate(), "utf-7"),
    "cookie after a blank line": ("\n# -*- coding: cp037 -*-\n" + candidate(), "cp037"),
    "kernel within a kernel's docstring": (
        candidate(
            jit='"""\n    def _f(x, o, n, BLOCK, FLAG=0):\n        open("/tmp/x", "w")\n        s = """ "\\""'
        ),
        "looks like a def",
    ),
    "async def in a docstring": (
        candidate(jit='"""\n    async def _f(x): pass\n    """'),
        "looks like a def",
    ),
    "kernel in the options": (
        candidate(
            module='@triton.jit(do_not_specialize="""\ndef g(v):\n    return 1\n""")\ndef g(v):\n    return v'
        ),
        "looks like a def",
    ),
    "code behind a carriage return": (candidate(module="A = 1  # x\rimport os"), "U+000D"),
    "name that looks like another": (candidate(run="ｏｐｅｎ('x')"), "open"),
    "attribute in full width": (candidate(run="out = x.ａｄｄ_(1)"), ".add_"),
    "direction of text": (candidate(run="n = n  # \u2066 return x + 1 \u2069"), "U+2066"),
    # what an import gives
    "module through a module": (
        candidate(run="out = triton.language.core.torch.relu(x)"),
        "triton.language.core",
    ),
    "torch through triton": (candidate(run="out = triton.runtime.jit.torch.relu(x)"), "triton.runtime"),
    "torch through math of triton": (candidate(run="out = tl.math.core.math(x)"), "triton.language.math"),
    "interpreter": (
        candidate(run="triton.runtime.interpreter.interpreter_builder.observer = None"),
        "attribute",
    ),
    "functional by alias": (
        candidate(module="import torch.nn.functional as F", run="out = F.gelu(x)"),
        "gelu",
    ),
    "functional as a value": (candidate(module="import torch.nn.functional as F", run="f = F"), "functional"),
    "libdevice module": (
        candidate(module="from triton.language.extra import libdevice as L", run="f = L.core"),
        "core",
    ),
    "libdevice on the host": (
        candidate(module="from triton.language.extra import libdevice as L", run="out = L.exp(x)"),
        "libdevice.exp",
    ),
    "typing evaluated": (candidate(module="from typing import Any", run="f = Any"), "typing.Any"),
    "constants module": (candidate(run="out = math.__dict__"), "__dict__"),
    # run that is not run
    "run by another name": (
        candidate(head=candidate().replace("def run(", "def go(")) + "\nrun = 3\n",
        "plain function",
    ),
    "prepare that allocates": (candidate(module="from torch import ones_like as prepare"), "plain function"),
    "tunables that compute": (
        candidate(head=candidate().replace("(128, 64)", "(128, 64 if open('a') else 3)")),
        "literal",
    ),
    "tunables by a chain": (
        candidate(head=candidate().replace("TUNABLES =", "A = TUNABLES =")),
        "module level",
    ),
    "keywords beyond the table": (
        candidate(head=candidate().replace("*, BLOCK", "*, BLOCK, hidden=[]")),
        "default",
    ),
    # values that change their kind
    "list through a helper": (
        candidate(
            module="def put(a, t):\n    a += [t]\n    return a", run="a = [1]\nput(a, x)\nout = a[1] * 2"
        ),
        "extends a list",
    ),
    "helper gives what it gets": (
        candidate(module="def same(a):\n    return a", run="out = same((1, x))[1] * 2"),
        "torch compute",
    ),
    "helper of two minds": (
        candidate(
            module="def pick(a, b, c):\n    if c:\n        return a\n    return b",
            run="out = pick(1, x, n) * 2",
        ),
        "torch compute",
    ),
    "helper called by keyword": (
        candidate(module="def add(a, b=1):\n    return a + b", run="out = add(b=x, a=1)"),
        "torch compute",
    ),
    "default that is overridden": (
        candidate(module="def first(a=1):\n    return a * 2", run="out = first(x)"),
        "torch compute",
    ),
    "helper that returns a grid over a tensor": (
        candidate(
            module="def grid(t):\n    return lambda m: (int(t[0, 0]),)",
            run="_f[grid(x)](x, out, n, BLOCK=64)",
        ),
        "reads its values",
    ),
    "name swapped in a loop": (
        candidate(run="a, b = 1, x\nfor i in range(2):\n    a, b = b, a\nout = a * 2"),
        "torch compute",
    ),
    "kinds that need many passes": (
        candidate(run="a = b = c = d = e = 1\nwhile n:\n    r = a * 2\n    a, b, c, d, e = b, c, d, e, x"),
        "torch compute",
    ),
    "argument under two names": (
        candidate(
            run="_f[(1,)](w, out, n, BLOCK=64)",
            grid='lambda m: (m["x"].shape[0] if m["x"] else 1,)',
        ),
        "branches",
    ),
    "grid behind a condition": (candidate(grid="(n,) if n else (x.sum(),)"), ".sum"),
    "grid by arithmetic of a view": (candidate(grid="(x.view(-1)[0] + 1,)"), "torch compute"),
    "grid that launches": (
        candidate(grid='lambda m: (_f[(1,)](m["x"], m["o"], 1, BLOCK=64) or 1,)'),
        "computes with",
    ),
    # doing something while seeming to look
    "assertion with an effect": (candidate(run="assert out.zero_() is out"), ".zero_"),
    "comparison with an effect": (candidate(run="n = (out.fill_(1) is None)"), ".fill_"),
    "shape with an effect": (candidate(run="n = x.relu_().shape[0]"), ".relu_"),
    "resize": (candidate(run="out.resize_(3)"), ".resize_"),
    "set": (candidate(run="out.set_(x)"), ".set_"),
    "names": (candidate(run="out.names = None"), "attribute"),
    "index put": (candidate(run="out.index_put_((w,), x)"), ".index_put_"),
    "share": (candidate(run="out.share_memory_()"), ".share_memory_"),
    "hook": (candidate(run="out.register_hook(lambda g: 1)"), ".register_hook"),
    "half by view functions": (candidate(run="out = torch.view_as_complex(x)"), "view_as_complex"),
    "copy by a function": (candidate(run="out = torch.permute_copy(x, (1, 0))"), "permute_copy"),
    "repeat": (candidate(run="out = x.repeat(2, 1)"), ".repeat"),
    "roll": (candidate(run="out = x.roll(1)"), ".roll"),
    "take": (candidate(run="out = torch.index_select(x, 0, w)"), "index_select"),
    "symbolic": (candidate(run="n = torch.sym_max(x, 1)"), "sym_max"),
    "storage": (candidate(run="s = x.untyped_storage()"), "pass the tensor itself"),
    "address": (candidate(run="n = x.data_ptr() % 16"), "pass the tensor itself"),
    "identity": (candidate(run="n = id(x)"), "id"),
    "hash": (candidate(run="n = hash(x)"), "hash"),
    "version": (candidate(run="n = x._version"), "._version"),
    "device kind": (candidate(run='n = 1 if x.device.type == "cpu" else 2'), ".type"),
    "meta": (candidate(run="n = 1 if x.is_meta else 2"), ".is_meta"),
    "which tensor class": (
        candidate(run="n = isinstance(x, torch._subclasses.FakeTensor)"),
        "torch._subclasses",
    ),
    "interpreter or not": (candidate(run="n = isinstance(_f, triton.JITFunction)"), "triton.JITFunction"),
    "version of triton": (candidate(run="n = triton.__version__"), "__version__"),
    # in kernels
    "host by an argument": (candidate(jit="v = FLAG.open(1)"), ".open"),
    "host by a format": (candidate(jit="tl.static_assert(True, f'{v.handle}')"), ".handle"),
    "host by a conversion": (candidate(jit="v = int(v.handle.data)"), ".data"),
    "call by an argument that is stored to": (candidate(jit="FLAG = tl.sum\nv = FLAG(v)"), "FLAG(...)"),
    "builtin replaced by an argument": (
        candidate(module="@triton.jit\ndef g(v, len):\n    return len(v)"),
        "len(...)",
    ),
    "local that hides a builtin": (candidate(jit="min = v\nv = min(v, 1)"), "min(...)"),
    "store by subscript": (candidate(jit="(o + i)[0] = v"), "element"),
    "constant tuple as a function": (candidate(module="T = (1, 2)", jit="v = T(1)"), "T(...)"),
    "module as a value": (candidate(jit="m = math\nv = m.floor(1.5)"), "math in the jit"),
    "language as a value": (candidate(jit="v = tl.extra.cuda.globaltimer()"), "globaltimer"),
    "block pointer by number": (
        candidate(jit="v = tl.load(tl.cast(n, tl.pointer_type(tl.float32)))"),
        "pointers come",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name):
    source, text = ATTACKS[name]
    assert_refused(source, text)


def test_there_are_many():
    assert len(ATTACKS) >= 60
