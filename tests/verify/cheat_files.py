"""The corpus in `tests/cheats`: what its files say of themselves, their trials, and the table of its README.

Run as a script it writes the table.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from kernel_bench import TESTS, named_subject
from kernel_subjects import KERNEL_SUBJECTS
from verify_subjects import SUBJECTS

from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.gates import Gate
from mkevolve.data.model import Precision
from mkevolve.data.verdict import Status, Step, Tier, Verdict
from mkevolve.interfaces import Backend
from mkevolve.measure.chips import load_chip
from mkevolve.search.params import default_configuration
from mkevolve.verify.engine import Verifier
from mkevolve.verify.references import References

README = TESTS / "cheats" / "README.md"
_START, _END = "<!-- table -->\n", "<!-- end of table -->\n"

# The step in which a gate decides at the latest, and what it says.
SAYS: dict[Gate, tuple[Step, frozenset[Status]]] = {
    Gate.STATIC: (Step.STATIC, frozenset({Status.STATIC_ERROR})),
    Gate.DISPATCH: (Step.STATIC, frozenset({Status.STATIC_ERROR, Status.RUNTIME_ERROR})),
    Gate.HOST: (Step.NUMERIC, frozenset({Status.STATIC_ERROR, Status.RUNTIME_ERROR})),
    Gate.COMPILE: (Step.COMPILE, frozenset({Status.COMPILE_ERROR, Status.RESOURCE_ERROR})),
    Gate.PRECISION: (Step.COMPILE, frozenset({Status.PRECISION_ERROR})),
    Gate.OUTPUT: (Step.NUMERIC, frozenset({Status.WRONG_OUTPUT, Status.STATIC_ERROR})),
    Gate.VALUE: (Step.INTEGRITY, frozenset({Status.WRONG_VALUE, Status.RACE, Status.NONDETERMINISTIC})),
    Gate.INPUT: (Step.INTEGRITY, frozenset({Status.INPUT_WRITTEN})),
    Gate.BOUNDS: (Step.INTEGRITY, frozenset({Status.OUT_OF_BOUNDS, Status.RUNTIME_ERROR})),
    Gate.STATE: (Step.INTEGRITY, frozenset({Status.STATE_CHANGED})),
    Gate.REPEAT: (Step.INTEGRITY, frozenset({Status.NONDETERMINISTIC})),
    Gate.ORDER: (Step.INTEGRITY, frozenset({Status.RACE, Status.NONDETERMINISTIC, Status.TIMEOUT})),
    Gate.POISON: (Step.INTEGRITY, frozenset({Status.NONDETERMINISTIC})),
    Gate.NOOP: (Step.INTEGRITY, frozenset({Status.NO_EFFECT})),
    Gate.SANDBOX: (Step.NUMERIC, frozenset({Status.RUNTIME_ERROR, Status.COMPILE_ERROR})),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cheat:
    """One file. `status` and `at` (None: no gate that could be taken away) are what refuses it when all
    gates are on; `without` is the status with `gates` off: a candidate that destroys itself never passes.
    """

    path: Path
    what: str
    status: Status
    at: Gate | None
    gates: tuple[Gate, ...]
    without: Status
    tier: Tier
    configuration: Configuration
    deadline: float | None
    device: bool

    @property
    def name(self) -> str:
        return self.path.stem


def read(path: Path) -> Cheat:
    """Read what a file says in its docstring; raises AssertionError where something is missing."""
    source = path.read_text()
    found = re.match(r'(?:#.*\n)?"""\w+(?: \w+)?: (.*?)\n\n(.*?)"""', source, re.DOTALL)
    assert found is not None, f"{path.name}: no docstring of subject, what it does, and fields"
    fields = dict(line.split(": ", 1) for line in found[2].strip().splitlines())
    known = {"Expected", "Gates", "Without", "Tier", "Configuration", "Deadline", "Device"}
    assert fields.keys() <= known, f"{path.name}: {fields.keys() - known}"
    status, _, at = fields["Expected"].partition(" at ")
    settings = [part.split("=") for part in fields.get("Configuration", "").split(", ") if part]
    chosen = default_configuration(source) if "TUNABLES" in source else Configuration()
    return Cheat(
        path,
        found[1].replace("\n", " "),
        Status(status),
        Gate(at) if at else None,
        tuple(Gate(name) for name in fields.get("Gates", "").split(", ") if name),
        Status(fields.get("Without", "passed")),
        Tier(fields.get("Tier", "screen")),
        Configuration(tuple((name, int(value)) for name, value in settings)) if settings else chosen,
        float(fields["Deadline"]) if "Deadline" in fields else None,
        fields.get("Device") == "true",
    )


CHEATS = [read(path) for path in sorted((TESTS / "cheats").glob("*.py"))]


class Trials:
    """Verifies cheats with some gates off; `unconfined` runs those that the sandbox would stop."""

    def __init__(self, backend: Backend, unconfined: Backend) -> None:
        self._backends = (backend, unconfined)
        self._verifiers: dict[frozenset[Gate], Verifier] = {}
        self._known: dict[tuple[str, torch.dtype], tuple[Subgraph, References]] = {}

    def verdict(self, cheat: Cheat, off: frozenset[Gate] = frozenset()) -> Verdict:
        source = cheat.path.read_text()
        key = named_subject(cheat.path, source)
        if key not in self._known:
            torch.manual_seed(0)
            subgraph, seen = (SUBJECTS | KERNEL_SUBJECTS)[key[0]](key[1])
            self._known[key] = subgraph, References(subgraph, seen)
        if off not in self._verifiers:
            backend = self._backends[Gate.SANDBOX in off]
            self._verifiers[off] = Verifier(backend, load_chip("h200"), Precision.IEEE, off=off)
        verifier = self._verifiers[off]
        return verifier.verify(*self._known[key], source, cheat.configuration, cheat.tier).verdict


def table() -> str:
    """The rows of the README."""
    rows = ["| File | What it does | Refused | Gates that stop it alone |", "|---|---|---|---|"]
    for cheat in CHEATS:
        gates = ", ".join(cheat.gates) or "none can be taken away"
        if cheat.without is not Status.PASSED:
            gates += f" (without: {cheat.without})"
        where = " on a device" if cheat.device else ""
        at = f" at {cheat.at}" if cheat.at else ""
        rows.append(f"| `{cheat.name}` | {cheat.what} | {cheat.status}{at}{where} | {gates} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """The README with the table of today."""
    before, _, rest = README.read_text().partition(_START)
    return before + _START + table() + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    README.write_text(written())
