"""Composition files and their kernel files: read, written by a search, rewritten by `check` and `swap`.

A search never overwrites what a person changed: a slot whose line differs from what a search wrote there
last, or whose kernel file differs from what a search wrote there (from what was verified, where none did).
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mkevolve.composition_text import from_file, to_text
from mkevolve.data.composition import FALLBACKS, Composition, KernelEntry, SlotChoice
from mkevolve.data.decomposition import Slot
from mkevolve.data.ids import source_id
from mkevolve.errors import CompositionError

FILE_NAME = "composition.yaml"


@dataclass(frozen=True, slots=True)
class Written:
    """What lies on disk now; `kept` names the slots that a person had changed, `files` all paths."""

    composition: Composition
    kept: tuple[str, ...]
    files: tuple[Path, ...]


def read(path: Path) -> Composition:
    """Read a composition file; raises `CompositionError` with file, line and field for a mistake in it."""
    return from_file(path)


def kernel_path(kernel: str, slot: str) -> str:
    """Where a kernel's file lies, relative to the composition file."""
    return f"kernels/{kernel}_{slot}.py"


def sha256(path: Path) -> str | None:
    """The hash of a file's bytes; None where there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CompositionError(f"{path}: {error.strerror}") from None


def text_sha256(text: str) -> str:
    """The hash of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def free_path(folder: Path, place: str, text: str) -> str:
    """Return `place`, numbered where a file with other content lies there."""
    stem, number, found = place.removesuffix(".py"), 1, place
    while sha256(folder / found) not in (None, text_sha256(text)):
        number += 1
        found = f"{stem}_{number}.py"
    return found


def read_old(path: Path, model: str) -> Composition | None:
    """What an earlier search of this model wrote; None where nothing lies there."""
    old = read(path) if path.exists() else None
    if old is not None and old.model != model:
        raise CompositionError(f"{path} belongs to the model {old.model}; use another root= or move it away")
    return old


def write(
    path: Path,
    composition: Composition,
    sources: Mapping[str, str],
    *,
    keep: bool = True,
    refused: Mapping[str, str] | None = None,
) -> Written:
    """Write the result of a search: the kernels of the table from `sources` (by `k_` id), then the file.

    Slots that a person changed keep their implementation unless `keep` is false; `refused` says of which of
    them the kernel may not run, and why: its evidence is withdrawn. Kernel files that an earlier search wrote
    and nothing names any more are removed. Raises `CompositionError` where the old file belongs to another
    model, is malformed, or has a changed slot that the new cut lacks.
    """
    old = read_old(path, composition.model)
    made = replace(
        composition,
        written=tuple((c.slot.name, c.implementation) for c in composition.slots),
        written_files=tuple(
            (e.path, text_sha256(sources[e.id])) for e in composition.kernels if e.id in sources
        ),
    )
    kept: tuple[str, ...] = ()
    if old is not None and keep:
        made, kept = _with_kept(path, made, old, refused or {})
    files = _write_all(path, made, sources, _edited_files(path, old) if keep else frozenset())
    if old is not None:
        _remove_orphans(path, old, files.composition)
    return replace(files, kept=kept)


def rewrite(path: Path, composition: Composition, sources: Mapping[str, str] | None = None) -> Written:
    """Write what `check` or `swap` made of a file that was read: slots and kernels as given.

    A swapped slot counts as changed by a person from then on. Kernel files are written only for ids in
    `sources`, and never over one that is there; the hash of every other entry is left as it is.
    """
    present = frozenset(e.path for e in composition.kernels if (path.parent / e.path).exists())
    return _write_all(path, composition, sources or {}, present)


def edited(path: Path, composition: Composition) -> tuple[str, ...]:
    """Names of the slots that a person changed: their line, their kernel file or its configurations."""
    written = dict(composition.written)
    changed = _edited_files(path, composition)
    found = []
    for choice in composition.slots:
        entry = entry_of(composition, choice)
        by_line = written.get(choice.slot.name) != choice.implementation
        by_file = entry is not None and (entry.path in changed or entry.reset)
        if by_line or by_file:
            found.append(choice.slot.name)
    return tuple(found)


def entry_of(composition: Composition, choice: SlotChoice) -> KernelEntry | None:
    """The kernel that a slot names by path or id, if it was checked for the slot's subgraph."""
    name = os.path.normpath(choice.implementation)
    for entry in composition.kernels:
        named = choice.implementation == entry.id or name == os.path.normpath(entry.path)
        if named and entry.subgraph == choice.slot.subgraph:
            return entry
    return None


def unchecked(path: Path, composition: Composition) -> str | None:
    """Say which slot may not run yet, and why; None where all of them were checked."""
    for choice in composition.slots:
        if choice.implementation in FALLBACKS:
            continue
        entry = entry_of(composition, choice)
        where = f"slot {choice.slot.name}: {choice.implementation}"
        if entry is None:
            return f"{where} was not checked for {choice.slot.subgraph}"
        found = sha256(path.parent / entry.path)
        if found is None:
            return f"{where}: no such file {path.parent / entry.path}"
        if found != entry.sha256:
            return f"{where} was changed after it was checked"
        if _kernel_id(path.parent / entry.path) != entry.id:
            return f"{where} does not hold {entry.id}, the kernel that was checked"
        if not entry.evidence:
            return f"{where} has no evidence"
        if entry.reset:
            return f"{where} was checked in another configuration"
    return None


def _kernel_id(path: Path) -> str | None:
    """The id of the kernel that a file holds; None where it is no text."""
    try:
        return source_id(path.read_bytes().decode())
    except UnicodeDecodeError:
        return None


def _edited_files(path: Path, composition: Composition | None) -> frozenset[str]:
    if composition is None:
        return frozenset()
    written = {e.path: e.sha256 for e in composition.kernels} | dict(composition.written_files)
    return frozenset(p for p, known in written.items() if sha256(path.parent / p) not in (None, known))


def _with_kept(
    path: Path, made: Composition, old: Composition, refused: Mapping[str, str]
) -> tuple[Composition, tuple[str, ...]]:
    changed = set(edited(path, old))
    kept: dict[str, SlotChoice] = {}
    entries = list(made.kernels)
    for choice in old.slots:
        if choice.slot.name not in changed:
            continue
        slot = place_of((c.slot for c in made.slots), choice.slot)
        if slot is None:
            raise CompositionError(
                f"{path}: slot {choice.slot.name} was changed by hand and the new cut has no such slot; "
                "keep=false drops the change"
            )
        reason = refused.get(slot.name, "")
        place = next(c for c in made.slots if c.slot is slot)
        kept[slot.name] = replace(place, implementation=choice.implementation, reason=reason)
        named = entry_of(old, choice)
        if named is not None:
            named = replace(named, evidence="") if reason else named
            entries = [e for e in entries if (e.path, e.subgraph) != (named.path, named.subgraph)] + [named]
    slots = tuple(kept.get(c.slot.name, c) for c in made.slots)
    files = {e.path for e in entries}
    return replace(
        made,
        slots=slots,
        kernels=tuple(entries),
        written_files=tuple(
            {**{p: h for p, h in old.written_files if p in files}, **dict(made.written_files)}.items()
        ),
    ), tuple(kept)


def place_of(slots: Iterable[Slot], old: Slot) -> Slot | None:
    """The slot of a new cut that computes what the old one did."""
    same = [s for s in slots if set(s.nodes) == set(old.nodes)]
    return next((s for s in same if s.subgraph == old.subgraph), None)


def _write_all(
    path: Path, composition: Composition, sources: Mapping[str, str], protected: frozenset[str]
) -> Written:
    """Write kernels first and the file that names them last, each in one step."""
    entries = []
    for entry in composition.kernels:
        if entry.id in sources and entry.path not in protected:
            data = sources[entry.id].encode()
            _replace_file(path.parent / entry.path, data)
            entry = replace(entry, sha256=hashlib.sha256(data).hexdigest())
        entries.append(entry)
    composition = replace(composition, kernels=tuple(entries))
    _replace_file(path, to_text(composition).encode())
    files = (path, *dict.fromkeys(path.parent / e.path for e in entries))
    return Written(composition, (), files)


def _replace_file(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise CompositionError(
            f"{path}: cannot be written: {error.strerror}; give another folder as root="
        ) from None


def _remove_orphans(path: Path, old: Composition, new: Composition) -> None:
    named = {e.path for e in new.kernels} | {c.implementation for c in new.slots}
    for place, written in old.written_files:
        file = path.parent / place
        inside = path.parent.resolve() in file.resolve().parents
        if place not in named and inside and sha256(file) == written:
            file.unlink()
