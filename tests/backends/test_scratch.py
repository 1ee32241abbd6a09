"""Scratch folders go with their owner, or with the next sweep after it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mkevolve.backends.scratch import Scratch, plain_text, remove, sweep


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


def test_what_a_candidate_left_is_removed_however_deep_or_locked(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = tmp_path / "job"
    code = (
        "import os, sys\n"
        "os.makedirs(sys.argv[1]); os.chdir(sys.argv[1])\n"
        "os.symlink(sys.argv[2], 'link'); os.mkdir('empty', 0)\n"
        "os.mkdir('locked'); open('locked/file', 'w'); os.chmod('locked', 0)\n"
        "for _ in range(1200): os.mkdir('deep'); open('file', 'w'); os.chdir('deep')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder), str(outside)], check=True)
    remove(folder)
    assert os.listdir(tmp_path) == ["outside"]
    assert (outside / "kept").read_text() == "kept"
    remove(folder)  # that is not there


def test_only_the_end_of_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a" * 10 + "end")
    assert plain_text(tmp_path / "plain", 4) == "aend"
    os.symlink(tmp_path / "plain", tmp_path / "link")
    os.symlink("/dev/zero", tmp_path / "endless")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "endless", "pipe", "missing", "."):
        assert plain_text(tmp_path / name) == ""
