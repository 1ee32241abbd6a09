"""A person's kernel on the road: edited, checked, and then searched again."""

from pathlib import Path

import pytest
import yaml
from command import SHORT, SMALL_MODEL, mkevolve


@pytest.mark.interp
def test_an_edited_kernel_survives_its_check_and_the_next_search(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL_MODEL)
    words = ("model=file", "model.path=small.py", "json=true", *SHORT)
    first = mkevolve(tmp_path, *words)
    assert first.code == 0, first.err
    path = Path(first.json()["composition"])
    slot = first.json()["slots"][0]
    kernel = path.parent / slot["implementation"]
    mine = kernel.read_text().replace("def run(", "# Mine.\ndef run(")
    mine = mine.replace("import torch", "import torch  # mine", 1) if "# Mine." not in mine else mine
    kernel.write_text(mine)
    checked = mkevolve(tmp_path, "check", f"composition={path}")
    assert checked.code == 0, (checked.out, checked.err)
    again = mkevolve(tmp_path, *words)
    assert again.code == 0, again.err
    assert again.json()["kept"] == [slot["name"]]
    assert any("elements equal the fp64 reference" in note for note in again.json()["notes"])
    assert kernel.read_text() == mine
    assert yaml.safe_load(path.read_text())["slots"][0]["implementation"] == slot["implementation"]
    assert mkevolve(tmp_path, "check", f"composition={path}").code == 0
