"""What can be verified of a model, and what a kernel for one subgraph must be."""

import json
from collections.abc import Iterable, Sequence

from mkevolve.data.codec import Json, encode_spec
from mkevolve.data.graph import Arg, Node, Ref, Symbol, TensorSpec
from mkevolve.data.verification import Subject
from mkevolve.report.skeleton import skeleton

_RULES = """\
rules
  run may allocate (empty*, zeros, full, new_*), take views and launch Triton kernels; nothing else.
  Its keywords are the names in TUNABLES. It returns the results, with the shapes, dtypes and strides above,
  as a tensor or a flat tuple, in that order. No result shares memory with an input or with another result.
  No input is written.
  prepare is optional: once per weight load it may make of the parameters what run then gets in their place,
  with any torch op. The file must be right at every variant."""


def subgraphs(model: str, subjects: Sequence[Subject], as_json: bool) -> str:
    """A table (or one JSON object) of what `subgraph=` can name, at the target sizes."""
    if as_json:
        rows: list[Json] = [
            {
                "id": s.subgraph.id,
                "slots": [*s.slots],
                "ops": s.subgraph.ops,
                "weight": len(s.slots),
                "inputs": [encode_spec(i.spec) for i in s.subgraph.target.inputs],
                "outputs": [encode_spec(v.spec) for v in s.subgraph.target.output_values],
            }
            for s in subjects
        ]
        return json.dumps({"status": "done", "model": model, "subgraphs": rows}, indent=2)
    table = [("subgraph", "weight", "slots", "ops", "activations -> results (target sizes)")]
    for s in subjects:
        graph = s.subgraph.target
        flow = (
            f"{', '.join(_sized(i.spec) for i in graph.activations)} -> "
            f"{', '.join(_sized(v.spec) for v in graph.output_values)}"
        )
        table.append((s.subgraph.id, str(len(s.slots)), ", ".join(s.slots), s.subgraph.ops, flow))
    return "\n".join(
        [
            *_columns(table),
            "",
            "subgraph= takes an id, the beginning of one, a slot's name, or whole (the default)",
        ]
    )


def contract(model: str, subject: Subject, as_json: bool) -> str:
    """Signature, tensors, ops and a skeleton file; as text or as one JSON object."""
    subgraph = subject.subgraph
    graph = subgraph.target
    if as_json:
        return json.dumps(
            {
                "status": "done",
                "model": model,
                "subgraph": {"id": subgraph.id, "slots": [*subject.slots], "ops": subgraph.ops},
                "run": _run(subject),
                "prepare": _prepare(subject),
                "tensors": _tensors(subject),
                "ops": [_line(node) for node in graph.nodes],
                "skeleton": skeleton(subgraph),
            },
            indent=2,
        )
    lines = [
        f"contract of {subgraph.id} in {model}, slots {', '.join(subject.slots)}: {subgraph.ops}",
        "",
        _run(subject),
    ]
    if graph.params:
        lines.append(f"{_prepare(subject)}, and then {_run(subject, prepared=True)}")
    lines += [
        "",
        *_columns(_table(subject)),
        "",
        _RULES,
        "",
        "ops (sizes of the target; scalars are baked in)",
    ]
    lines += [
        f"  {_line(node)}{'  # sizes differ by variant' if _differs(subject, at) else ''}"
        for at, node in enumerate(graph.nodes)
    ]
    results = (f"result {i} is {v.name}" for i, v in enumerate(graph.output_values))
    lines += [f"  {', '.join(results)}", "", "skeleton", "", skeleton(subgraph)]
    return "\n".join(lines).rstrip("\n")


def _run(subject: Subject, prepared: bool = False) -> str:
    graph = subject.subgraph.target
    given = graph.activations if prepared else graph.inputs
    names = [i.name for i in given] + (["<what prepare returned>"] if prepared else [])
    return f"run({', '.join([*names, '*', '<the names in TUNABLES>'])})"


def _prepare(subject: Subject) -> str:
    params = subject.subgraph.target.params
    return f"prepare({', '.join(i.name for i in params)})" if params else ""


def _rows(subject: Subject) -> Iterable[tuple[str, str, str, list[TensorSpec]]]:
    """Name, role, what it is in the model, and the spec at each variant, of inputs and results."""
    graphs = [g for _, g in subject.subgraph.variants]
    for at, given in enumerate(graphs[0].inputs):
        yield given.name, given.kind.value, subject.inputs[at], [g.inputs[at].spec for g in graphs]
    for at, name in enumerate(subject.outputs):
        yield f"result {at}", "result", name, [g.output_values[at].spec for g in graphs]


def _tensors(subject: Subject) -> Json:
    names = [name for name, _ in subject.subgraph.variants]
    return [
        {
            "name": name,
            "role": role,
            "in_model": origin,
            "dtype": specs[0].dtype,
            "variants": {
                variant: {"shape": [*spec.shape], "stride": [*spec.stride]}
                for variant, spec in zip(names, specs, strict=True)
            },
        }
        for name, role, origin, specs in _rows(subject)
    ]


def _table(subject: Subject) -> list[tuple[str, ...]]:
    variants = [name for name, _ in subject.subgraph.variants]
    head = ("tensor", "role", "in the model", "dtype", *(f"{v}: shape, strides" for v in variants))
    found: list[tuple[str, ...]] = [head]
    for name, role, origin, specs in _rows(subject):
        sizes = (f"{_tuple(s.shape)}, {_tuple(s.stride)}" for s in specs)
        found.append((name, role, origin, specs[0].dtype, *sizes))
    return found


def _differs(subject: Subject, at: int) -> bool:
    """Whether the plain arguments of a node are others at another variant."""
    return len({(g.nodes[at].args, g.nodes[at].kwargs) for _, g in subject.subgraph.variants}) > 1


def _line(node: Node) -> str:
    given = [_arg(a) for a in node.args] + [f"{k}={_arg(v)}" for k, v in node.kwargs]
    results = ", ".join(v.name for v in node.outputs)
    made = ", ".join(_sized(v.spec) for v in node.outputs)
    return f"{results} = {node.op}({', '.join(given)})  -> {made}"


def _arg(arg: Arg) -> str:
    if isinstance(arg, Ref):
        return arg.name
    if isinstance(arg, Symbol):
        return arg.name
    if isinstance(arg, tuple):
        return f"[{', '.join(_arg(a) for a in arg)}]"
    return repr(arg)


def _sized(spec: TensorSpec) -> str:
    return f"{spec.dtype}{_tuple(spec.shape)}"


def _tuple(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
