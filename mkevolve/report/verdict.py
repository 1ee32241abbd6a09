"""A verdict for people and for programs; `docs/VERIFICATION.md` says how to read it and lists the keys."""

import json
import math
from collections.abc import Iterable

from mkevolve.data.codec import Json, encode
from mkevolve.data.plan import Launch
from mkevolve.data.verdict import Evidence
from mkevolve.data.verification import ChipRow, Verification
from mkevolve.report.terminal import NOT_MEASURED, near

_LABEL = 15  # columns of the labels


def as_json(found: Verification) -> str:
    """One JSON object. A number that is not finite is null."""
    verdict, subject = found.verdict, found.subject
    body: dict[str, Json] = {
        "status": verdict.status.value,
        "passed": verdict.passed,
        "step": verdict.step.value,
        "tier": verdict.tier.value,
        "message": verdict.message,
        "evidence": encode(verdict.evidence),
        "notes": [*verdict.notes, *found.notes],
        "model": found.model,
        "policy": found.policy,
        "subgraph": {"id": subject.subgraph.id, "slots": [*subject.slots], "ops": subject.subgraph.ops},
        "kernel": {"id": found.candidate, "path": found.path},
        "configuration": dict(found.configuration.settings),
        "clock": found.environment.clock.value,
        "chip": found.environment.chip,
        "precision": found.environment.precision,
        "deterministic": found.deterministic,
        "environment": found.environment.id,
        "plan": [
            {"variant": plan.variant, "launches": [_launch(launch) for launch in plan.launches]}
            for plan in found.plans
        ],
        "estimate": encode(found.estimate),
        "chips": [encode(row) for row in found.chips],
        "evaluation": found.evaluation,
        "database": found.database,
        "seconds": round(found.seconds, 3),
    }
    return json.dumps(_finite(body), indent=2)


def as_text(found: Verification, source: str) -> str:
    """The verdict, what decided it and what was compiled; `source` is the candidate's text, to quote from."""
    verdict = found.verdict
    head = "passed" if verdict.passed else f"rejected at {verdict.step.value}: {verdict.status.value}"
    rows = [("verdict", f"{head} (tier {verdict.tier.value})"), ("", verdict.message)]
    told = bool(verdict.evidence.tensor) and verdict.evidence.tensor in verdict.message
    rows += [("evidence", line) for line in _evidence(verdict.evidence, source, told)]
    rows += [("note", note) for note in (*verdict.notes, *found.notes)]
    subject = found.subject
    rows += [
        ("kernel", f"{near(found.path)}  {found.candidate}"),
        ("configuration", found.configuration.text() or "none: the file has no TUNABLES"),
        ("subgraph", f"{subject.subgraph.id}  {', '.join(subject.slots)}: {_short(subject.subgraph.ops)}"),
        ("model", f"{found.model}: {found.policy}, chip {found.environment.chip}"),
    ]
    rows += [("plan", line) for line in _plan(found)]
    if found.estimate is not None:
        time = found.estimate
        rows.append(("estimate", f"{time.us:.4g} µs ({time.low:.3g}..{time.high:.3g}); {NOT_MEASURED}"))
    rows += [("chips", line) for line in _chips(found.chips)]
    rows.append(
        ("recorded", f"{found.evaluation} in {near(found.database)}, verified in {found.seconds:.1f} s")
    )
    return "\n".join(_labelled(rows))


def _labelled(rows: Iterable[tuple[str, str]]) -> Iterable[str]:
    """A label once, where several rows in turn have it; rows without text are left out."""
    before = ""
    for label, text in rows:
        if text:
            shown = "" if label == before and label != "note" else label
            yield f"{shown:<{_LABEL}}{_printable(text)}".rstrip()
        before = label


def _printable(text: str) -> str:
    """Without control characters, which a candidate could put into its error messages."""
    return "".join(c if c.isprintable() else " " for c in text)


def _evidence(evidence: Evidence, source: str, told: bool) -> list[str]:
    """Lines of evidence; `told` says that the message names the place already."""
    case = {"variant": evidence.variant, "distribution": evidence.distribution, "seed": evidence.seed}
    lines = [", ".join(f"{k} {v}" for k, v in case.items() if v is not None)]
    if evidence.error is not None and evidence.allowed is not None:
        lines.append(f"error {evidence.error:.3g}, allowed {evidence.allowed:.3g}")
    if not told:
        lines.append(_place(evidence))
    if evidence.cases:
        drawn = f", {evidence.replaced} draws replaced as no evidence" if evidence.replaced else ""
        lines.append(f"{evidence.compared} elements compared in {evidence.cases} cases{drawn}")
    text = source.splitlines()
    if evidence.line is not None and 0 < evidence.line <= len(text):
        lines.append(f"line {evidence.line}: {text[evidence.line - 1].strip()}")
    return [line for line in lines if line]


def _place(evidence: Evidence) -> str:
    parts = []
    if evidence.tensor:
        parts.append(evidence.tensor)
    if evidence.index is not None:
        parts.append(f"first at {list(evidence.index)}")
    if evidence.share is not None:
        parts.append(f"{100 * evidence.share:.3g} % of the elements")
    if evidence.pattern:
        parts.append(f"pattern: {evidence.pattern}")
    return ", ".join(parts)


def _plan(found: Verification) -> list[str]:
    """The launches at the target sizes."""
    if not found.plans:
        return []
    plan = found.plans[0]
    lines = []
    for launch in plan.launches:
        used = launch.resources
        lines.append(
            f"{launch.kernel} on grid {'x'.join(map(str, launch.grid))}: {used.registers} registers, "
            f"{used.spills} bytes spilled, {used.shared} bytes shared, {used.num_warps} warps, "
            f"{used.num_stages} stages"
        )
    filled = sum(b.fill is not None for b in plan.buffers)
    return [*lines, f"{filled} allocations are filled first"] if filled else lines


def _launch(launch: Launch) -> Json:
    used = launch.resources
    return {
        "kernel": launch.kernel,
        "grid": [*launch.grid],
        "registers": used.registers,
        "spills": used.spills,
        "shared": used.shared,
        "num_warps": used.num_warps,
        "num_stages": used.num_stages,
    }


def _chips(rows: tuple[ChipRow, ...]) -> list[str]:
    """One line a chip: registers a thread, spilled bytes a thread and shared bytes of the largest kernel."""
    if not rows:
        return []
    table: list[tuple[str, ...]] = [("chip", "status", "registers", "spilled", "shared", "")]
    for row in rows:
        used = ("-" if n is None else str(n) for n in (row.registers, row.spills, row.shared))
        table.append((row.chip, row.status.value, *used, row.message))
    widths = [max(map(len, column)) for column in zip(*(cells[:-1] for cells in table), strict=True)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[-1]]) for r in table]


def _short(ops: str) -> str:
    names = ops.split("+")
    return ops if len(names) <= 8 else f"{'+'.join(names[:4])}+...+{names[-1]} ({len(names)} ops)"


def _finite(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
