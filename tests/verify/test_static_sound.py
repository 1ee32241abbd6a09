"""Mutants of honest code: what the static step accepts computes nothing in torch when it is run."""

import ast
import copy
import inspect
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import test_static_honest as honest
import torch
import triton
from static_subjects import candidate, subgraph
from torch.utils._python_dispatch import TorchDispatchMode

from mkevolve.data.verdict import Status
from mkevolve.verify.static import check, nan_notes

SOURCES = [candidate(run=run, module=honest.MODULE) for run in honest.RUN.values()]
MORE = ("[*x]", "{1: x}", "-x", "x.T", "x[...]", "f'{x!r:>{n}}'", "(x, 1)[1]", "w @ x", "x.sum()", "[x, w]")
MORE += (
    "lambda m: x",
    "lambda m: (n,)",
    "torch.relu",
    "_f",
    "(1, x)",
    "[t for t in x]",
    "(x, n)[n]",
    "[*x, n]",
)
FAILING = {"every allocation"}  # channels_last wants four dimensions
ALLOCATIONS = {"empty", "zeros", "ones", "full", "fill_", "zero_"}


class Watch(TorchDispatchMode):
    """Notes every op that is no allocation and no view."""

    def __init__(self):
        super().__init__()
        self.seen = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else the first op imports all of torch.compile

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        returns = func._schema.returns
        view = returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        stem = name.removeprefix("new_").removesuffix("_like").removesuffix("_strided")
        if not view and stem not in ALLOCATIONS and name != "clone":  # copies are for the run to refuse
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


class Kernel:
    """Takes the place of a jit function: a launch evaluates its grid, and does nothing."""

    def __init__(self, function):
        self.names = list(inspect.signature(function).parameters)

    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            if callable(grid):
                grid(dict(zip(self.names, args, strict=False)) | kwargs)

        return launch


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def computed(source, monkeypatch):
    """Torch ops that `run` calls; it may well fail."""
    watch = Watch()
    names = {"__name__": "candidate"}
    with monkeypatch.context() as patched:
        patched.setattr(triton, "jit", Kernel)
        exec(compile(source, "candidate", "exec"), names)
    try:
        with deadline(1.0), torch.no_grad(), watch:
            names["run"](torch.ones(4, 8), torch.ones(4, 8), BLOCK=128)
    except Exception as error:  # noqa: BLE001 - code that was put together at random
        return watch.seen, error
    return watch.seen, None


@pytest.mark.parametrize("name", honest.RUN)
def test_honest_code_computes_nothing(name, monkeypatch):
    seen, error = computed(candidate(run=honest.RUN[name], module=honest.MODULE), monkeypatch)
    assert seen == []
    assert error is None or name in FAILING, error


def mutant(rng, trees, pool):
    tree = copy.deepcopy(rng.choice(trees))
    body = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
    for _ in range(rng.randint(1, 2)):
        spots = [
            (node, field, at)
            for node in ast.walk(body)
            for field, value in ast.iter_fields(node)
            for at, item in enumerate(value if isinstance(value, list) else [value])
            if isinstance(item, ast.expr)
            and not isinstance(node, ast.JoinedStr | ast.FormattedValue)
            and field not in ("target", "targets", "annotation", "returns")
        ]
        node, field, at = rng.choice(spots)
        new = copy.deepcopy(rng.choice(pool))
        value = getattr(node, field)
        if isinstance(value, list):
            value[at] = new
        else:
            setattr(node, field, new)
    return ast.unparse(ast.fix_missing_locations(tree))


def compiles(source):
    try:
        compile(source, "candidate", "exec")
    except SyntaxError:  # a star out of place: the child that imports the file says so
        return False
    return True


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_mutants_that_are_accepted_compute_nothing(monkeypatch):
    rng = random.Random(5)
    trees = [ast.parse(source) for source in SOURCES]
    runs = [n for t in trees for n in t.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    pool = [n for run in runs for n in ast.walk(run) if isinstance(n, ast.expr)]
    pool += [ast.parse(text, mode="eval").body for text in MORE] * 10
    accepted = 0
    for _ in range(150):
        source = mutant(rng, trees, pool)
        verdict = check(source, subgraph())
        nan_notes(source)
        if verdict is not None or not compiles(source):
            assert verdict is None or verdict.status is Status.STATIC_ERROR
            continue
        accepted += 1
        seen, _ = computed(source, monkeypatch)
        assert seen == [], source
    assert accepted > 10
