"""Torch compute in `run`, in every disguise, is refused with its line."""
# ruff: noqa: E501

import pytest
from static_subjects import assert_refused, candidate

IN_RUN = {
    # operators
    "matmul": ("out = x @ w", "torch compute"),
    "matmul in place": ("out @= w", "torch compute"),
    "add in place": ("out += 1", "torch compute"),
    "shift": ("out = x << 1", "torch compute"),
    "invert": ("out = ~x", "torch compute"),
    "not": ("out = not x", "torch compute"),
    "and": ("out = x and w", "torch compute"),
    "in": ("n = 3 in x", "torch compute"),
    "equal": ("n = x == w", "torch compute"),
    "chained": ("n = 0 < x < 1", "torch compute"),
    "power": ("out = x ** 2", "torch compute"),
    "reflected": ("out = 2 - x", "torch compute"),
    "percent": ('s = "%s" % x', "torch compute"),
    "slice assignment": ("out[:] = x + 1", "torch compute"),
    "slice copy": ("out[:] = x", "element"),
    "element in place": ("out[0] += 1", "in place"),
    "starred target": ("*out[0], b = x, x", "element"),
    "loop target": ("for out[0] in x: pass", "element"),
    # methods
    "in-place method": ("out.add_(x)", ".add_"),
    "copy": ("out.copy_(x)", ".copy_"),
    "fill": ("out.zero_()", ".zero_"),
    "cast": ("out = x.to(torch.float16)", "cast inside the kernel"),
    "half": ("out = x.half()", "cast inside the kernel"),
    "cpu": ("out = x.cpu()", ".cpu"),
    "clone": ("out = x.clone()", ".clone"),
    "dunder": ("out = x.__matmul__(w)", "__matmul__"),
    "bound method": ("f = x.add\nout = f(w)", ".add"),
    "view called later": ("f = x.view\nout = f(-1)", "calls something"),
    "method of a view": ("out = x.view(-1).T.relu()", ".relu"),
    "method of an allocation": ("out = torch.empty_like(x).normal_()", ".normal_"),
    "method with tensor": ("out = x.new_full((3,), w[0])", "tensor's value"),
    "size with tensor": ("n = x.size(w)", "tensor's value"),
    "data": ("out = x.data", ".data"),
    "grad": ("out = x.grad", ".grad"),
    "real": ("out = x.real", ".real"),
    "item": ("n = x.item()", "stay on the device"),
    "tolist": ("n = x.tolist()", "stay on the device"),
    "numpy": ("n = x.numpy()", "stay on the device"),
    # functions
    "functional": ("out = torch.nn.functional.gelu(x)", "torch.nn.functional.gelu"),
    "ops": ("out = torch.ops.aten.add.Tensor(x, w)", "torch.ops"),
    "C": ("out = torch._C._nn.gelu(x)", "torch._C"),
    "out=": ("torch.add(x, w, out=out)", "torch.add"),
    "allocation with out=": ("torch.zeros(3, out=out)", "out="),
    "view with out=": ("torch.squeeze(x, out=out)", "out="),
    "unbound method": ("out = torch.Tensor.add(x, w)", "torch.Tensor.add"),
    "class as value": ("T = torch.Tensor\nout = T.type(x, torch.float16)", ".type"),
    "class called": ("out = torch.Tensor(x)", "torch.Tensor"),
    "compile": ("out = torch.compile(x)", "torch.compile"),
    "jit": ("out = torch.jit.script(x)", "torch.jit"),
    "module": ("out = torch.nn.Linear(3, 3)(x)", "torch.nn.Linear"),
    "vmap": ("out = torch.vmap(torch.relu)(x)", "torch."),
    "where": ("out = torch.where(x, x, w)", "torch.where"),
    "tensor": ("out = torch.tensor([1.0])", "torch.tensor"),
    "cat": ("out = torch.cat([x, w])", "let a kernel write"),
    "broadcast tensors": ("a, b = torch.broadcast_tensors(x, w)", "broadcast_tensors"),
    "finfo of values": ("e = torch.finfo(x)", "tensor's value"),
    "math of a tensor": ("n = math.sqrt(x)", "tensor's value"),
    "cdiv of a tensor": ("n = triton.cdiv(x, 2)", "tensor's value"),
    "shape from a tensor": ("out = torch.empty(w)", "tensor's value"),
    # functions as values
    "map": ("out = list(map(torch.relu, [x]))", "map"),
    "filter": ("out = list(filter(None, [x]))", "filter"),
    "sorted key": ("out = sorted([x], key=torch.relu)", "torch.relu"),
    "max key": ("n = max((1, 2), key=lambda t: 1)", "kernel or function"),
    "max of tensors": ("out = max(x, w)", "reads its values"),
    "any": ("n = any([x])", "reads its values"),
    "all of a generator": ("n = all(t for t in x)", "reads its values"),
    "sum start": ("out = sum((1, 2), x)", "reads its values"),
    "abs": ("out = abs(x)", "reads its values"),
    "pow": ("out = pow(x, 2)", "reads its values"),
    "divmod": ("out = divmod(x, 2)", "reads its values"),
    "round": ("out = round(x)", "reads its values"),
    "bool": ("n = bool(x)", "reads its values"),
    "float": ("n = float(x[0, 0])", "reads its values"),
    "str": ("n = str(x)", "reads its values"),
    "tuple of functions": ("f = (torch.relu, torch.abs)[0]", "torch.relu"),
    "dict of functions": ('f = {"a": torch.relu}["a"]', "torch.relu"),
    "builtin as value": ("f = abs\nout = f(x)", "as a value"),
    "host function as value": ("f = _grid\nout = f(x, 2)", "as a value"),
    "lambda called": ("f = lambda a: 1\nout = f(x)", "calls something"),
    "lambda at once": ("out = (lambda a: 1)(x)", "calls something"),
    "print": ("print(x)", "print"),
    "getattr": ('out = getattr(x, "relu")()', "getattr"),
    "vars": ("vars(x)", "vars"),
    "type": ("out = type(x)(3)", "type"),
    "callable chain": ("out = x.view(-1)(3)", "calls something"),
    # hidden in data
    "list": ("out = [x, w][1] * 2", "torch compute"),
    "dict": ('out = {"a": x}["a"] + 1', "torch compute"),
    "dict method": ('out = {"a": x}.get("a") + 1', ".get"),
    "nested": ("out = ((1, (2, x)),)[0][1][1] * 2", "torch compute"),
    "comprehension of tuples": ("out = [(1, x) for i in (1,)][0][1] * 2", "torch compute"),
    "comprehension": ("out = [t + 1 for t in (x, w)]", "torch compute"),
    "comprehension test": ("out = [1 for t in (x,) if t]", "branches"),
    "nested comprehension": ("out = [[u * 2 for u in t] for t in (x, w)]", "torch compute"),
    "generator": ("out = tuple(t * 2 for t in (x, w))", "torch compute"),
    "lazy generator": ("out = (t for t in (x, w))", "generator"),
    "zip": ("for a, b in zip((1, 2), (x, w)): n = b * 2", "torch compute"),
    "enumerate": ("out = [t * i for i, t in enumerate((x, w))]", "torch compute"),
    "rest": ("*a, b = ((1, x), 2)\nout = a[0][1] * 2", "torch compute"),
    "starred list": ("a = [*((1, x),), (1, x)]\nout = a[0][1] * 2", "torch compute"),
    "negative index": ("out = (x, 1)[-2] * 2", "torch compute"),
    "computed index": ("out = (1, x)[n - n + 1] * 2", "torch compute"),
    "slice of a tuple": ("out = (1, x)[1:][0] * 2", "torch compute"),
    "concatenation": ("out = ((1,) + (x,))[1] * 2", "torch compute"),
    "repetition": ("out = ((x,) * 2)[0] * 2", "torch compute"),
    "list and tensor": ("out = [x] + w", "torch compute"),
    "choice": ("out = (x if n else 3) * 2", "torch compute"),
    "branch": ("a = 1\nif n: a = x\nout = a * 2", "torch compute"),
    "loop carried": ("a = b = c = 1\nfor i in range(3):\n    s = a + 1; a = b; b = c; c = x", "torch compute"),
    "while": ("a = 1\nwhile n > 3:\n    n = n // 2\n    a = x\nout = a * 2", "torch compute"),
    "left by break": ("a = 1\nfor i in (1, 2):\n    a = x\n    if n: break\n    a = 1\nout = a * 2", "torch compute"),
    "left by continue": ("a = 1\nfor i in (1, 2):\n    b = a * 2\n    a = x\n    if n: continue\n    a = 1", "torch compute"),
    "left by an inner break": ("a = 1\nwhile n:\n    for i in (1, 2):\n        a = x\n        break\n    a = a * 2", "torch compute"),
    "test after continue": ("a = 1\nwhile a * 2 < 8:\n    a = x\n    if n: continue\n    a = 1", "torch compute"),
    "branch after continue": ("a = 1\nwhile a:\n    a = x\n    if n: continue\n    a = 1", "branches"),
    "else after continue": ("a = 1\nfor i in (1, 2):\n    a = x\n    if n: continue\n    a = 1\nelse:\n    out = a * 2", "torch compute"),
    "else of a while": ("a = 1\nwhile n:\n    a = x\n    n = n - 1\nelse:\n    out = a * 2", "torch compute"),
    "list in place": ("a = [1]\nb = a\nb += [x]\nout = a[1] * 2", "extends a list"),
    "list shifted in place": ("a = [1, x]\nb = a\nb += [1]\nout = a[-2] * 2", "extends a list"),
    "list repeated in place": ("a = [1, x]\nb = a\nb *= 2\nout = a[-1] * 2", "extends a list"),
    "list method": ("a = [1]\na.append(x)\nout = a[1] * 2", ".append"),
    "loop over a tensor": ("for row in x: out = row * 2", "torch compute"),
    "unpacked tensor": ("a, b = x\nout = a * 2", "torch compute"),
    "large tuple": (f"a = ({'1, ' * 80}x)\nout = a[80] * 2", "torch compute"),
    # statements that evaluate
    "assert": ("assert x.sum() > 0", ".sum"),
    "assert on values": ("assert x[0, 0]", "branches"),
    "assert message": ('assert n, f"{x + 1}"', "torch compute"),
    "raise": ("if n < 0: raise ValueError(x * 2)", "torch compute"),
    "raise other": ("raise SystemExit(0)", "Raise"),
    "raise from": ("raise ValueError() from x.sum()", "Raise"),
    "f-string": ('s = f"{x * 2}"', "torch compute"),
    "f-string hook": ('s = f"{n:{x * 2}}"', "torch compute"),
    "f-string nested": ("s = f\"{f'{x * 2}'}\"", "torch compute"),
    "f-string conversion": ('s = f"{x!r}"', "torch compute"),
    "annotation": ("a: x.sum() = 3", "annotation"),
    "walrus": ("if (y := x * 2) is None: pass", ":="),
    "match": ("match n:\n    case 1: out = x * 2", "match"),
    "is": ("n = (x * 2) is None", "torch compute"),
    "index": ("out = x[w]", "indexes"),
    "index in a tuple": ("out = x[0, w]", "indexes"),
    "index in a list": ("i = [0, w]\nout = x[i]", "indexes"),
    "mask": ("out = x[x > 0]", "torch compute"),
    "subscript of a slice": ("out = x[w[0]:]", "torch compute"),
    "starred call": ("out = max(*[x, w])", "reads its values"),
    "keywords": ('out = dict(**{"a": x})', "**"),
    "dict call": ("out = dict(a=x)", "reads its values"),
    "lambda reads later": ("a = 1\ng = lambda m: (a + 1,)\na = x\n_f[g](x, out, n, BLOCK=BLOCK)", "torch compute"),
    "launch result": ("k = _f[(1,)](x, out, n, BLOCK=64)\nn = k.asm", ".asm"),
    "launch result used": ("n = _f[(1,)](x, out, n, BLOCK=64) + 1", "computes with"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_RUN)
def test_compute_in_run(name):
    run, text = IN_RUN[name]
    assert_refused(candidate(run=run), text)


GRIDS = {
    "tensor": ("(x,)", "tensors"),
    "lambda over a tensor": ("lambda meta: (x.sum(),)", ".sum"),
    "lambda gives a tensor": ("lambda meta: (x,)", "gives a tensor"),
    "argument of the launch": ('lambda meta: (int(meta["x"][0, 0]),)', "reads its values"),
    "operator on an argument": ('lambda meta: ((meta["x"] + 1).shape[0],)', "torch compute"),
    "computed name": ('lambda meta: (meta["x" + ""],)', "written out"),
    "walk": ('lambda meta: (meta.get("x"),)', ".get"),
    "all arguments": ("lambda meta: (len([t + 1 for t in meta]),)", "computes with"),
    "default": ("lambda meta, t=x: (t.shape[0],)", "lambda"),
    "two arguments": ("lambda meta, t: (1,)", "lambda"),
    "star": ("lambda *meta: (1,)", "lambda"),
    "nested lambda": ("lambda meta: ((lambda m: 1)(meta),)", "calls something"),
    "launch": ("lambda meta: (_f[(1,)](x, out, n, BLOCK=64),)", "gives a tensor"),
    "function": ("torch.relu", "torch.relu"),
    "kernel": ("_f", "tensors"),
}


@pytest.mark.parametrize("name", GRIDS)
def test_compute_in_a_grid(name):
    grid, text = GRIDS[name]
    assert_refused(candidate(grid=grid), text)


HEURISTICS = {
    "tensor": ('@triton.heuristics({"FLAG": lambda a: a["x"].sum()})', ".sum"),
    "operator": ('@triton.heuristics({"FLAG": lambda a: (a["x"] > 0).shape[0]})', "torch compute"),
    "gives a tensor": ('@triton.heuristics({"FLAG": lambda a: a["o"]})', "gives a tensor"),
    "builtin": ('@triton.heuristics({"FLAG": lambda a: open("/tmp/x")})', "open"),
    "torch": ('@triton.heuristics({"FLAG": lambda a: torch.manual_seed(0)})', "manual_seed"),
    "function": ('@triton.heuristics({"FLAG": torch.relu})', "lambda"),
    "unknown argument": ('@triton.heuristics({"GONE": lambda a: 1})', "name arguments"),
    "no table": ("@triton.heuristics(dict(FLAG=1))", "one table"),
    "spread": ("@triton.heuristics({**{}})", "name arguments"),
}


@pytest.mark.parametrize("name", HEURISTICS)
def test_compute_in_heuristics(name):
    decorators, text = HEURISTICS[name]
    assert_refused(candidate(decorators=decorators), text)


PREPARE = {
    "lambda": ("return lambda t: t", "lambda"),
    "module": ("return torch.nn.ReLU()", "torch.nn.ReLU"),
    "function": ("return torch.relu", "torch.relu"),
    "bound method": ("return w.relu, 3", "tensors"),
    "number": ("return 3", "tensors"),
    "tuple of tuples": ("return ((w, w), w)", "tensors"),
    "dict": ('return {"a": 3}', "tensors"),
    "kernel": ("return _f", "tensors"),
    "compile": ("return torch.compile(w)", "torch.compile"),
    "ops": ("return torch.ops.aten.relu(w)", "torch.ops"),
    "load": ('return torch.load("a")', "torch.load"),
    "file": ('return torch.from_file("a")', "torch.from_file"),
    "random": ("return torch.randn(3)", "torch.randn"),
    "random in place": ("return w.uniform_()", ".uniform_"),
    "seed": ("torch.manual_seed(0)\nreturn w", "manual_seed"),
    "state": ("torch.set_float32_matmul_precision('high')\nreturn w", "set_float32_matmul"),
    "flag": ("torch.backends.cuda.matmul.allow_tf32 = True\nreturn w", "attribute"),
    "threads": ("torch.set_num_threads(64)\nreturn w", "set_num_threads"),
    "hook": ("w.register_hook(lambda g: g)\nreturn w", ".register_hook"),
    "apply": ("w.apply_(lambda g: g)\nreturn w", ".apply_"),
    "subclass": ("return w.as_subclass(torch.Tensor)", ".as_subclass"),
    "numpy": ("return torch.tensor(w.numpy())", ".numpy"),
    "launch": ("_f[(1,)](w, w, 3, BLOCK=64)\nreturn w", "only run"),
    "grad": ("return w.requires_grad_()", ".requires_grad_"),
    "storage": ("return w.untyped_storage()", ".untyped_storage"),
    "set": ("return w.set_(w)", ".set_"),
    "stream": ("return torch.cuda.Stream()", "torch.cuda"),
    "private": ("return torch._C._nn.gelu(w)", "torch._C"),
}


@pytest.mark.parametrize("name", PREPARE)
def test_prepare_gives_tensors_and_does_nothing_else(name):
    body, text = PREPARE[name]
    module = "def prepare(w):\n" + "\n".join(f"    {line}" for line in body.split("\n"))
    assert_refused(candidate(module=module), text)


def test_a_closure_that_prepare_might_return_is_not_called():
    module = "def prepare(w):\n    return w"
    assert_refused(candidate(module=module, run="out = w(x)"), "calls something")
