"""What `verify` alone is told: taken off the command line before Hydra could misread it."""

import pytest

from mkevolve.config import parse
from mkevolve.data.verdict import Tier
from mkevolve.request import Request, Show


def asked(*words: str) -> Request:
    return parse(["verify", "model=mlp", *words]).request


def test_nothing_said_is_the_whole_module_at_the_accept_tier() -> None:
    assert asked() == Request()
    assert asked().tier is Tier.ACCEPT


@pytest.mark.parametrize("word", ["81e49207", "1e5", "[a]", "a=b", "größe", "~"])
def test_names_may_be_anything(word: str) -> None:
    assert asked(f"subgraph={word}").subgraph == word


@pytest.mark.parametrize("text", ["[h200,b200]", "h200,b200", "[h200, 'b200', h200]", '["h200","b200",]'])
def test_chips_are_a_list(text: str) -> None:
    assert asked(f"chips={text}").chips == ("h200", "b200")


def test_choices_of_a_configuration_stay_text() -> None:
    words = ("configuration.BLOCK=064", "configuration.EVEN=true", "configuration.BLOCK=128")
    assert asked(*words).configuration == (("BLOCK", "128"), ("EVEN", "true"))


def test_what_is_shown_and_where_the_kernel_lies() -> None:
    found = asked("show=contract", "kernel=a b,c.py", "tier=screen")
    assert (found.show, found.tier) == (Show.CONTRACT, Tier.SCREEN)
    assert found.kernel is not None
    assert found.kernel.is_absolute()
    assert found.kernel.name == "a b,c.py"


def test_rules_are_part_of_what_makes_a_composition_again() -> None:
    words = ("model=mlp", "deterministic=false", "sandbox=strict", "seed=3")
    assert parse(words).model_words == ("model=mlp", "deterministic=false", "seed=3")
