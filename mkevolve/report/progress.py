"""Progress on standard error while a search runs: one line a subgraph."""

import sys
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mkevolve.data.search import Found, Refused
from mkevolve.data.verdict import Status, Tier


class Progress:
    """Shows what each search has found so far; plain lines where standard error is no terminal.

    `quiet` shows nothing (for `json=true` in scripts, errors still appear).
    """

    def __init__(self, quiet: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._quiet = quiet
        self._names: dict[str, str] = {}
        self._best: dict[str, float] = {}
        self._counts: dict[str, Counter[Status]] = {}
        self._state: dict[str, str] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print one line above the table."""
        if not self._quiet:
            self._console.print(Text(text), soft_wrap=True)

    def start(self, subgraph: str, ops: str) -> None:
        """A search of this subgraph is wanted."""
        self._names[subgraph] = ops
        self._counts.setdefault(subgraph, Counter())
        self._state[subgraph] = "waiting"
        self._refresh()

    def record(self, subgraph: str, record: Found | Refused) -> None:
        """Count one record of a search."""
        if isinstance(record, Refused):
            self._state[subgraph] = f"fall-back: {record.reason}"
            self._plain(subgraph)
            return
        evaluation = record.evaluation
        self._counts[subgraph][evaluation.verdict.status] += 1
        measured = evaluation.measurement
        if measured is not None and evaluation.verdict.passed:
            self._best[subgraph] = min(measured.us, self._best.get(subgraph, measured.us))
        accepted = evaluation.tier is Tier.ACCEPT and evaluation.verdict.passed
        self._state[subgraph] = "accepted" if accepted else "searching"
        self._plain(subgraph)

    def _plain(self, subgraph: str) -> None:
        if self._live is not None:
            self._refresh()
        elif not self._quiet and self._state[subgraph] != "searching":
            self._console.print(Text("  " + "  ".join(self._line(subgraph))), soft_wrap=True)

    def _line(self, subgraph: str) -> tuple[str, ...]:
        counts = self._counts.get(subgraph, Counter())
        best = self._best.get(subgraph)
        verdicts = ", ".join(f"{n} {status.value}" for status, n in counts.most_common())
        return (
            subgraph,
            self._names.get(subgraph, ""),
            "" if best is None else f"best {best:.4g} µs",
            f"{counts.total()} evaluated" if counts else "",
            verdicts,
            self._state.get(subgraph, ""),
        )

    def _refresh(self) -> None:
        if self._live is None:
            return
        table = Table(box=None, show_header=False, pad_edge=False)
        for subgraph in self._names:
            table.add_row(*(Text(cell) for cell in self._line(subgraph)))
        self._live.update(table)
