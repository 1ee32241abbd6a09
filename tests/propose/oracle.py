"""Compares template candidates with eager in float64; builds subgraphs without capture or partition.

`Problem` names a function or module and its inputs at two or three sizes. `check(problems)` asks the
template proposer for candidates and runs all of them in one child with the Triton interpreter.
"""

import ast
import copy
import dataclasses
import functools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, Symbol, TensorSpec, Value
from mkevolve.data.ids import content_id
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CompileJob, ProposalRequest
from mkevolve.propose.template import TemplateProposer

CHIP = Chip(
    name="h200", backend="cuda", arch="90", warp_size=32, processors=132, clock_hz=1.98e9, dram_bytes=4.8e12,
    dram_measured=4.0e12, l2_size=50 * 2**20, l2_bytes=7e12, shared_per_program=232448,
    shared_per_processor=233472, registers_per_processor=65536, threads_per_processor=2048,
    programs_per_processor=32, launch_us=2.0,
    matrix=(("float16", 9.9e14), ("bfloat16", 9.9e14), ("tf32", 4.9e14)),
    vector=(("float32", 6.7e13),), source="datasheet",
)  # fmt: skip

Tensors = tuple[torch.Tensor, ...]
KINDS = {"PARAMETER": InputKind.PARAMETER, "BUFFER": InputKind.BUFFER, "CONSTANT_TENSOR": InputKind.CONSTANT}


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """`module` at the given inputs, the first of which is the target. Parameters and inputs may be of any
    dtype; the expected result is that of the module in float64.

    `tolerance` is the largest error allowed, relative to the largest magnitude of the result.
    """

    name: str
    module: torch.nn.Module
    inputs: tuple[Tensors, ...]
    tolerance: float = 2e-6


class Function(torch.nn.Module):
    """A plain function as a module."""

    def __init__(self, call: Callable[..., object]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: torch.Tensor) -> object:
        return self.call(*args)


def function(name: str, call: Callable[..., object], *inputs: Tensors, tolerance: float = 2e-6) -> Problem:
    return Problem(name, Function(call), inputs, tolerance)


# Under pytest's log capture torch would write a structured trace of every export: most of its time.
logging.getLogger("torch.__trace").setLevel(logging.CRITICAL)


@functools.lru_cache
def subgraph(problem: Problem) -> Subgraph:
    """The whole module as one subgraph, named as the canonical form names things."""
    variants = []
    for number, tensors in enumerate(problem.inputs):
        program = torch.export.export(problem.module.eval(), tensors).run_decompositions({})
        variants.append(("target" if number == 0 else f"check_{number}", _graph(program)))
    ops = "+".join(dict.fromkeys(n.op.split(".")[1] for n in variants[0][1].nodes))
    key = [problem.name, [list(t.shape) for t in problem.inputs[0]]]
    return Subgraph(content_id("sg", key), content_id("fam", problem.name), tuple(variants), ops)


def parameters(problem: Problem) -> Tensors:
    """Parameters and buffers in the order of the subgraph's inputs."""
    state = {**dict(problem.module.named_parameters()), **dict(problem.module.named_buffers())}
    graph = subgraph(problem).target
    return tuple(state[str(i.target)].detach() for i in graph.params)


def request(problem: Problem, limit: int = 8, parents: tuple[Candidate, ...] = ()) -> ProposalRequest:
    return ProposalRequest(
        subgraph(problem), parents, (), frozenset(), limit, 0, CHIP, Precision.IEEE
    )  # fmt: skip


def propose(problem: Problem, limit: int = 8) -> tuple[Candidate, ...]:
    return TemplateProposer().propose(request(problem, limit))


def every_point(problem: Problem) -> tuple[Candidate, ...]:
    """The best guess and every single change of it."""
    return propose(problem, limit=1000)


def check(problems: Sequence[Problem], tmp_path: Path, limit: int = 1000) -> dict[str, str]:
    """Run candidates of all problems; `NAME choices` of each that is wrong, with what is wrong.

    Also asserts that every problem has a candidate. All tunables' smallest blocks are tried besides the
    defaults, so that tails and several programs occur.
    """
    jobs = []
    for problem in problems:
        offers = propose(problem, limit)
        assert offers, problem.name
        jobs.append((problem, offers))
    return run(jobs, tmp_path)


def run(jobs: Sequence[tuple[Problem, Sequence[Candidate]]], tmp_path: Path) -> dict[str, str]:
    """Run given candidates on every input of their problem in one child; report what is wrong."""
    table = []
    for number, (problem, offers) in enumerate(jobs):
        cases = [(t, parameters(problem), _expected(problem, t)) for t in problem.inputs]
        torch.save(cases, tmp_path / f"cases_{number}.pt")
        for place, offer in enumerate(offers):
            path = tmp_path / f"candidate_{number}_{place}.py"
            path.write_text(offer.source)
            table.append(
                [f"{problem.name} {_point(offer)}", str(path), f"cases_{number}.pt", problem.tolerance]
            )
    (tmp_path / "jobs.json").write_text(json.dumps(table))
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    child = Path(__file__).with_name("oracle_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, str] = json.loads((tmp_path / "report.json").read_text())
    return report


def compile_errors(jobs: Sequence[tuple[Problem, Sequence[Candidate]]]) -> dict[str, str]:
    """Compile given candidates ahead of time at their default configuration; what does not compile."""
    backend = InterpreterBackend()
    found = {}
    try:
        for problem, offers in jobs:
            variants = tuple(
                (name, tuple(i.spec for i in g.activations), tuple(i.spec for i in g.params))
                for name, g in subgraph(problem).variants
            )
            for offer in offers:
                job = CompileJob(
                    offer.source, default_configuration(offer.source), variants, CHIP, deadline=60.0
                )
                result = backend.compile(job)
                if result.status is not Status.PASSED:
                    found[f"{problem.name} {_point(offer)}"] = f"{result.status}: {result.message}"
    finally:
        backend.close()
    return found


def default_configuration(source: str) -> Configuration:
    """The first value of every tunable."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TUNABLES":
            table = ast.literal_eval(node.value)
            return Configuration(tuple((name, options[0]) for name, options in table.items()))
    return Configuration()


def _point(candidate: Candidate) -> str:
    return " ".join(f"{k}={v}" for k, v in candidate.choices)


def _expected(
    problem: Problem, tensors: Tensors
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """(eager in float64, eager as it is: dtypes and strides)."""
    with torch.no_grad():
        eager = _flat(problem.module(*(t.clone() for t in tensors)))
        module = copy.deepcopy(problem.module).double()
        wide = _flat(module(*(t.double() if t.is_floating_point() else t for t in tensors)))
    return wide, eager


def _flat(result: object) -> tuple[torch.Tensor, ...]:
    items = result if isinstance(result, tuple | list) else (result,)
    return tuple(t for t in items if isinstance(t, torch.Tensor))


def _graph(program: torch.export.ExportedProgram) -> Graph:
    signature = {s.arg.name: s for s in program.graph_signature.input_specs}
    names: dict[str, str] = {}
    inputs: list[Input] = []
    nodes: list[Node] = []
    for fx in program.graph.nodes:
        if fx.op == "placeholder":
            spec = signature[fx.name]
            kind = KINDS.get(spec.kind.name, InputKind.ACTIVATION)
            inputs.append(Input(Value(fx.name, _spec(fx.meta["val"])), kind, spec.target))
            names[fx.name] = fx.name
        elif fx.op == "call_function" and "getitem" in str(fx.target):
            names[fx.name] = f"{names[fx.args[0].name]}.{fx.args[1]}"
        elif fx.op == "call_function" and "_assert" not in str(fx.target):
            names[fx.name] = f"n{len(nodes)}"
            args, kwargs = _arg(fx.args, names), tuple((k, _arg(v, names)) for k, v in fx.kwargs.items())
            op = str(fx.target).replace("aten.reshape.", "aten.view.")
            nodes.append(Node(names[fx.name], op, args, kwargs, _values(names[fx.name], fx.meta["val"])))
        elif fx.op == "output":
            outputs = _arg(fx.args[0], names)
    used = {name for n in nodes for name in n.reads}
    activations = [i for i in inputs if i.kind is InputKind.ACTIVATION]
    rest = [i for i in inputs if i.kind is not InputKind.ACTIVATION and i.name in used]
    graph = Graph((*activations, *rest), tuple(nodes), outputs)
    return _renamed(graph)


def _renamed(graph: Graph) -> Graph:
    count = len(graph.activations)
    new = {i.name: f"x{k}" if k < count else f"p{k - count}" for k, i in enumerate(graph.inputs)}
    inputs = tuple(dataclasses.replace(i, value=Value(new[i.name], i.spec)) for i in graph.inputs)
    nodes = tuple(
        dataclasses.replace(n, args=_swap(n.args, new), kwargs=tuple((k, _swap(v, new)) for k, v in n.kwargs))
        for n in graph.nodes
    )
    return Graph(inputs, nodes, tuple(_swap(o, new) for o in graph.outputs))


def _swap(arg: Arg, new: dict[str, str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(new.get(arg.name, arg.name))
    return tuple(_swap(a, new) for a in arg) if isinstance(arg, tuple) else arg


def _values(name: str, val: object) -> tuple[Value, ...]:
    if isinstance(val, torch.Tensor):
        return (Value(name, _spec(val)),)
    return tuple(Value(f"{name}.{k}", _spec(v)) for k, v in enumerate(val) if v is not None)


def _spec(val: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(val.shape), str(val.dtype).removeprefix("torch."), tuple(val.stride()))


def _arg(arg: object, names: dict[str, str]) -> Arg:
    match arg:
        case torch.fx.Node():
            return Ref(names[arg.name])
        case list() | tuple():
            return tuple(_arg(a, names) for a in arg)
        case torch.dtype() | torch.memory_format() | torch.layout():
            return Symbol(type(arg).__name__, str(arg).removeprefix("torch."))
        case torch.device():
            return Symbol("device", "default")
        case None | bool() | int() | float() | str():
            return arg
    raise TypeError(f"{arg!r}")
