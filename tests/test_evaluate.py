"""Times of one environment come from one description of the chip and one set of constants."""

from dataclasses import replace

from mkevolve.data.model import Precision
from mkevolve.evaluate import environment
from mkevolve.measure.chips import load_chip
from mkevolve.measure.cost_model import DEFAULT, version_on


def test_an_edited_chip_is_another_environment_of_the_same_name() -> None:
    chip = load_chip("h200")
    faster = replace(chip, dram_measured=chip.dram_measured * 1.01)
    usual, other = (environment(c, Precision.IEEE) for c in (chip, faster))
    assert usual.id != other.id
    assert usual.chip == other.chip == "h200"
    assert usual.cost_model.startswith("1-")
    assert environment(replace(chip), Precision.IEEE) == usual


def test_where_a_number_comes_from_changes_no_time() -> None:
    chip = load_chip("h200")
    assert environment(replace(chip, source="elsewhere"), Precision.IEEE) == environment(chip, Precision.IEEE)


def test_a_changed_constant_is_another_version() -> None:
    chip = load_chip("h200")
    assert version_on(chip) == version_on(chip, replace(DEFAULT))
    assert version_on(chip) != version_on(chip, replace(DEFAULT, norm=DEFAULT.norm + 0.1))


def test_records_under_other_rules_are_of_another_environment() -> None:
    chip = load_chip("h200")
    loose = environment(chip, Precision.IEEE, deterministic=False)
    assert loose.id != environment(chip, Precision.IEEE).id
    assert "deterministic=false" in loose.verifier
