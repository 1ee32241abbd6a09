"""The ledger: every run, decomposition, subgraph, candidate and evaluation, in one SQLite file.

Only a driver holds a `Store`. Rows are keyed by content ids and written once, each in its own transaction, so
that a process killed at any instant leaves a database from which the same command goes on.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlite_utils

from mkevolve.data.candidate import Candidate
from mkevolve.data.codec import Json, decode, encode
from mkevolve.data.decomposition import Decomposition, Subgraph, placed_id
from mkevolve.data.ids import content_id
from mkevolve.data.measurement import Environment, Evaluation
from mkevolve.errors import StoreError
from mkevolve.store.migrations import migrations

APPLICATION_ID = 0x6D6B6576  # "mkev", so that another program's database is never written to
_WAIT_MS = 30_000
_PAUSE = 0.02  # seconds between attempts that do not wait by themselves
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """An open database. Raises `StoreError` where the file is corrupt, foreign, locked or unwritable."""

    def __init__(self, path: Path, clock: Callable[[], str] = _now) -> None:
        self.path = path
        self._clock = clock
        with _as_store_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite_utils.Database(path)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._db.execute(f"PRAGMA busy_timeout={_WAIT_MS}")
        _patiently(self._claim)
        _patiently(self._db.enable_wal)  # does not wait for other connections by itself
        self._db.execute("PRAGMA synchronous=NORMAL")  # WAL: safe against a kill, fast enough a row

    def _claim(self) -> None:
        """Mark a new file as ours and bring its tables up to date, in one transaction; others wait for it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            (found,) = self._db.execute("PRAGMA application_id").fetchone()
            if self._db.table_names() and found != APPLICATION_ID:
                raise StoreError(
                    f"{self.path} is a database of another program; name another file with store=PATH"
                )
            if found != APPLICATION_ID:
                self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            migrations.apply(self._db)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.rollback()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self._db.close()

    def start_run(self, command: str, model: str, environment: Environment, seed: int, settings: Json) -> str:
        """Record a run that begins now; return its id."""
        started = self._clock()
        run = content_id("r", [started, command, model, environment.id, seed])
        row = {
            "id": run, "started": started, "status": "running", "command": command, "model": model,
            "environment": environment.id, "seed": seed, "settings": json.dumps(settings),
        }  # fmt: skip
        with self._write():
            self._db.table("environment").insert(
                {"id": environment.id, **{k: str(v) for k, v in asdict(environment).items()}}, ignore=True
            )
            self._db.table("run").insert(row)
        return run

    def end_run(self, run: str, status: str) -> None:
        """Record how a run ended: `done`, `interrupted` or `failed`."""
        with self._write():
            self._db.table("run").update(run, {"ended": self._clock(), "status": status})

    def add_decomposition(
        self,
        decomposition: Decomposition,
        model: str,
        run: str,
        predicted_us: float | None = None,
        place: str = "",
    ) -> None:
        """Insert a decomposition, or update its predicted time; `place` as `placed_id` says."""
        key = placed_id(decomposition.id, place)
        parent = placed_id(decomposition.parent, place) if decomposition.parent else None
        row = {
            "id": key, "cut": decomposition.id, "model": model, "parent": parent,
            "mutation": decomposition.mutation, "legal": 1, "body": json.dumps(encode(decomposition)),
            "predicted_us": predicted_us, "run": run, "created": self._clock(),
        }  # fmt: skip
        with self._write():
            table = self._db.table("decomposition")
            table.insert(row, ignore=True)
            if predicted_us is not None:
                table.update(key, {"predicted_us": predicted_us})

    def add_subgraph(self, subgraph: Subgraph) -> None:
        """Insert a subgraph unless it is there."""
        row = {
            "id": subgraph.id, "family": subgraph.family, "ops": subgraph.ops,
            "body": json.dumps(encode(subgraph)), "created": self._clock(),
        }  # fmt: skip
        with self._write():
            self._db.table("subgraph").insert(row, ignore=True)

    def add_evaluation(self, candidate: Candidate, evaluation: Evaluation, run: str) -> None:
        """Commit a candidate and one evaluation of it together."""
        now = self._clock()
        measured = evaluation.measurement
        with self._write():
            self._db.table("candidate").insert(
                {
                    "id": candidate.id, "source": candidate.source, "proposer": candidate.proposer,
                    "parents": json.dumps(candidate.parents), "move": candidate.move,
                    "choices": json.dumps(candidate.choices), "created": now,
                },
                ignore=True,
            )  # fmt: skip
            self._db.table("evaluation").insert(
                {
                    "id": evaluation.id, "subgraph": evaluation.subgraph,
                    "candidate": evaluation.candidate, "configuration": evaluation.configuration.text(),
                    "environment": evaluation.environment, "tier": evaluation.tier.value,
                    "cases": evaluation.cases,
                    "status": evaluation.verdict.status.value, "step": evaluation.verdict.step.value,
                    "us": measured.us if measured else None, "seconds": evaluation.seconds,
                    "body": json.dumps(encode(evaluation)), "run": run, "created": now,
                },
                ignore=True,
            )  # fmt: skip

    def evaluations(self, subgraph: str, environment: str) -> tuple[Evaluation, ...]:
        """All evaluations of a subgraph in one environment, oldest first."""
        rows = self._query(
            "select body from evaluation where subgraph = ? and environment = ? order by rowid",
            (subgraph, environment),
        )
        return tuple(decode(Evaluation, json.loads(str(row["body"]))) for row in rows)

    def candidate(self, candidate: str) -> Candidate | None:
        """The candidate with this id, or None."""
        for row in self._query("select * from candidate where id = ?", (candidate,)):
            return Candidate(
                source=str(row["source"]),
                proposer=str(row["proposer"]),
                parents=tuple(json.loads(str(row["parents"]))),
                move=str(row["move"]),
                choices=tuple((k, v) for k, v in json.loads(str(row["choices"]))),
            )
        return None

    def add_composition(self, row: dict[str, str | float | None], slots: list[dict[str, str]]) -> None:
        """Record a written composition and its slots; `row["id"]` is the composition's id."""
        with self._write():
            self._db.table("composition").insert({**row, "created": self._clock()}, replace=True)
            for slot in slots:
                self._db.table("slot").insert({**slot, "composition": row["id"]}, replace=True)

    def counts(self) -> dict[str, int]:
        """Rows per table, for reports and tests."""
        return {t.name: t.count for t in self._db.tables if not t.name.startswith(("_", "sqlite"))}

    def _query(self, sql: str, values: tuple[str, ...]) -> Iterator[dict[str, object]]:
        with _as_store_error(self.path):
            yield from list(self._db.query(sql, values))

    @contextmanager
    def _write(self) -> Iterator[None]:
        with _as_store_error(self.path), self._db.atomic():
            yield


def _patiently(action: Callable[[], None]) -> None:
    """Repeat what fails while other processes open the file too."""
    deadline = time.monotonic() + _WAIT_MS / 1000
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", 0)  # missing in errors of the binding itself
            if code & 0xFF not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}; name another file with store=PATH, or root=DIR"
        ) from error
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"cannot use the database {path}: {error}; is it locked, read-only or on a full disk? "
            "name another file with store=PATH"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{path} is damaged or no database ({error}); move it away, or name another file with store=PATH"
        ) from error
