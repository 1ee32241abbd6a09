import pytest
import yaml

from mkevolve.errors import ConfigError
from mkevolve.measure import chips
from mkevolve.measure.chips import chip_names, load_chip


@pytest.mark.parametrize("name", ["h200", "h100", "b200", "a100", "mi300x"])
def test_every_chip_is_complete_and_consistent(name):
    chip = load_chip(name)
    assert chip.name == name
    assert chip.dram_measured < chip.dram_bytes < chip.l2_bytes
    assert chip.shared_per_program <= chip.shared_per_processor
    assert 0 < chip.matrix_reached <= 1
    assert chip.matrix_rate("tf32") < chip.matrix_rate("float16")
    assert chip.source


def test_a_chip_without_fp32_matrix_units_multiplies_fp32_at_the_vector_rate():
    chip = load_chip("h200")
    assert chip.matrix_rate("float32") == dict(chip.vector)["float32"]


def test_names_are_files():
    assert set(chip_names()) >= {"h200", "h100", "b200", "a100", "mi300x"}


def test_an_unknown_chip_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean h200"):
        load_chip("h2000")


def test_it_works_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_chip.cache_clear()
    assert load_chip("a100").processors == 108


def test_a_bad_file_is_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "chip"
    folder.mkdir()
    (folder / "odd.yaml").write_text(yaml.safe_dump({"name": "odd", "colour": "red"}))
    monkeypatch.setattr(chips, "conf_dir", lambda: tmp_path)
    with pytest.raises(ConfigError, match="colour"):
        load_chip("odd")
    (folder / "half.yaml").write_text(yaml.safe_dump({"name": "half"}))
    with pytest.raises(ConfigError, match=r"half\.yaml"):
        load_chip("half")
