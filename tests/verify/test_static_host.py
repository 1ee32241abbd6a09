"""Everything else that runs on the host: the whole file is read, and nothing may do more than launch."""
# ruff: noqa: E501, RUF001

import pytest
from static_subjects import HEAD, assert_refused, candidate, subgraph

from mkevolve.verify.static import check, tunables

MODULE = {
    # imports
    "os": ("import os", "import of os"),
    "submodule": ("import torch.utils.data", "torch.utils.data"),
    "cuda": ("import torch.cuda", "torch.cuda"),
    "alias": ("import os as math2", "import of os"),
    "several": ("import math as m, sys", "import of sys"),
    "star": ("from triton.language import *", "triton.language.*"),
    "relative": ("from . import run2", "import of"),
    "relative star": ("from .. import *", "import of"),
    "from os": ("from os import path", "os.path"),
    "from torch": ("from torch import relu", "torch.relu"),
    "from torch module": ("from torch import ops", "torch.ops"),
    "from functional": ("from torch.nn.functional import gelu", "gelu"),
    "from triton": ("from triton import testing", "triton.testing"),
    "runtime": ("from triton.runtime import driver", "triton.runtime.driver"),
    "runtime module": ("import triton.runtime", "triton.runtime"),
    "jit runtime": ("from triton.runtime.jit import JITFunction", "JITFunction"),
    "core": ("from triton.language import core", "triton.language.core"),
    "tools": ("from triton.tools.tensor_descriptor import TensorDescriptor", "TensorDescriptor"),
    "private": ("from triton.language import _utils", "_utils"),
    "swapped": ("import torch as triton", "imported twice"),
    "swapped language": ("import torch as tl", "imported twice"),
    "hides a builtin": ("import torch as range", "meaning already"),
    "becomes the builtins": ("import torch as __builtins__", "__builtins__"),
    "functools": ("from functools import partial", "functools"),
    "threading": ("import threading", "threading"),
    "socket": ("import socket", "socket"),
    "subprocess": ("import subprocess", "subprocess"),
    "ctypes": ("import ctypes", "ctypes"),
    "numpy": ("import numpy as np", "numpy"),
    "dynamic": ('m = __import__("os")', "__import__"),
    # statements
    "call": ('print("loaded")', "module level"),
    "if": ("if True:\n    import os", "module level"),
    "for": ("for i in (1,):\n    pass", "module level"),
    "while": ("while True: pass", "module level"),
    "with": ('with open("a"): pass', "with"),
    "try": ("try:\n    import os\nexcept ImportError: pass", "try"),
    "assert": ("assert triton.cdiv(3, 2)", "module level"),
    "delete": ("del EPS", "del"),
    "global": ("global EPS", "global"),
    "docstring with code": ('f"{open(1)}"', "module level"),
    "attribute": ("torch.relu = None", "attribute"),
    "patch": ("triton.cdiv = None", "attribute"),
    "element": ("EPS[0] = 3", "module level"),
    "augmented": ("EPS += 1", "module level"),
    "unpacking": ("A, B = 1, open('a')", "B must be"),
    "unpacking an element": ("A, EPS[0] = 1, 2", "one name"),
    "unpacking tunables": ("A, TUNABLES = 1, 2", "one name"),
    "unpacking a call": ("A, B = open('a')", "module level"),
    "unpacking twice": ("A, A = 1, 2", "defined already"),
    "chained": ("A = TUNABLES = {}", "module level"),
    "class": ("class A: pass", "class"),
    "async": ("async def g(): pass", "async"),
    "lambda": ("g = lambda: 1", "g must be"),
    "list": ("CACHE = []", "CACHE must be"),
    "dict": ("CACHE = {}", "CACHE must be"),
    "set": ("CACHE = {1}", "a set"),
    "comprehension": ("A = [i for i in (1,)]", "A must be"),
    "computed": ("A = max(1, 2)", "A must be"),
    "tensor": ("A = torch.zeros(3)", "A must be"),
    "function": ("A = torch.relu", "A must be"),
    "typing as a value": ("from typing import Any\n\n\nA = Any", "A must be"),
    "typing call": ("from typing import NamedTuple", "typing.NamedTuple"),
    "kernel": ("A = _f", "A must be"),
    "partial launch": ("A = _f[(1,)]", "A must be"),
    "annotated": ("A: print(1) = 3", "annotation of A"),
    "annotated alone": ("A: print(1)", "module level"),
    "annotated tunables": ('TUNABLES: print(1) = {"BLOCK": (1,)}', "annotation of TUNABLES"),
    "second tunables": ('TUNABLES = print("x")', "defined already"),
    "huge power": ("A = 9 ** 9 ** 9", "A must be"),
    "huge shift": ("A = 1 << 99999999999", "A must be"),
    "redefined": ("def _grid(n, block):\n    return (1,)", "defined already"),
    "redefined builtin": ("def range(n):\n    return (1,)", "defined already"),
    "constant hides builtin": ("len = 3", "defined already"),
    "dunder function": ("def __getattr__(name):\n    return 1", "__getattr__"),
    "dunder constant": ("__builtins__ = 3", "__builtins__"),
    "walrus": ("A = (B := 3)", ":="),
    "yield": ("def g():\n    yield 1", "generator"),
    "nonlocal": ("def g():\n    nonlocal a", "nonlocal"),
    # function definitions
    "default list": ("def g(a=[]):\n    return a", "default"),
    "default call": ("def g(a=open('x')):\n    return a", "default"),
    "keyword default": ("def g(*, a={}):\n    return a", "default"),
    "default tensor": ("def g(a=torch.zeros(3)):\n    return a", "default"),
    "annotation call": ("def g(a: open('x')):\n    return a", "annotation"),
    "return annotation": ("def g(a) -> open('x'):\n    return a", "annotation"),
    "annotation subscript": ("def g(a: tuple[open('x')]):\n    return a", "annotation"),
    "annotation text": ("def g(a: 'open(1)'):\n    return a", "annotation"),
    "rest": ("def g(*a):\n    return a", "* or **"),
    "rest by name": ("def g(**a):\n    return a", "* or **"),
    "imported prepare": ("from torch import empty_like as prepare", "plain function"),
    "imported run": ("import math as run2, math as prepare", "plain function"),
    "constant prepare": ("prepare = 3", "plain function"),
    "jit prepare": ("@triton.jit\ndef prepare(w):\n    return w", "plain function"),
    "constexpr prepare": ("@triton.constexpr_function\ndef prepare(w):\n    return w", "plain function"),
    # decorators
    "decorator": ("@torch.compile\ndef g(a):\n    return a", "decorator"),
    "decorator no_grad": ("@torch.no_grad()\ndef g(a):\n    return a", "decorator"),
    "decorator lambda": ("@(lambda f: f)\ndef g(a):\n    return a", "decorator"),
    "decorator own": ("@_grid\ndef g(a):\n    return a", "decorator"),
    "decorator twice": ("@triton.jit\n@triton.jit\ndef g(a):\n    pass", "decorator"),
    "decorator outside": ("@torch.compile\n@triton.jit\ndef g(a):\n    pass", "decorator"),
    "decorator over": ("@triton.jit\n@torch.compile\ndef g(a):\n    pass", "decorator"),
    "jit repr": ("@triton.jit(repr=lambda s: 'x')\ndef g(a):\n    pass", "repr"),
    "jit metadata": ("@triton.jit(launch_metadata=print)\ndef g(a):\n    pass", "launch_metadata"),
    "jit debug": ("@triton.jit(debug=True)\ndef g(a):\n    pass", "debug"),
    "jit call": ("@triton.jit(noinline=print(1))\ndef g(a):\n    pass", "noinline"),
    "jit positional": ("@triton.jit(print)\ndef g(a):\n    pass", "literal options"),
    "autotune several": (
        "@triton.autotune(configs=[triton.Config({}), triton.Config({})], key=[])\n@triton.jit\ndef g(a):\n    pass",
        "use TUNABLES",
    ),
    "autotune comprehension": (
        "@triton.autotune([triton.Config({}) for i in (1, 2)], key=[])\n@triton.jit\ndef g(a):\n    pass",
        "use TUNABLES",
    ),
    "autotune none": ("@triton.autotune([], [])\n@triton.jit\ndef g(a):\n    pass", "use TUNABLES"),
    "autotune bare": ("@triton.autotune\n@triton.jit\ndef g(a):\n    pass", "decorator"),
    "autotune hook": (
        "@triton.autotune([triton.Config({})], [], pre_hook=print)\n@triton.jit\ndef g(a):\n    pass",
        "no hooks",
    ),
    "autotune reset": (
        "@triton.autotune([triton.Config({})], [], reset_to_zero=['a'])\n@triton.jit\ndef g(a):\n    pass",
        "no hooks",
    ),
    "autotune prune": (
        "@triton.autotune([triton.Config({})], [], prune_configs_by={})\n@triton.jit\ndef g(a):\n    pass",
        "no hooks",
    ),
    "config hook": (
        "@triton.autotune([triton.Config({}, pre_hook=print)], [])\n@triton.jit\ndef g(a):\n    pass",
        "pre_hook",
    ),
    "config override": (
        "@triton.autotune([triton.Config({}, ir_override='/tmp/a.ptx')], [])\n@triton.jit\ndef g(a):\n    pass",
        "ir_override",
    ),
    "config in table": (
        "@triton.autotune([triton.Config({'extern_libs': 3})], [])\n@triton.jit\ndef g(a):\n    pass",
        "arguments of the kernel",
    ),
    "config call": (
        "@triton.autotune([triton.Config({'a': open(1)})], [])\n@triton.jit\ndef g(a):\n    pass",
        "arguments of the kernel",
    ),
    "constexpr function": (
        "@triton.constexpr_function\ndef g(a):\n    return open(a)\n\n\n@triton.jit\ndef h(a):\n    g(3)",
        "open",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULE)
def test_nothing_runs_on_import(name):
    module, text = MODULE[name]
    assert_refused(candidate(module=module), text)


STATE = {
    "function attribute": ("run.last = out", "state"),
    "kernel attribute": ("_f.last = out", "state"),
    "tensor attribute": ("w.last = out", "state"),
    "tensor attribute read": ("y = w.last", ".last"),
    "global": ("global EPS\nEPS = 2", "global"),
    "setattr": ('setattr(w, "last", out)', "setattr"),
    "module attribute": ("math.last = out", "state"),
    "globals": ('globals()["A"] = out', "element"),
    "locals": ("locals()", "locals"),
    "default": ("g = lambda m, c=[]: (1,)", "table of arguments"),
    "tunables": ('n = TUNABLES["BLOCK"]', "TUNABLES"),
    "kernel cache": ("n = len(_f.cache)", ".cache"),
    "kernel function": ("_f.fn(1)", ".fn"),
    "kernel run": ("_f.run(x, grid=(1,), warmup=False)", ".run"),
    "kernel warmup": ("_f.warmup(x, grid=(1,))", ".warmup"),
    "kernel globals": ("_f.__globals__", "__globals__"),
    "kernel hooks": ("_f.add_pre_run_hook(print)", ".add_pre_run_hook"),
    "kernel list": ("_f.pre_run_hooks.append(3)", ".pre_run_hooks"),
    "kernel called": ("_f(x, out, n)", "launch it with a grid"),
    "launcher attribute": ("_f[(1,)].keywords", ".keywords"),
    "launcher twice": ("_f[(1,)][(1,)](x)", "looks into"),
    "language": ("n = tl.core", "triton.language.core"),
    "triton runtime": ("triton.runtime.driver.active.get_current_device()", "triton.runtime"),
    "triton testing": ("triton.testing.do_bench(3)", "may not ask or time"),
    "knobs": ("triton.knobs.refresh_knobs()", "triton.knobs"),
    "allocator": ("triton.set_allocator(3)", "triton.set_allocator"),
    "stream": ("s = torch.cuda.Stream()", "no streams"),
    "synchronize": ("torch.cuda.synchronize()", "no streams"),
    "properties": ("p = torch.cuda.get_device_properties(0)", "TUNABLES"),
    "stream guard": ("with torch.cuda.stream(3): pass", "with"),
    "no_grad": ("with torch.no_grad(): pass", "with"),
    "autocast": ("with torch.autocast('cuda'): pass", "with"),
    "try launch": ("try:\n    _f[(1,)](x, out, n, BLOCK=64)\nexcept Exception: pass", "try"),
    "try finally": ("try:\n    n = 1\nfinally: n = 2", "try"),
    "default dtype": ("torch.set_default_dtype(torch.float16)", "set_default_dtype"),
    "matmul precision": ("torch.set_float32_matmul_precision('high')", "set_float32"),
    "backend flag": ("torch.backends.cuda.matmul.allow_tf32 = True", "attribute"),
    "open": ('open("/tmp/x")', "open"),
    "input": ("input()", "input"),
    "exec": ('exec("import os")', "exec"),
    "eval": ('eval("1")', "eval"),
    "full-width eval": ('ｅｖａｌ("1")', "eval"),
    "compile builtin": ('compile("1", "a", "exec")', "compile"),
    "breakpoint": ("breakpoint()", "breakpoint"),
    "exit": ("exit()", "exit"),
    "import in run": ("import os", "Import"),
    "from import in run": ("from os import path", "ImportFrom"),
    "subclasses": ("().__class__.__mro__", "__"),
    "string walk": ('"{0.__class__}".format(x)', ".format"),
    "format_map": ('"{a}".format_map({"a": x})', ".format_map"),
    "function in run": ("def g(): return x.sum()", "table of arguments"),
    "grid function of a tensor": ("def g(meta): return (x,)\n_f[g](x, out, n, BLOCK=64)", "only sizes"),
    "grid function with a default": ("def g(meta, a=[]): return (1,)", "table of arguments"),
    "grid function annotated": ("def g(meta: open('a')): return (1,)", "as a lambda"),
    "grid function decorated": ("@torch.compile\ndef g(meta): return (1,)", "as a lambda"),
    "grid function of several lines": ("def g(meta):\n    x.add_(1)\n    return (1,)", "as a lambda"),
    "grid function is called": ("def g(meta): return 1\nn = g(x)", "calls something"),
    "grid function hides": ("def _f(meta): return 1", "another meaning"),
    "typing as value": ("n = torch.Tensor.shape", "torch.Tensor.shape"),
    "is cuda": ("assert x.is_cuda", "also called on meta and CPU"),
    "device kind": ('assert x.device.type == "cuda"', "also called on meta and CPU"),
    "device name": ('t = torch.empty(3, device="cuda")', "device=x.device"),
    "main block": ('n = __name__ == "__main__"', "drop the main block"),
    "class in run": ("class A: pass", "class"),
    "recursion": ("return run(x, w, BLOCK=BLOCK)", "itself"),
    "launch keywords": ("_f[(1,)](x, out, n, **{})", "**"),
    "launch warmup": ("_f[(1,)](x, out, n, BLOCK=64, warmup=True)", "warmup"),
    "launch grid": ("_f[(1,)](x, out, n, BLOCK=64, grid=(1,))", "grid"),
    "launch stream": ("_f[(1,)](x, out, n, BLOCK=64, stream=3)", "stream"),
    "launch override": ('_f[(1,)](x, out, n, BLOCK=64, ir_override="/tmp/a")', "ir_override"),
    "launch libraries": ('_f[(1,)](x, out, n, BLOCK=64, extern_libs={"a": "/tmp/a.bc"})', "extern_libs"),
    "launch precision": (
        '_f[(1,)](x, out, n, BLOCK=64, default_dot_input_precision="tf32")',
        "default_dot_input_precision",
    ),
    "launch type": ("_f[(1,)](x, out, torch.Tensor, BLOCK=64)", "no number or tensor"),
    "launch lambda": ("_f[(1,)](x, out, lambda m: 1, BLOCK=64)", "no number or tensor"),
    "grad": ("t = torch.empty(3, requires_grad=True)", "requires_grad"),
    "pinned": ("t = torch.empty(3, pin_memory=True)", "pin_memory"),
    "device": ('t = torch.empty(3, device=torch.device("cpu"))', "device=x.device"),
    "yield": ("yield out", "generator"),
    "set of tensors": ("if n in {x, w}: pass", "compute"),
    "set in a loop": ("for i in {1, 2}: n = n + i", "a set"),
    "set compared": ("k = n == {1}", "a set"),
    "set in a set": ("k = {1} in {n}", "a set"),
    "await": ("await out", "await"),
    "undefined": ("n = hidden", "hidden"),
    "hides a module": ("torch = 3", "another meaning"),
    "hides a kernel": ("for _f in (1,): pass", "another meaning"),
    "comprehension hides": ("a = [1 for math in (1,)]", "another meaning"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATE)
def test_no_state_no_control_no_outside(name):
    run, text = STATE[name]
    # `await` outside an async function is refused by the parser of some versions only.
    assert_refused(candidate(run=run), text if name != "await" else "")


TEXT = {
    "utf-7": ("# -*- coding: utf_7 -*-\n" + candidate(), "utf_7"),
    "latin-1 on line 2": ("\n# vim: set fileencoding=latin-1 :\n" + candidate(), "latin-1"),
    "null": (candidate(run="n = 1\0"), "U+0000"),
    "form feed": (candidate(run="n = 1 \f"), "U+000C"),
    "lone return": (candidate(run="n = 1  # a\rimport os"), "U+000D"),
    "byte order mark": ("\ufeff" + candidate(), "U+FEFF"),
    "right to left": (candidate(run="n = 1  # \u202e txet"), "U+202E"),
    "zero width": (candidate(run="n\u200bn = 1"), "U+200B"),
    "line separator": (candidate(run='s = "a\u2028b"'), "U+2028"),
    "next line": (candidate(run='s = "a\x85b"'), "U+0085"),
    "surrogate": (candidate(run='s = "\ud800"'), "no text"),
}


@pytest.mark.parametrize("name", TEXT)
def test_every_reader_sees_the_same_text(name):
    source, text = TEXT[name]
    assert_refused(source, text)


DEFS = {
    # Triton compiles from the first `def` at the margin, its interpreter from the last of any kind.
    "docstring": 'def _g(v):\n    """\n    def _g(v):\n        open("/tmp/x")\n        """\n    return v',
    "docstring at the margin": 'def _g(v):\n    """\ndef _g(v):\n    open("/tmp/x")\n    """\n    return v',
    "text": 'def _g(v):\n    tl.static_assert(True, """\n  def _g(v): open(1)\n""")\n    return v',
    "class": 'def _g(v):\n    """\nclass A: pass\n    """\n    return v',
}


@pytest.mark.parametrize("name", DEFS)
def test_a_kernel_holds_no_second_def(name):
    assert_refused(candidate(module="@triton.jit\n" + DEFS[name]), "looks like a def")


def test_a_decorator_holds_no_def():
    text = "@triton.jit(do_not_specialize='''\ndef _g(v):\n    open(1)\n''')\ndef _g(v):\n    return v"
    assert_refused(candidate(module=text), "looks like a def")


def test_a_def_is_followed_by_a_space():
    # Triton's interpreter looks for `def `, and takes the last line where it finds none.
    assert_refused(candidate(module="@triton.jit\ndef\t_g(v):\n    return v"), "one space")


def test_a_decorator_begins_at_its_sign():
    assert_refused(candidate(module="@\\\ntriton.jit\ndef _g(v):\n    return v"), "same line")


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 20000,
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 50000 + "1",
        "x = " + "a." * 20000 + "b",
        "x = " + "[" * 150 + "]" * 150,
        "x = " + "9" * 5000,
        "if 1:\n" + "".join(" " * i + "if 1:\n" for i in range(1, 99)),
    ],
    ids=["size", "parentheses", "minus", "attributes", "lists", "digits", "blocks"],
)
def test_a_large_or_deep_file_is_a_verdict(text):
    assert check(text, None) is not None
    assert check(candidate(module=text), subgraph()) is not None


def test_deep_code_in_run_is_a_verdict():
    assert_refused(candidate(run="n = " + "(" * 90 + "x" + " * 2)" * 90), "torch compute")
    assert check(candidate(run="n = " + "1 + " * 15000 + "1"), subgraph()) is not None


def test_reading_takes_no_exponential_time():
    depth = 30
    calls = "def g0(a):\n    return a\n\n" + "\n\n".join(
        f"def g{i}(a):\n    return g{i - 1}(g{i - 1}(a))" for i in range(1, depth)
    )
    assert_refused(candidate(module=calls, run=f"n = g{depth - 1}(1)"), "too large to be read")
    loops = (
        "\n".join("    " * i + f"for i{i} in (1, 2):" for i in range(20)) + "\n" + "    " * 20 + "n = n + 1"
    )
    check(candidate(run=loops), subgraph())
    doubled = "a = (x, w)\n" + "\n".join(["a = (a, a)"] * 200)
    assert check(candidate(run=doubled), subgraph()) is None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("*, BLOCK)", "*, BLOCK=3)", ""),
        ("*, BLOCK)", "*, BLOCK, EXTRA)", "EXTRA"),
        ("*, BLOCK)", "BLOCK)", "keyword-only"),
        ("(x, w, *", "(x, w, u, *", "x0, p0"),
        ("(x, w, *", "(x, w=None, *", "default"),
        ("def run(", "def main(", "no function run"),
        ("def run(", "@triton.jit\ndef run(", "plain function"),
        ('{"BLOCK": (128, 64)}', "dict(BLOCK=(1,))", "literal"),
        ('{"BLOCK": (128, 64)}', '{"BLOCK": (128, open)}', "literal"),
        ('{"BLOCK": (128, 64)}', '{"BLOCK": ((1, 2),)}', "different numbers"),
        ('{"BLOCK": (128, 64)}', '{"ＢＬＯＣＫ": (128, 64)}', "TUNABLES"),
        ("    return out", "    return 3", "must return"),
        ("    return out", "    return [[out]]", "must return"),
        ("    return out", "    return out.shape", "must return"),
        ("    return out", "    return _f", "must return"),
        ("    return out", "    return lambda m: 1", "must return"),
        ("    return out", "    pass", "must return"),
        ("    _f[GRID](x, out, n, BLOCK=BLOCK)\n", "", "launches no kernel"),
    ],
)  # fmt: skip
def test_contract(old, new, text):
    assert old in HEAD
    verdict = check(candidate(head=HEAD.replace(old, new)), subgraph())
    assert (verdict is None) == (not text)
    assert verdict is None or text in verdict.message


def test_a_second_table_is_no_choice():
    assert not isinstance(tunables(candidate()), tuple) or tunables(candidate()) == (("BLOCK", (128, 64)),)
    assert not isinstance(tunables(candidate(module='TUNABLES = {"BLOCK": (1,)}')), tuple)
