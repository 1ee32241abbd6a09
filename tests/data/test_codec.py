import pytest

from mkevolve.data.candidate import Configuration
from mkevolve.data.codec import decode, encode
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict


@pytest.mark.parametrize("value", ["tf32x3", "16", "inf", "", True, 4, 1.5])
def test_a_setting_keeps_its_type(value):
    configuration = Configuration((("NAME", value),))
    again = decode(Configuration, encode(configuration))
    assert again == configuration
    assert type(again.settings[0][1]) is type(value)


@pytest.mark.parametrize("error", [None, 0.5, float("inf")])
def test_a_verdict_survives(error):
    evidence = Evidence("check_0", "large", 3, error, 1e-5, 12, 4, "first at [0]")
    verdict = Verdict(Status.WRONG_VALUE, Step.NUMERIC, Tier.ACCEPT, "why", evidence, ("note",))
    assert decode(Verdict, encode(verdict)) == verdict
