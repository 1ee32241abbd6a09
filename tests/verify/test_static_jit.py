"""Bodies of jit functions run as Python in the interpreter: only the language, and nothing of the host."""
# ruff: noqa: E501

import pytest
from static_subjects import assert_refused, candidate, subgraph

from mkevolve.verify.jit import open_dots
from mkevolve.verify.reader import parse
from mkevolve.verify.static import check, nan_notes

REFUSED = {
    "open": ('open("/tmp/x")', "open"),
    "print": ("print(v)", "remove it"),
    "device print": ('tl.device_print("v", v)', "remove it"),
    "static print": ('tl.static_print("v")', "remove it"),
    "assembly": ('v = tl.inline_asm_elementwise("", "", [v], tl.float32, True, 1)', "write Triton"),
    "exec": ('exec("1")', "exec"),
    "import": ("import os", "Import"),
    "getattr": ('getattr(tl, "core")', "getattr"),
    "dunder": ("v.__class__", "__class__"),
    "handle": ("v = v.handle", ".handle"),
    "handle data": ("v.handle.data", ".data"),
    "item": ("n = v.item()", ".item"),
    "core": ("v = tl.core.load(x)", "triton.language.core"),
    "standard": ("v = tl.standard.sum(v)", "triton.language.standard"),
    "semantic": ("v = tl.semantic", "triton.language.semantic"),
    "torch": ("v = torch.relu(v)", "torch"),
    "torch as value": ("v = torch", "torch"),
    "math": ("v = math.sqrt(n)", "math.sqrt"),
    "math module": ("v = math", "math"),
    "triton runtime": ("triton.runtime.driver.active", "triton.runtime"),
    "triton testing": ("triton.testing.do_bench(v)", "triton.testing"),
    "clock": ("v = tl.extra.cuda.globaltimer()", "globaltimer"),
    "processor": ("v = tl.extra.cuda.smid()", "smid"),
    "libdevice internals": ("v = tl.extra.libdevice.core", "core"),
    "target": ("v = tl.target_info.current_target()", "target_info"),
    "pointer from number": ("v = tl.load(n.to(tl.pointer_type(tl.float32)))", "pointers come from arguments"),
    "pointer to pointers": ("q = tl.pi32_t", "pointers come from arguments"),
    "tensor of a handle": ("v = tl.tensor(v, tl.float32)", "tensor"),
    "dtype called": ("v = tl.float32(v)", "float32"),
    "lambda": ("f = lambda a: a", "Lambda"),
    "nested function": ("def g(): pass", "a def"),
    "comprehension": ("v = [a for a in (1,)]", "ListComp"),
    "generator": ("v = tuple(a for a in (1,))", "Generator"),
    "dict": ("v = {}", "Dict"),
    "walrus": ("v = (a := v)", ":="),
    "starred": ("v = tl.dot(*v)", "Starred"),
    "keywords": ("v = tl.sum(v, **n)", "**"),
    "try": ("try: v = 1\nexcept: v = 2", "try"),
    "with": ("with v: pass", "with"),
    "raise": ("raise v", "Raise"),
    "break": ("while n > 0: break", "while loop"),
    "continue": ("for j in range(3): continue", "use `if`"),
    "global": ("global EPS", "global"),
    "delete": ("del v", "del"),
    "two targets": ("a = b = v", "one name"),
    "element": ("v[0] = 1", "element"),
    "attribute": ("v.a = 1", "state"),
    "host function": ("v = _grid(n, 2)", "_grid"),
    "call of a call": ("v = _twice(v)(v)", "call of an expression"),
    "call of an element": ("v = (tl.sum, 1)[0](v)", "call of an expression"),
    "call of a local": ("f = tl.sum\nv = f(v)", "f(...)"),
    "call of an argument": ("v = n(v)", "n(...)"),
    "hides a kernel": ("_twice = v", "another meaning"),
    "hides the language": ("tl = v", "another meaning"),
    "undefined": ("v = hidden", "hidden"),
    "builtin": ("v = sum(v)", "sum"),
    "isinstance": ("v = isinstance(v, n)", "isinstance"),
    "tunables": ("v = TUNABLES", "TUNABLES"),
    "kernel attribute": ("v = _twice.fn", ".fn"),
    "kernel launch": ("_twice[(1,)](v)", "call of an expression"),
    "f-string call": ("tl.static_assert(True, f\"{open('a')}\")", "open"),
    "default argument": ("tl.static_assert(True, str(v))", "str"),
    "annotation": ("a: open('a') = v", "open"),
    "yield": ("yield v", "generator"),
    "pointers by methods": ("v = v.set_(v)", ".set_"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_kernel(name):
    jit, text = REFUSED[name]
    assert_refused(candidate(jit=jit), text)


HONEST = {
    "cast to wider": "v = v.to(tl.float64).to(tl.float32)",
    "bitcast": "b = v.to(tl.int32, bitcast=True)",
    "reduce": "m = tl.max(v, axis=0)\nv = v - m",
    "method reduce": "v = v - v.max(0)",
    "combine": "s = tl.reduce(v, 0, _add)\nc = tl.associative_scan(v, 0, _add)",
    "while": "k = 0\nwhile k < n:\n    k += BLOCK",
    "range": "for k in tl.range(0, n, BLOCK, num_stages=2):\n    v += tl.load(x + k + i)",
    "static range": "for k in tl.static_range(4):\n    v += k",
    "assert": 'tl.static_assert(BLOCK % 16 == 0, f"BLOCK is {BLOCK}")\nassert BLOCK > 0',
    "device assert": "tl.device_assert(n > 0)",
    "constexpr": "H: tl.constexpr = BLOCK // 2\nv = tl.reshape(v, (2, H))",
    "if constexpr": "if FLAG:\n    v = v * 2\nelse:\n    v = v + 1",
    "libdevice": "v = libdevice.tanh(v) + tl.extra.cuda.libdevice.erf(v)",
    "math": "v = tl.math.exp2(v) * math.pi",
    "infinity": 'v = tl.where(i < n, v, float("-inf"))',
    "atomics": "tl.atomic_add(o + i, v, mask=i < n)\ntl.atomic_max(o, 1)",
    "descriptor": "d = tl.make_tensor_descriptor(x, shape=[n], strides=[1], block_shape=[BLOCK])\nv = d.load([0])",
    "hints": "i = tl.max_contiguous(tl.multiple_of(i, BLOCK), BLOCK)\ntl.assume(n > 0)",
    "dot": 'a = tl.dot(v[:, None], v[None, :], input_precision="tf32x3", out_dtype=tl.float32)',
    "broadcast": "a = v[:, None] + v[None, :]",
    "cdiv": "k = tl.cdiv(n, BLOCK) + triton.cdiv(n, BLOCK)",
    "dtype": "v = v.to(o.dtype.element_ty)",
    "kind of dtype": "if x.dtype.element_ty == tl.float16:\n    v = v * 2",
    "activation": "v = _apply(v, _twice)",
    "early return": "if n == 0:\n    return",
    "tuple": "a, b = (v, v * 2)",
    "min": "k = min(n, BLOCK)",
    "num programs": "k = tl.num_programs(0)",
    "cache hints": 'v = tl.load(x + i, mask=i < n, other=0.0, eviction_policy="evict_last", cache_modifier=".cg")',
    "constexpr function": "v = v * _log2(BLOCK)",
}  # fmt: skip
MODULE = """from triton.language.extra import libdevice


@triton.constexpr_function
def _log2(n):
    return n.bit_length() - 1


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _apply(v, ACT: tl.constexpr):
    return ACT(v)"""


@pytest.mark.parametrize("name", HONEST)
def test_honest_in_a_kernel(name):
    assert check(candidate(jit=HONEST[name], module=MODULE), subgraph()) is None


def test_dots_that_say_their_precision():
    said = ['input_precision="ieee"', 'allow_tf32=False', 'acc=v, input_precision=PRECISION']  # fmt: skip
    unsaid = ["", "acc=v", "input_precision=None", "allow_tf32=None"]
    dots = [f"v = tl.dot(v, v, {s})" for s in (*said, *unsaid)]
    dots.append("v = tl.dot(\n        v,\n        v,\n    )")
    source = candidate(jit="\n".join(dots), module='PRECISION = "ieee"')
    lines = source.splitlines()
    found = open_dots(parse(source))
    first = next(i for i, line in enumerate(lines, 1) if "v = tl.dot(v, v, )" in line)
    assert found == tuple(range(first, first + 8))


def test_dots_under_another_name_are_seen():
    source = candidate(jit="v = product(v, v)", module="from triton.language import dot as product")
    line = open_dots(parse(source))[0]
    assert "product(v, v)" in source.splitlines()[line - 1]


def test_nan_notes_name_the_lines():
    jit = """v = tl.maximum(v, 0.0)
v = tl.minimum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
v = tl.maximum(v, 0.0, tl.PropagateNan.ALL)
v = tl.clamp(v, 0.0, 1.0, propagate_nan=tl.PropagateNan.NONE)
v = tl.where(v > 0, v, 0.0)"""
    source = candidate(jit=jit)
    notes = nan_notes(source)
    assert len(notes) == 2
    for note, text in zip(notes, ("tl.maximum", "tl.clamp"), strict=True):
        number = int(note.split(":")[0].removeprefix("line "))
        assert text in source.splitlines()[number - 1]
        assert note.startswith(f"line {number}: {text} drops NaN on a device unless propagate_nan=")
    assert nan_notes("x = (") == ()
