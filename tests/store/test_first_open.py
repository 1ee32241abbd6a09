"""Several processes may open one new file at the same time; each gets a whole database."""

import subprocess
import sys
import time
from pathlib import Path

OPEN = """
import sys, time
from pathlib import Path
from mkevolve.store.store import Store
sys.stdout.write("ready\\n"); sys.stdout.flush()
for line in sys.stdin:
    path, at = line.rsplit(" ", 1)
    while time.time() < float(at):
        pass
    try:
        with Store(Path(path)) as store:
            answer = f"{store.counts()['run']} {store._db.journal_mode}"
    except Exception as error:
        answer = repr(error)
    sys.stdout.write(answer + "\\n"); sys.stdout.flush()
"""
PROCESSES, FILES = 4, 12


def test_a_new_file_opened_by_several_processes_at_once(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(PROCESSES)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for number in range(FILES):
            at = time.time() + 0.05
            for child in children:
                assert child.stdin is not None
                child.stdin.write(f"{tmp_path / f'{number}.db'} {at}\n")
            answers = [child.stdout.readline().strip() for child in children if child.stdout is not None]
            assert answers == ["0 wal"] * PROCESSES
    finally:
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(timeout=30)
