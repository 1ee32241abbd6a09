"""What `check` writes of a slot is what it verified: text, hash and configuration."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mkevolve import recheck
from mkevolve.composition_file import kernel_path, rewrite, text_sha256, unchecked
from mkevolve.composition_file import read as read_composition
from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.composition import Composition, KernelEntry, Signature, SlotChoice
from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.graph import TensorSpec
from mkevolve.data.measurement import Clock, Environment, Evaluation, Measurement
from mkevolve.data.model import Leaf
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.store.store import Store

TEXT = "TUNABLES = {'B': (8, 4, 2)}\n\n\ndef run(x, B):\n    return x\n"
KERNEL = Candidate(TEXT, "template").id
SLOT = Slot("a", "sg_1", ("n",), ("x",), ("n",), "relu")
ENVIRONMENT = Environment(Clock.MODEL, "h200", "", "2", "3", "ieee", "1", "1")


def evaluation(b: int, us: float, status: Status = Status.PASSED, tier: Tier = Tier.SCREEN) -> Evaluation:
    verdict = Verdict(status, Step.NUMERIC, tier, "", Evidence())
    time = Measurement(Clock.MODEL, us, us, us)
    setting = Configuration((("B", b),))
    return Evaluation("sg_1", KERNEL, setting, ENVIRONMENT.id, tier, verdict, time, 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "composition.yaml"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A session whose kernels all pass; its ledger knows one of them, not yet evaluated."""

    def passes(session: object, composition: object, subgraph: object, trial: Trial) -> Evaluation:
        found = evaluation(0, 1.0, tier=Tier.ACCEPT)
        return replace(found, candidate=trial.candidate.id, configuration=trial.configuration)

    monkeypatch.setattr(recheck, "_evaluate", passes)
    with Store(tmp_path / "x.db") as store:
        run = store.start_run("test", "m", ENVIRONMENT, 0, None)
        store.add_evaluation(Candidate(TEXT, "template"), evaluation(8, 9.0), run)
        yield SimpleNamespace(
            store=store,
            run=run,
            environment=ENVIRONMENT,
            captured=SimpleNamespace(variants=(SimpleNamespace(name="target"),)),
            progress=SimpleNamespace(say=lambda text: None),
        )


def made(implementation: str, *kernels: KernelEntry) -> Composition:
    leaf = Leaf(TensorSpec((3,), "float32", (1,)))
    return Composition(
        "m", Decomposition((("n",),)), (SlotChoice(SLOT, implementation),), kernels, ENVIRONMENT,
        Signature("float32", False, "tree", (("target", (leaf,)),)),
    )  # fmt: skip


def check(session, path: Path, composition: Composition) -> Composition:
    (choice,) = composition.slots
    found = recheck._check_slot(session, composition, choice, path, {"sg_1": None})
    renewed = recheck._renewed(session, composition, [found])
    return rewrite(path, renewed, recheck._sources([found])).composition


def test_an_id_is_never_written_over_a_file_with_other_content(session, path):
    place = path.parent / kernel_path(KERNEL, "a")
    place.parent.mkdir()
    place.write_text("# something else\n")
    (entry,) = check(session, path, made(KERNEL)).kernels
    assert place.read_text() == "# something else\n"
    assert entry.path != kernel_path(KERNEL, "a")
    assert (path.parent / entry.path).read_text() == TEXT
    assert entry.sha256 == text_sha256(TEXT)
    assert unchecked(path, read_composition(path)) is None


def test_an_id_whose_listed_file_was_edited_gets_its_own_text_again(session, path):
    first = check(session, path, made(KERNEL))
    place = path.parent / first.kernels[0].path
    place.write_text("# edited\n")
    again = check(session, path, first)
    assert place.read_text() == "# edited\n"
    assert [e.id for e in again.kernels] == [KERNEL]
    assert (path.parent / again.kernels[0].path).read_text() == TEXT
    assert unchecked(path, read_composition(path)) is None


def test_the_hash_is_of_the_text_that_was_verified_not_of_what_lies_there_later(session, path, monkeypatch):
    (path.parent / "mine.py").write_bytes(TEXT.replace("\n", "\r\n").encode())
    passes = recheck._evaluate

    def saved_meanwhile(*args: object) -> Evaluation:
        (path.parent / "mine.py").write_text("# saved while the check ran\n")
        return passes(*args)

    exact = check(session, path, made("mine.py"))
    assert unchecked(path, exact) is None
    monkeypatch.setattr(recheck, "_evaluate", saved_meanwhile)
    assert "was changed" in unchecked(path, check(session, path, made("mine.py")))
    assert (path.parent / "mine.py").read_text() == "# saved while the check ran\n"


def test_a_listed_alternative_is_verified_in_the_configuration_of_its_figure(session, path):
    candidate = Candidate(TEXT, "template")
    session.store.add_evaluation(candidate, evaluation(4, 3.0), session.run)
    session.store.add_evaluation(candidate, evaluation(2, 1.0), session.run)
    session.store.add_evaluation(
        candidate, evaluation(2, 1.0, Status.WRONG_VALUE, Tier.ACCEPT), session.run
    )  # the fastest passed the screen only
    (entry,) = check(session, path, made(KERNEL)).kernels
    assert entry.configurations == (("target", Configuration((("B", 4),))),)


def test_an_unknown_text_is_verified_in_its_default_configuration(session, path):
    (path.parent / "mine.py").write_text(TEXT + "# mine\n")
    (entry,) = check(session, path, made("mine.py")).kernels
    assert entry.configurations == (("target", Configuration((("B", 8),))),)


def test_a_configuration_that_a_person_writes_is_verified_itself(session, path, monkeypatch):
    first = check(session, path, made(KERNEL))
    assert unchecked(path, read_composition(path)) is None
    (entry,) = first.kernels
    settings = Configuration((("B", 2),))
    assert entry.configurations != (("target", settings),)
    path.write_text(path.read_text().replace("B: 8", "B: 2"))
    changed = read_composition(path)
    assert changed.kernels[0].configurations == (("target", settings),)
    assert "another configuration" in unchecked(path, changed)
    tried = []
    passes = recheck._evaluate

    def seen(session, composition, subgraph, trial):
        tried.append(trial)
        return passes(session, composition, subgraph, trial)

    monkeypatch.setattr(recheck, "_evaluate", seen)
    again = check(session, path, changed)
    assert [(t.configuration, t.tier) for t in tried] == [(settings, Tier.ACCEPT)]
    assert again.kernels[0].configurations == (("target", settings),)
    assert unchecked(path, read_composition(path)) is None
