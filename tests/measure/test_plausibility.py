import math

import pytest

from mkevolve.measure.chips import load_chip
from mkevolve.measure.plausibility import Plausibility, judge
from mkevolve.measure.roofline import Roofline

H200 = load_chip("h200")
MEMORY = Roofline(100.0, 480_000_000, 0.0, 100.0, 1.0)
COMPUTE = Roofline(100.0, 1000, 1e11, 1.0, 100.0)


@pytest.mark.parametrize("bound", [MEMORY, COMPUTE])
@pytest.mark.parametrize(
    ("us", "said"),
    [
        (0.0, Plausibility.IMPOSSIBLE),
        (-1.0, Plausibility.IMPOSSIBLE),
        (math.nan, Plausibility.IMPOSSIBLE),
        (79.0, Plausibility.IMPOSSIBLE),
        (81.0, Plausibility.SUSPICIOUS),
        (101.0, Plausibility.SUSPICIOUS),
        (126.0, Plausibility.PLAUSIBLE),
    ],
)
def test_times_against_the_chip(bound, us, said):
    assert judge(us, bound, H200).plausibility is said


def test_the_measured_rate_decides_between_suspicious_and_plausible():
    reached = 100.0 * H200.dram_bytes / H200.dram_measured
    assert judge(reached * 0.999, MEMORY, H200).plausibility is Plausibility.SUSPICIOUS
    assert judge(reached * 1.001, MEMORY, H200).plausibility is Plausibility.PLAUSIBLE
    assert judge(100.0 / H200.matrix_reached * 1.001, COMPUTE, H200).plausibility is Plausibility.PLAUSIBLE


def test_messages_name_time_limit_and_chip():
    judgement = judge(50.0, MEMORY, H200)
    assert judgement.message == "50 us is impossible: h200 needs 80 us at least (memory)"
    assert (judgement.floor_us, round(judgement.reached_us)) == (80.0, 113)
    assert "beats the 125 us that h200 was seen to reach (compute)" in judge(90.0, COMPUTE, H200).message
    assert judge(500.0, MEMORY, H200).message == ""


def test_no_work_takes_any_time():
    nothing = Roofline(0.0, 0, 0.0, 0.0, 0.0)
    assert judge(0.5, nothing, H200).plausibility is Plausibility.PLAUSIBLE
