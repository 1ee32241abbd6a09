"""The result on screen: no column is lost, estimates say so, fall-backs name their reason."""

import json

import pytest

from mkevolve.data.measurement import Clock, Measurement
from mkevolve.data.result import RunResult, SlotRow, totals
from mkevolve.report.terminal import as_json, as_text

ROWS = (
    SlotRow(
        "a_long_slot_name_with_many_parts", "conv2d+batch_norm+add+relu", "sg_1",
        "kernels/k_0123456789ab_another_slot.py", Measurement(Clock.MODEL, 68.7, 45.8, 103.0),
        Measurement(Clock.MODEL, 341.0, 201.0, 580.0), 54.0, 2.4e-07, 1.3e-05,
    ),
    SlotRow(
        "scan", "cumsum", "sg_2", "eager", Measurement(Clock.MODEL, 10.0, 6.0, 17.0),
        Measurement(Clock.MODEL, 10.0, 6.0, 17.0), 1.0, reason="no template covers aten.cumsum.default",
    ),
)  # fmt: skip
RESULT = RunResult(
    "done", "block", "eval mode, float32, precision ieee", "model", "h200", "env_1", "c.yaml", "m.db", ROWS,
    totals(ROWS), 5, 0, 1, 2.0, next_command="python -m mkevolve check composition=c.yaml",
)  # fmt: skip


def test_every_column_is_whole_where_there_is_no_terminal() -> None:
    text = as_text(RESULT)
    assert text.splitlines()[0].startswith("not measured: run `mkevolve measure`")
    (line,) = [line for line in text.splitlines() if line.startswith("a_long_slot")]
    for cell in ("k_0123456789ab", "model", "68.7 (45.8..103)", "341", "79 %", "2.4e-07 / 1.3e-05"):
        assert cell in line
    assert "another_slot" not in line
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_folds_and_loses_nothing(width: int) -> None:
    text = as_text(RESULT, width)
    table = [line for line in text.splitlines() if "stays on" not in line]
    assert "…" not in text
    assert "68.7" in "".join(table)


def test_fallbacks_are_listed_and_counted() -> None:
    text = as_text(RESULT)
    assert "scan stays on eager: no template covers aten.cumsum.default" in text
    assert "total estimated: 78.7 µs" in text
    assert "1 of 2 slots on subkernels (87 % of the time)" in text
    assert "without the slots on fall-backs: 68.7 µs against 341 µs: 4.96x" in text


def test_json_has_the_same_figures() -> None:
    found = json.loads(as_json(RESULT))
    assert [s["own"] for s in found["slots"]] == [True, False]
    assert found["slots"][0]["roofline"] == pytest.approx(54.0 / 68.7)
    assert found["measured"] is False
