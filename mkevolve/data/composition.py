"""A decomposition with one implementation a slot: what a composition file holds."""

from dataclasses import dataclass

from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.ids import content_id
from mkevolve.data.measurement import Environment, Measurement
from mkevolve.data.model import CapturedModel, Leaf

FALLBACKS = ("eager", "compile")


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """What `check` found of one kernel file for one subgraph; the machine's side of a composition file.

    `sha256` is of the file's bytes. `configurations` maps a variant name to the configuration chosen for it.
    `evidence` is the id of the accepting evaluation, and `verified` says for which configurations it is: the
    `digest` at the time. Empty in a file that an older version wrote.
    """

    id: str
    path: str
    sha256: str
    subgraph: str
    configurations: tuple[tuple[str, Configuration], ...]
    evidence: str
    measurement: Measurement | None = None
    error: float | None = None
    allowed: float | None = None
    verified: str = ""

    @property
    def digest(self) -> str:
        """Of the kernel in its configurations: another one when a person changes a setting."""
        settings = [[name, c.text()] for name, c in self.configurations]
        return content_id("c", [self.id, self.subgraph, settings])

    @property
    def reset(self) -> bool:
        """Whether the configurations are no longer those that were verified."""
        return self.verified not in ("", self.digest)


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """A slot and what fills it: a kernel path, a `k_` id, `eager` or `compile`. `reason` says why a fall-
    back.
    """

    slot: Slot
    implementation: str
    reason: str = ""
    alternatives: tuple[tuple[str, Measurement | None], ...] = ()
    fallback: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The calls for which a composition was verified: their leaves by variant, `target` first.

    `in_tree` is the nesting of `(args, kwargs)`, see `CapturedModel`.
    """

    dtype: str
    training: bool
    in_tree: str
    variants: tuple[tuple[str, tuple[Leaf, ...]], ...]


def signature_of(captured: CapturedModel) -> Signature:
    """The calls that a model was captured with."""
    variants = tuple((v.name, v.leaves) for v in captured.variants)
    return Signature(captured.dtype, captured.training, captured.in_tree, variants)


@dataclass(frozen=True, slots=True)
class Composition:
    """The whole file. `model` is its name, `made_by` the command-line words that make the module again
    (`model=resnet_block`, `model.dtype=bf16`); `decomposition` says how it was cut.

    `written` maps a slot's name to the implementation that a search wrote there last: a slot that says
    something else was edited or swapped by a person. `written_files` maps the path of a kernel file to
    the hash of what a search wrote there: it stays when `check` accepts an edit.
    """

    model: str
    decomposition: Decomposition
    slots: tuple[SlotChoice, ...]
    kernels: tuple[KernelEntry, ...]
    environment: Environment
    signature: Signature = Signature("", False, "", ())
    written: tuple[tuple[str, str], ...] = ()
    made_by: tuple[str, ...] = ()
    written_files: tuple[tuple[str, str], ...] = ()
