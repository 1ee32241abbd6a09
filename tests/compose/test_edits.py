"""What a person changed is known before a search starts, pinned in its cuts, and in the run of the whole."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from composing import compose
from torch import nn
from torch.nn import functional as F

from mkevolve import exploration as exploring
from mkevolve import pipeline
from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.compose.recapture import recapture
from mkevolve.composition_file import Written, edited, read, rewrite, text_sha256, unchecked, write
from mkevolve.data.composition import SlotChoice
from mkevolve.data.ids import source_id
from mkevolve.edits import Edits, edits_of
from mkevolve.endtoend import Deviation, Kernel
from mkevolve.errors import CompositionError
from mkevolve.evolve import Child
from mkevolve.exploration import Exploration
from mkevolve.filling import Filling
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.mutations import Move, apply

KERNEL = "def run(x, w, b):\n    return x\n"


class Net(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(F.gelu(self.first(x))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    kernels = {"linear+gelu": KERNEL, "linear+relu": KERNEL + "#\n"}
    return compose(tmp_path, Net().eval(), (torch.randn(4, 8),), kernels=kernels)


def capture(path: Path, module: nn.Module):
    return recapture("sample", read(path).signature, module)[0]


def split(path: Path) -> None:
    """Rewrite the file for a cut that evolution made: the first slot in two, the second half edited."""
    old = read(path)
    captured = capture(path, Net().eval())
    cut = apply(captured, old.decomposition, Move("split", (0,)))
    slots, _ = slots_of(captured, cut)
    choices = tuple(SlotChoice(s, "eager") for s in slots)
    write(path, replace(old, decomposition=cut, slots=choices, kernels=()), {}, keep=False)
    changed = read(path)
    edit = (changed.slots[0], replace(changed.slots[1], implementation="compile"), *changed.slots[2:])
    rewrite(path, replace(changed, slots=edit))


def test_nothing_there_or_nothing_changed_is_no_edit(path):
    captured = capture(path, Net().eval())
    assert edits_of(path, "sample", captured, keep=True) == Edits()
    assert edits_of(path.parent / "none.yaml", "sample", captured, keep=True) == Edits()
    with pytest.raises(CompositionError, match="belongs to the model sample"):
        edits_of(path, "other", captured, keep=True)


def test_a_changed_slot_that_only_the_old_cut_has_makes_the_search_start_there(path):
    captured = capture(path, Net().eval())
    split(path)
    old = read(path)
    assert edited(path, old) == (old.slots[1].slot.name,)
    edits = edits_of(path, "sample", captured, keep=True)
    assert edits.start == old.decomposition
    assert edits.start.id != first_cut(captured).id
    assert edits.pinned == {frozenset(old.slots[1].slot.nodes)}
    slots, _ = slots_of(captured, edits.start)
    new = replace(
        old, decomposition=edits.start, slots=tuple(SlotChoice(s, "eager") for s in slots), kernels=()
    )
    assert write(path, new, {}).kept == edited(path, old)  # so that the end has nothing left to refuse


def test_a_change_that_fits_no_cut_is_refused_before_the_search_with_the_cure(path):
    split(path)
    changed = capture(compose(path.parent / "x", Net(5).eval(), (torch.randn(4, 8),)), Net(5).eval())
    with pytest.raises(CompositionError, match="keep=false"):
        edits_of(path, "sample", changed, keep=True)
    assert edits_of(path, "sample", changed, keep=False) == Edits()


def test_no_tried_cut_lacks_a_pinned_partition(path, monkeypatch):
    captured = capture(path, Net().eval())
    cut = first_cut(captured)
    tried = [apply(captured, cut, Move("split", (number,))) for number in (0, 1)]
    monkeypatch.setattr(exploring, "children", lambda *rest: tuple(Child(c, 1.0) for c in tried))
    session = SimpleNamespace(
        captured=captured, chip=None, settings=SimpleNamespace(evolve_children=1),
        progress=SimpleNamespace(say=lambda text: None),
    )  # fmt: skip
    for pinned, expected in ((0, tried[1]), (1, tried[0])):
        found = Exploration(session, start=cut, pinned=frozenset({frozenset(cut.partitions[pinned])}))
        found._cut(cut)
        assert found._children(cut) == (expected,)


@pytest.fixture
def whole(path, monkeypatch):
    """Checks the whole with a filling of the old file's kernels; `bad` are sources that deviate."""
    captured = capture(path, Net().eval())
    old = read(path)
    slots = tuple(c.slot for c in old.slots)
    sources = {e.id: (path.parent / e.path).read_text() for e in old.kernels}
    filling = Filling(old.slots, old.kernels, sources)

    def fill(exploration, decomposition, refused):
        choices = tuple(
            replace(c, implementation="eager") if c.slot.name in refused else c for c in filling.choices
        )
        return replace(filling, choices=choices)

    class Scene:
        def __init__(self) -> None:
            self.runs: list[dict[str, Kernel]] = []
            self.bad: tuple[str, ...] = ()

        def check(self, session, decomposition, slots, subgraphs, kernels, backend):
            self.runs.append(dict(kernels))
            wrong = any(k.source in self.bad for k in kernels.values())
            return (Deviation("check_1", 2.0, 1.0, 3, "far off" if wrong else ""),)

        def __call__(self):
            edits = edits_of(path, "sample", captured, keep=True)
            session = SimpleNamespace(
                backends=lambda: InterpreterBackend
            )  # starts nothing: `check` stands in
            exploration = SimpleNamespace(
                session=session, slots={old.decomposition.id: slots}, subgraphs={s.subgraph: s for s in slots}
            )
            return pipeline._checked_filling(exploration, old.decomposition, edits), edits, slots

    scene = Scene()
    monkeypatch.setattr(pipeline, "fill", fill)
    monkeypatch.setattr(pipeline, "check_whole", scene.check)
    return scene


def checked(path: Path, text: str) -> str:
    """Edit the first slot's kernel and let `check` accept it; returns the slot's name."""
    found = read(path)
    (path.parent / found.kernels[0].path).write_text(text)
    entry = replace(found.kernels[0], id=source_id(text), sha256=text_sha256(text))
    rewrite(path, replace(found, kernels=(entry, *found.kernels[1:])))
    return found.slots[0].slot.name


def test_what_is_run_whole_is_what_will_be_written(path, whole):
    name = checked(path, "# mine\n")
    result, _, slots = whole()
    (run,) = whole.runs
    assert run[name].source == "# mine\n"
    assert run.keys() == {s.name for s in slots}
    written = write(path, replace(read(path), slots=result.filling.choices), result.filling.sources)
    for choice in written.composition.slots:
        assert (path.parent / choice.implementation).read_text() == run[choice.slot.name].source


def test_a_kept_kernel_with_which_the_whole_deviates_is_reported_and_will_not_load(path, whole):
    name = checked(path, "# mine\n")
    whole.bad = ("# mine\n",)
    result, edits, slots = whole()
    assert name in result.withdrawn
    assert not any(d.message for d in result.deviations)
    assert name not in whole.runs[-1]
    written = write(
        path, read(path), result.filling.sources, refused=result.withdrawn
    )  # the machine's table has its own kernel there
    assert written.kept == (name,)
    assert (path.parent / written.composition.slots[0].implementation).read_text() == "# mine\n"
    assert "no evidence" in unchecked(path, written.composition)
    (_, note) = pipeline._notes(slots, result, edits, written)
    assert name in note
    assert "far off" in note


def test_a_machines_kernel_that_deviates_does_not_cost_a_persons(path, whole):
    name = checked(path, "# mine\n")
    whole.bad = (KERNEL + "#\n",)
    result, _, _ = whole()
    assert result.withdrawn == {}
    assert list(whole.runs[-1]) == [name]


def test_an_unchecked_edit_is_run_as_its_reference_and_told(path, whole):
    found = read(path)
    (path.parent / found.kernels[0].path).write_text("# not checked\n")
    result, edits, slots = whole()
    name = found.slots[0].slot.name
    assert name not in whole.runs[0]
    notes = pipeline._notes(slots, result, edits, Written(found, (name,), (path,)))
    assert any(name in n and "mkevolve check" in n for n in notes)
