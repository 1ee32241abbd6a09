"""A user's mistakes: one clear line with the cure, exit code 2, no traceback, nothing lost."""

from pathlib import Path

import pytest
from command import SMALL_MODEL, mkevolve


def refused(folder: Path, *words: str) -> str:
    result = mkevolve(folder, *words)
    assert result.code == 2, (result.out, result.err)
    assert "Traceback" not in result.err
    last = result.err.strip().splitlines()[-1]
    assert last.startswith("mkevolve: ")
    return last


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "does not exist"),
        ("def get_inputs(): return []\n", "Model"),
        ("import torch\nclass Model(torch.nn.Module): pass\n", "get_inputs"),
        ("this is not python", "line 1"),
        ("import module_that_is_not_there\n", "module_that_is_not_there"),
        (SMALL_MODEL.replace("return [torch.randn(64, 32)]", "return torch.randn(64, 32)"), "get_inputs"),
        (SMALL_MODEL.replace("return [torch.randn(64, 32)]", "raise KeyError('x')"), "get_inputs"),
        (SMALL_MODEL.replace("torch.randn(64, 32)", "torch.randn(64, 31)"), "forward"),
        (SMALL_MODEL.replace("return [32]", "return [32, 33]"), "get_init_inputs"),
    ],
)
def test_model_files(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "m.py").write_text(content)
    assert expected in refused(tmp_path, "model=file", "model.path=m.py", "proposer=none")


def test_model_file_without_a_path(tmp_path: Path) -> None:
    assert "model.path=" in refused(tmp_path, "model=file")


@pytest.mark.parametrize("words", [["chip=h20"], ["model.dtype=fp8"], ["model.train=maybe"]])
def test_values_name_their_cure(tmp_path: Path, words: list[str]) -> None:
    last = refused(tmp_path, "model=mlp", *words)
    assert words[0].partition("=")[2] in last


def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"hello" * 300)
    last = refused(tmp_path, "model=mlp", "store=x.db", "proposer=none")
    assert "store=PATH" in last
    assert (tmp_path / "x.db").read_bytes() == b"hello" * 300


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "root" in refused(tmp_path, "model=mlp", "root=file", "proposer=none")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "no such file"), ("a: [", "line"), ("mkevolve: 1\n", "slots"), ("x: 1\n", "no composition")],
)
def test_composition_files(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "c.yaml").write_text(content)
    assert expected in refused(tmp_path, "check", "composition=c.yaml").lower()


def test_check_without_a_file(tmp_path: Path) -> None:
    assert "composition=FILE" in refused(tmp_path, "check")


def test_awkward_paths_work_end_to_end(tmp_path: Path) -> None:
    folder = tmp_path / "~ größe = [x], 模型"
    folder.mkdir()
    (folder / "m,y=1 (2).py").write_text(SMALL_MODEL)
    result = mkevolve(
        folder, "model=file", "model.path=m,y=1 (2).py", "root=out {a}", "proposer=none", "json=true"
    )
    assert result.code == 0, result.err
    assert Path(result.json()["composition"]).exists()
