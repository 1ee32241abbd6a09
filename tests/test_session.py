"""Where a composition lies: two model files of one name, and two chips, never share a folder."""

from pathlib import Path

import pytest

from mkevolve import session
from mkevolve.composition_file import FILE_NAME, write
from mkevolve.config import parse
from mkevolve.data.composition import Composition, Signature
from mkevolve.data.decomposition import Decomposition
from mkevolve.data.measurement import Environment


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "x", tmp_path / "y"
    for folder in made:
        folder.mkdir()
        (folder / "net.py").write_text("")
    return made


def folder_of(root: Path, file: Path, *words: str) -> str:
    settings = parse(["model=file", f"model.path={file}", f"root={root}", *words])
    return session._folder(settings, "net", session.model_config(settings))


def write_as(root: Path, file: Path, environment: Environment) -> None:
    """What a search of the file leaves behind."""
    made_by = parse(["model=file", f"model.path={file}"]).model_words
    calls = Signature("float32", False, "", (("target", ()),))
    empty = Composition("net", Decomposition(()), (), (), environment, calls, made_by=made_by)
    write(root / "decompositions" / folder_of(root, file) / FILE_NAME, empty, {})


def test_a_second_file_of_the_same_name_gets_a_folder_of_its_own(
    tmp_path: Path, folders: tuple[Path, Path], environment: Environment
) -> None:
    first, second = (folder / "net.py" for folder in folders)
    assert folder_of(tmp_path, first) == folder_of(tmp_path, second) == "net"
    write_as(tmp_path, first, environment)
    assert folder_of(tmp_path, first) == "net"
    other = folder_of(tmp_path, second)
    assert other.startswith("net-")
    write_as(tmp_path, second, environment)
    assert folder_of(tmp_path, second) == other
    (tmp_path / "decompositions" / "net" / FILE_NAME).unlink()
    assert folder_of(tmp_path, second) == other  # it stays where its edits are


def test_a_file_that_was_moved_keeps_its_folder(
    tmp_path: Path, folders: tuple[Path, Path], environment: Environment
) -> None:
    first, second = (folder / "net.py" for folder in folders)
    write_as(tmp_path, first, environment)
    first.rename(second)
    assert folder_of(tmp_path, second) == "net"


def test_another_chip_gets_a_folder_of_its_own(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    file = folders[0] / "net.py"
    assert folder_of(tmp_path, file, "chip=h200") == "net"
    assert folder_of(tmp_path, file, "chip=a100") == "net-a100"


def test_a_damaged_composition_is_left_to_where_it_is_written(
    tmp_path: Path, folders: tuple[Path, Path], environment: Environment
) -> None:
    first, second = (folder / "net.py" for folder in folders)
    write_as(tmp_path, first, environment)
    (tmp_path / "decompositions" / "net" / FILE_NAME).write_text("a: [")
    assert folder_of(tmp_path, second) == "net"
