"""The schema, one function per change; applied in order when a database is opened."""

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

migrations = Migrations("mkevolve")

_TABLES: dict[str, dict[str, type]] = {
    "run": {
        "id": str, "started": str, "ended": str, "status": str, "command": str, "model": str,
        "environment": str, "seed": int, "settings": str,
    },
    "environment": {
        "id": str, "clock": str, "chip": str, "driver": str, "torch": str, "triton": str,
        "precision": str, "verifier": str, "cost_model": str,
    },
    "decomposition": {
        "id": str, "model": str, "parent": str, "mutation": str, "legal": int, "body": str,
        "predicted_us": float, "run": str, "created": str,
    },
    "subgraph": {
        "id": str, "family": str, "ops": str, "body": str, "created": str,
    },
    "candidate": {
        "id": str, "source": str, "proposer": str, "parents": str, "move": str, "choices": str,
        "created": str,
    },
    "evaluation": {
        "id": str, "subgraph": str, "candidate": str, "configuration": str, "environment": str,
        "tier": str, "status": str, "step": str, "us": float, "seconds": float, "body": str,
        "run": str, "created": str,
    },
    "llm_call": {
        "id": str, "run": str, "subgraph": str, "role": str, "model": str, "ordinal": int,
        "prompt": str, "reply": str, "outcome": str, "prompt_tokens": int, "cached_tokens": int,
        "completion_tokens": int, "cost": float, "latency": float, "created": str,
    },
    "composition": {
        "id": str, "model": str, "decomposition": str, "environment": str, "path": str,
        "total_us": float, "eager_us": float, "run": str, "created": str,
    },
    "slot": {
        "composition": str, "name": str, "subgraph": str, "implementation": str, "evaluation": str,
        "reason": str,
    },
}  # fmt: skip


@migrations()
def create_tables(db: Database) -> None:
    """Create the tables of DESIGN section 7; `environment` spells out what an environment id stands for."""
    for name, columns in _TABLES.items():
        key = ("composition", "name") if name == "slot" else "id"
        db.table(name).create(columns, pk=key)
    db.table("evaluation").create_index(["subgraph", "environment"])
    db.table("evaluation").create_index(["candidate"])
    db.table("subgraph").create_index(["family"])


@migrations()
def say_what_rows_hold_for(db: Database) -> None:
    """What an evaluation was verified on; the cut of a decomposition, whose row belongs to one capture."""
    db.table("evaluation").add_column("cases", str)
    db.table("decomposition").add_column("cut", str)
    db.execute("update decomposition set cut = id")
