"""What every executor promises: all records, each worker's in order, and never a step ahead of the driver."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from mkevolve.errors import ConfigError


def count_up(task: tuple[str, int]) -> Iterator[int]:
    yield from range(task[1])


def fail(task: str) -> Iterator[int]:
    yield 1
    raise ConfigError(f"{task} is wrong")


def mark_steps(folder: str) -> Iterator[int]:
    for step in range(3):
        (Path(folder) / f"step{step}").touch()
        yield step


def note_its_end(folder: str) -> Iterator[int]:
    try:
        yield from range(3)
    finally:
        (Path(folder) / "ended").touch()


class ExecutorContract:
    """Subclass and give a fixture `executor`."""

    def test_all_records_of_all_tasks_in_order(self, executor) -> None:
        tasks = [("a", 3), ("b", 0), ("c", 5), ("d", 1)]
        got = defaultdict(list)
        for task, record in executor.run(count_up, tasks):
            got[task].append(record)
        assert dict(got) == {t: list(range(t[1])) for t in tasks if t[1]}

    def test_no_tasks_no_records(self, executor) -> None:
        assert list(executor.run(count_up, [])) == []

    def test_a_user_error_in_a_worker_reaches_the_driver(self, executor) -> None:
        with pytest.raises(ConfigError, match="this is wrong"):
            list(executor.run(fail, ["this"]))

    def test_a_worker_waits_until_its_record_was_taken(self, executor, tmp_path: Path) -> None:
        records = executor.run(mark_steps, [str(tmp_path)])
        assert next(records)[1] == 0
        time.sleep(0.3)
        assert not (tmp_path / "step1").exists()
        assert next(records)[1] == 1
        assert (tmp_path / "step1").exists()
        records.close()
        time.sleep(0.3)
        assert not (tmp_path / "step2").exists()

    def test_closing_lets_every_worker_end_what_it_started(self, executor, tmp_path: Path) -> None:
        records = executor.run(note_its_end, [str(tmp_path)])
        assert next(records)[1] == 0
        assert not (tmp_path / "ended").exists()
        records.close()
        assert (tmp_path / "ended").exists()
