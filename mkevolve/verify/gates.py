"""What a verifier applies: all gates, except where a test takes one away or the user allows atomics."""

from dataclasses import dataclass

from mkevolve.data.gates import Gate

__all__ = ["Gate", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """`off` holds the gates that are not applied.

    Without `deterministic` a repeated call need not give the same bits: the last ones may differ, as float
    atomics make them, and the repeat is compared like any other result. `whole` says that a device runs the
    candidate: every launch whole, also at the target, in no order of ours.
    """

    off: frozenset[Gate] = frozenset()
    deterministic: bool = True
    whole: bool = False

    def on(self, gate: Gate) -> bool:
        """Whether a gate is applied."""
        return gate not in self.off

    @property
    def unenforced(self) -> frozenset[Gate]:
        """The gates that a child does not enforce."""
        return self.off if self.deterministic else self.off | {Gate.REPEAT, Gate.ORDER}
