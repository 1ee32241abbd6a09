"""The result on screen: a table of slots, totals, files, and the next command to try."""

import json
import re
import shutil
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mkevolve.data.codec import Json, encode
from mkevolve.data.measurement import Measurement
from mkevolve.data.result import RunResult, SlotRow

_UNBOUNDED = 1000
NOT_MEASURED = "not measured: run `mkevolve measure` on a GPU"


def as_json(result: RunResult) -> str:
    """One JSON object: `status`, `composition`, `slots`, `totals` and the rest of `RunResult`."""
    body = encode(result)
    assert isinstance(body, dict)
    slots: list[Json] = []
    for row, coded in zip(result.slots, body["slots"] or [], strict=True):  # type: ignore[arg-type]
        assert isinstance(coded, dict)
        slots.append({**coded, "own": row.own, "roofline": row.roofline})
    return json.dumps({**body, "slots": slots, "measured": result.clock == "device"}, indent=2)


def as_text(result: RunResult, width: int | None = None) -> str:
    """The report without colour codes, folded to `width` columns.

    None: as wide as this terminal, and as wide as it needs to be where standard output is none.
    """
    columns = width or (shutil.get_terminal_size((160, 40)).columns if sys.stdout.isatty() else _UNBOUNDED)
    sink = StringIO()
    console = Console(file=sink, width=columns, highlight=False, color_system=None, soft_wrap=False)
    if result.clock == "model":
        console.print(NOT_MEASURED)
    console.print(f"{result.model}: {result.policy}, chip {result.chip}, {result.clock} clock")
    console.print(_table(result))
    for line in (*_reasons(result), *_totals(result)):
        console.print(line, markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if result.kept:
        console.print(f"kept as edited: {', '.join(result.kept)} (keep=false undoes that)", markup=False)
    console.print("files:")
    for file in result.files:
        console.print(f"  {near(file)}", markup=False, soft_wrap=True)
    if result.next_command:
        console.print(f"next: {result.next_command}", markup=False, soft_wrap=True)
    return sink.getvalue().rstrip("\n")


def near(file: str) -> str:
    """A path as one would type it here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _table(result: RunResult) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for name, side in (
        ("slot", "left"),
        ("ops", "left"),
        ("implementation", "left"),
        ("clock", "left"),
        ("time µs (band)", "right"),
        ("fall-back µs", "right"),
        ("% roofline", "right"),
        ("error / allowed", "right"),
    ):
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in result.slots:
        table.add_row(*_cells(row, result.clock))
    return table


def _cells(row: SlotRow, clock: str) -> list[Text]:
    share = row.roofline
    error = "" if row.error is None or row.allowed is None else f"{row.error:.2g} / {row.allowed:.2g}"
    file = row.implementation.rpartition("/")[2]
    kernel = re.match(r"k_[0-9a-f]{12}(?=_)", file)
    what = kernel[0] if kernel else file
    cells = [
        row.name,
        row.ops,
        what,
        clock,
        _time(row.time),
        "" if row.fallback is None else f"{row.fallback.us:.4g}",
        "" if share is None else f"{100 * share:.0f} %",
        error,
    ]
    return [Text(cell) for cell in cells]


def _time(time: Measurement | None) -> str:
    return "" if time is None else f"{time.us:.4g} ({time.low:.3g}..{time.high:.3g})"


def _reasons(result: RunResult) -> list[str]:
    return [f"{row.name} stays on {row.implementation}: {row.reason}" for row in result.slots if row.reason]


def _totals(result: RunResult) -> list[str]:
    t = result.totals
    kind = "estimated" if result.clock == "model" else "measured"
    lines = [
        f"total {kind}: {t.us:.4g} µs ({t.low:.3g}..{t.high:.3g}) against {t.fallback_us:.4g} µs all on "
        f"fall-backs: {_ratio(t.fallback_us, t.us)}",
        f"without the slots on fall-backs: {t.own_us:.4g} µs against {t.own_fallback_us:.4g} µs: "
        f"{_ratio(t.own_fallback_us, t.own_us)}",
        f"{t.own_slots} of {t.slots} slots on subkernels ({100 * t.own_share:.0f} % of the time), "
        f"{t.subgraphs} distinct subgraphs; {result.evaluated} evaluated now, {result.cached} from the "
        f"database, {result.rejected} rejected; {result.seconds:.1f} s",
    ]
    if result.mutation:
        lines.append(f"decomposition {result.decomposition}: {result.mutation}")
    return lines


def _ratio(slow: float, fast: float) -> str:
    return f"{slow / fast:.2f}x" if fast > 0 else "-"
