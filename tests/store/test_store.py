"""The ledger: what is committed survives, foreign and damaged files are refused in one line."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.decomposition import Decomposition, placed_id
from mkevolve.data.measurement import Clock, Environment, Evaluation, Measurement
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.errors import StoreError
from mkevolve.store.store import Store


def evaluation(number: int, environment: str = "env_a") -> tuple[Candidate, Evaluation]:
    candidate = Candidate(
        f"x = {number}\n", "template", ("k_0",), "rows: 1 -> 2", (("rows", 2), ("tma", True))
    )
    return candidate, Evaluation(
        "sg_1", candidate.id, Configuration((("BLOCK", 64), ("num_warps", 4))), environment, Tier.SCREEN,
        Verdict(
            Status.PASSED, Step.MEASURE, Tier.SCREEN, "",
            Evidence("check_1", "large", 3, 0.5, 1.0, 77, 4), ("n",),
        ),
        Measurement(Clock.MODEL, 1.5, 1.0, 2.25, (("dram", 1.0),)), 0.25,
    )  # fmt: skip


def test_rows_come_back_equal(tmp_path: Path, environment: Environment) -> None:
    path = tmp_path / "a" / "b.db"
    with Store(path) as store:
        run = store.start_run("mkevolve", "m", environment, 0, {"k": 1})
        for number in range(3):
            store.add_evaluation(*evaluation(number), run)
        store.add_evaluation(*evaluation(9, "env_b"), run)
        store.end_run(run, "done")
    with Store(path) as store:
        assert store.evaluations("sg_1", "env_a") == tuple(evaluation(n)[1] for n in range(3))
        assert store.candidate(evaluation(1)[0].id) == evaluation(1)[0]
        assert store.candidate("k_unknown") is None
        assert store.counts()["run"] == 1


def test_writing_twice_keeps_one_row(tmp_path: Path, environment: Environment) -> None:
    with Store(tmp_path / "x.db") as store:
        run = store.start_run("c", "m", environment, 0, None)
        for _ in range(2):
            store.add_evaluation(*evaluation(1), run)
            store.add_decomposition(Decomposition((("a",), ("b",))), "m", run, 3.0)
        assert store.counts()["evaluation"] == 1
        assert store.counts()["candidate"] == 1
        assert store.counts()["decomposition"] == 1


def test_a_cut_of_two_captures_has_two_rows_and_each_names_its_own_parent(
    tmp_path: Path, environment: Environment
) -> None:
    parent = Decomposition((("a",), ("b",)))
    child = Decomposition((("a", "b"),), parent=parent.id, mutation="fuse a b")
    with Store(tmp_path / "x.db") as store:
        run = store.start_run("c", "m", environment, 0, None)
        for place, us in (("m_fp32", 4.0), ("m_bf16", 2.0)):
            store.add_decomposition(parent, "m", run, 2 * us, place)
            store.add_decomposition(child, "m", run, us, place)
    database = sqlite3.connect(tmp_path / "x.db")
    rows = {
        row[0]: row[1:] for row in database.execute("select id, cut, parent, predicted_us from decomposition")
    }
    database.close()
    assert len(rows) == 4
    for place, us in (("m_fp32", 4.0), ("m_bf16", 2.0)):
        cut, above, predicted = rows[placed_id(child.id, place)]
        assert (cut, predicted) == (child.id, us)
        assert rows[above] == (parent.id, None, 2 * us)


def test_a_database_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    candidate, found = evaluation(1)
    with Store(path) as store:
        store.add_evaluation(candidate, found, "r_1")
        store.add_decomposition(Decomposition((("a",),)), "m", "r_1")
    database = sqlite3.connect(path)
    with database:
        database.execute("alter table evaluation drop column cases")
        database.execute("alter table decomposition drop column cut")
        database.execute("delete from _sqlite_migrations where name != 'create_tables'")
        database.execute("update evaluation set body = json_remove(body, '$.cases')")
    database.close()
    with Store(path) as store:
        assert store.evaluations("sg_1", "env_a") == (found,)
        store.add_evaluation(*evaluation(2), "r_1")
    database = sqlite3.connect(path)
    assert database.execute("select cut = id from decomposition").fetchall() == [(1,)]
    database.close()


def test_the_tables_are_those_of_the_design(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        names = set(store.counts())
    assert {
        "run", "decomposition", "subgraph", "candidate", "evaluation", "llm_call", "composition", "slot",
    } <= names  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [b"not a database at all, but long enough to have a header" * 40, b"SQLite format 3\0" + b"\xff" * 600],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(damage)
    with pytest.raises(StoreError, match="store=PATH"):
        Store(path)
    assert path.read_bytes() == damage


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("create table photo (id integer)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_an_unwritable_place_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        Store(tmp_path / "file" / "x.db")


def test_a_kill_loses_nothing_committed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    script = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_store import evaluation
        from mkevolve.store.store import Store
        store = Store(Path({str(path)!r}))
        for number in range(100000):
            store.add_evaluation(*evaluation(number), "r_1")
            sys.stdout.write(f"{{number}}\\n"); sys.stdout.flush()
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 40:
            break
    time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    reported = [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.wait()
    last = reported[-1] if reported else 40
    with Store(path) as store:
        rows = store.evaluations("sg_1", "env_a")
        assert len(rows) >= last + 1
        assert rows == tuple(evaluation(n)[1] for n in range(len(rows)))
