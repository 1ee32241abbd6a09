"""The static step: a candidate file against the kernel contract, by reading it; nothing is executed."""

import ast

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.tunables import Tunables
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.verify.host import Host
from mkevolve.verify.jit import check_jit, dropped_nans
from mkevolve.verify.kinds import VALUE, Kind, Many, Shape, holds, only
from mkevolve.verify.reader import parse
from mkevolve.verify.source import Source, Violation, parameters


def check(source: str, subgraph: Subgraph | None) -> Verdict | None:
    """Return the verdict on a file that breaks the contract, naming the line; None where it keeps it.

    Without a subgraph the number of arguments is not checked.
    """
    try:
        found = parse(source)
        for function in found.jits.values():
            check_jit(function, found)
        _contract(found, subgraph)
    except Violation as violation:
        return _refusal(violation)
    except RecursionError:
        return _refusal(Violation(None, "the file is nested too deeply"))
    return None


def tunables(source: str) -> Tunables | Verdict:
    """Read `TUNABLES` by literal evaluation: (name, choices) pairs, default first; empty without a table."""
    try:
        return parse(source).tunables
    except Violation as violation:
        return _refusal(violation)
    except RecursionError:
        return _refusal(Violation(None, "the file is nested too deeply"))


def nan_notes(source: str) -> tuple[str, ...]:
    """Notes on lines where a device drops NaN and torch does not; none on a file that does not parse."""
    try:
        found = dropped_nans(parse(source))
    except (Violation, RecursionError):
        return ()
    cure = "unless propagate_nan=tl.PropagateNan.ALL; torch propagates it"
    return tuple(f"line {line}: {name} drops NaN on a device {cure}" for line, name in found)


def _refusal(violation: Violation) -> Verdict:
    where = f"line {violation.line}" if violation.line else ""
    message = f"{where}: {violation}" if where else str(violation)
    return Verdict(Status.STATIC_ERROR, Step.STATIC, Tier.SCREEN, message, Evidence(where=where))


def _contract(source: Source, subgraph: Subgraph | None) -> None:
    run = source.hosts.get("run")
    if run is None:
        raise Violation(None, "no function run")
    for name in sorted(source.shared):  # jit functions call them, with constants
        arguments = {a.arg: Kind.PLAIN for a in parameters(source.hosts[name])}
        if not only(Host(source, prepare=False).call(source.hosts[name], dict(arguments)), Kind.PLAIN):
            raise Violation(source.hosts[name], f"{name} must return a number or text")
    prepare = source.hosts.get("prepare")
    prepared = _prepare(prepare, source, subgraph) if prepare is not None else None
    positional = [a.arg for a in (*run.args.posonlyargs, *run.args.args)]
    _keywords(run, positional, source)
    if subgraph is not None:
        _arguments(run, len(positional), prepared, subgraph)
    host = Host(source, prepare=False)
    names: dict[str, Shape] = dict.fromkeys(positional, Kind.TENSOR)
    names.update({a.arg: Kind.PLAIN for a in run.args.kwonlyargs})
    result = host.settle(run, names)
    if not _only_tensors(result):
        raise Violation(run, "run must return the tensors that the subgraph returns, as a tensor or tuple")
    if host.launches == 0:
        raise Violation(run, "run launches no kernel")


def _prepare(prepare: ast.FunctionDef, source: Source, subgraph: Subgraph | None) -> Shape:
    arguments = [a.arg for a in (*prepare.args.posonlyargs, *prepare.args.args)]
    if prepare.args.kwonlyargs or prepare.args.defaults:
        raise Violation(prepare, "prepare takes the parameters only: no keywords, no defaults")
    if subgraph is not None and len(arguments) != len(subgraph.target.params):
        wanted = ", ".join(i.name for i in subgraph.target.params) or "nothing"
        raise Violation(prepare, f"prepare takes {len(arguments)} parameters; the subgraph has {wanted}")
    result = Host(source, prepare=True).call(prepare, dict.fromkeys(arguments, Kind.TENSOR))
    if not _only_tensors(result):
        raise Violation(prepare, "prepare must return tensors")
    return result


def _only_tensors(shape: Shape) -> bool:
    """A part that may be None besides is left to the run itself."""
    if isinstance(shape, tuple):
        return all(isinstance(s, Kind) and _only_tensors(s) for s in shape)
    return holds(shape, Kind.TENSOR) and only(shape.each if isinstance(shape, Many) else shape, VALUE)


def _keywords(run: ast.FunctionDef, positional: list[str], source: Source) -> None:
    keywords = {a.arg for a in run.args.kwonlyargs}
    names = {name for name, _ in source.tunables}
    if run.args.defaults:
        raise Violation(run, "a positional argument of run has a default: drop it, every tensor is given")
    for name in sorted(keywords - names):
        raise Violation(run, f"keyword {name} of run is not in TUNABLES: put its choices there, or drop it")
    for name in sorted(names - keywords):
        where = "positional: put * before it" if name in positional else "missing"
        raise Violation(run, f"{name} of TUNABLES must be a keyword-only argument of run ({where})")


def _arguments(run: ast.FunctionDef, given: int, prepared: Shape | None, subgraph: Subgraph) -> None:
    activations, params = subgraph.target.activations, subgraph.target.params
    if prepared is None:
        wanted = len(activations) + len(params)
        names = ", ".join(i.name for i in (*activations, *params))
        if given != wanted:
            raise Violation(run, f"run takes {given} tensors, the subgraph gives {wanted}: {names}")
        return
    if isinstance(prepared, tuple):
        wanted = len(activations) + len(prepared)
        if given != wanted:
            parts = f"{len(activations)} activations and {len(prepared)} from prepare"
            raise Violation(run, f"run takes {given} tensors, not {wanted}: {parts}")
    elif given < len(activations):
        raise Violation(run, f"run takes {given} tensors; the subgraph has {len(activations)} activations")
