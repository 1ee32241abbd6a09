"""The outer loop's judgement: a verified subkernel is never given up for an estimate of eager."""

from types import SimpleNamespace

import pytest
from test_evolve import chain, one_each

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.measurement import Clock, Measurement
from mkevolve.exploration import Exploration


def time_of(us: float) -> Measurement:
    return Measurement(Clock.MODEL, us, us, us)


@pytest.fixture
def exploration(monkeypatch: pytest.MonkeyPatch) -> Exploration:
    """Two relus: each alone has a subkernel of 5 µs and eager takes 4; fused: no subkernel, eager 6."""
    found = Exploration(SimpleNamespace(captured=chain(2)))
    single = {"relu"}

    def ops(subgraph: str) -> str:
        return found.subgraphs[subgraph].ops

    monkeypatch.setattr(Exploration, "time", lambda self, s: time_of(5.0) if ops(s) in single else None)
    monkeypatch.setattr(Exploration, "fallback", lambda self, s: time_of(4.0 if ops(s) in single else 6.0))
    return found


def test_a_fuse_without_a_kernel_is_no_gain_however_fast_eager_is_estimated(exploration: Exploration) -> None:
    parent, fused = one_each(2), Decomposition((("r0", "r1"),))
    predict = exploration._predict_over(parent)
    assert predict(parent) == 10.0
    assert exploration.predict(fused) == 6.0
    assert predict(fused) == float("inf")
