"""Scratch folders go with their owner, or with the next sweep after it."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mkevolve.backends.scratch import Scratch, sweep


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_sweep_takes_what_no_living_process_owns(temporary: Path) -> None:
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from mkevolve.backends.scratch import Scratch\n"
        "path = Scratch().path\n"
        "(path / 'inputs').mkdir(); (path / 'inputs' / 'x').write_text('x')\n"
        "print(path, flush=True); sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(temporary)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().strip())
    own = Scratch()
    (temporary / "other").mkdir()
    sweep()
    assert path.exists()
    assert own.path.exists()
    owner.kill()
    owner.communicate()
    sweep()
    assert not path.exists()
    assert sorted(p.name for p in temporary.iterdir()) == sorted([own.path.name, "other"])
    own.release()
    assert not own.path.exists()


def test_a_link_is_not_followed(temporary: Path) -> None:
    (temporary / "precious").mkdir()
    (temporary / "mkevolve-link").symlink_to(temporary / "precious")
    sweep()
    assert (temporary / "precious").exists()
