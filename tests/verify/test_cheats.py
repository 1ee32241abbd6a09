"""Candidates that cheat, one mechanism a file, are refused by every gate that they name, and by no luck."""

import pytest
from cheat_files import CHEATS, README, SAYS, Trials, written

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status, Step
from mkevolve.search.params import default_configuration
from mkevolve.verify import engine

pytestmark = pytest.mark.interp

HERE = [c for c in CHEATS if not c.device]
_STEPS = list(Step)


def ids(cheat):
    return getattr(cheat, "name", str(cheat))


@pytest.fixture(scope="module")
def trials():
    backend, unconfined = InterpreterBackend(), InterpreterBackend(confine=False)
    yield Trials(backend, unconfined)
    backend.close()
    unconfined.close()


@pytest.fixture
def verdict(trials, monkeypatch):
    def of(cheat, off=frozenset()):
        if cheat.deadline is not None:
            monkeypatch.setitem(engine.DEADLINE, cheat.tier, cheat.deadline)
        return trials.verdict(cheat, frozenset(off))

    return of


def test_there_are_enough():
    assert len(CHEATS) >= 100
    assert {gate for cheat in CHEATS for gate in cheat.gates} == set(Gate)


@pytest.mark.parametrize("cheat", HERE, ids=ids)
def test_cheat_is_refused_where_it_says(cheat, verdict):
    found = verdict(cheat)
    assert found.status is cheat.status, found
    assert found.message
    if cheat.at is not None:
        latest, says = SAYS[cheat.at]
        assert found.status in says
        assert _STEPS.index(found.step) <= _STEPS.index(latest)


@pytest.mark.parametrize("cheat", [c for c in HERE if c.gates], ids=ids)
def test_mechanism_is_real(cheat, verdict):
    found = verdict(cheat, cheat.gates)
    assert found.status is cheat.without, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cheat", "gate"), [(c, g) for c in HERE if len(c.gates) > 1 for g in c.gates], ids=ids
)
def test_each_gate_stops_it_alone(cheat, gate, verdict):
    found = verdict(cheat, set(cheat.gates) - {gate})
    assert found.status in SAYS[gate][1], found


@pytest.mark.slow
@pytest.mark.parametrize("cheat", HERE, ids=ids)
def test_ten_runs_agree(cheat, verdict):
    found = [verdict(cheat) for _ in range(10)]
    assert len({(v.status, v.step, v.evidence.variant, v.evidence.line) for v in found}) == 1, found


def test_the_default_of_a_candidate_does_not_vouch_for_its_configurations(trials, verdict):
    (cheat,) = [c for c in CHEATS if c.name == "wrong_when_tuned"]
    default = default_configuration(cheat.path.read_text())
    assert default != cheat.configuration
    assert verdict(engine.replace(cheat, configuration=default)).passed
    assert verdict(cheat).status is Status.WRONG_VALUE


def test_the_readme_is_up_to_date():
    assert README.read_text() == written(), "run .venv/bin/python tests/verify/cheat_files.py"
