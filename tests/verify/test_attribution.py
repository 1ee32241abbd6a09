import pytest

from mkevolve.data.activity import Activity
from mkevolve.data.graph import TensorSpec
from mkevolve.data.plan import Buffer, Launch, LaunchPlan, Resources
from mkevolve.verify.attribution import attribute, foreign_fault, launch_fault

SPEC = TensorSpec((4,), "float32", (1,))
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>"


def plan(*kernels: str, fills: int = 0) -> LaunchPlan:
    launches = tuple(
        Launch(k, (1, 1, 1), (), (), (), Resources(16, 0, 0, num_warps=4, num_stages=1)) for k in kernels
    )
    buffers = tuple(Buffer(f"t{i}", SPEC, 0.0) for i in range(fills))
    return LaunchPlan("target", "h200", (Buffer("x0", SPEC), *buffers, Buffer("t9", SPEC)), launches, ())


def test_own_kernels_have_all_the_time():
    found = attribute(plan("a", "b"), [Activity("a", 1, 6.0), Activity("b", 1, 2.0)])
    assert (found.own_us, found.fill_us, found.foreign, found.own_share) == (8.0, 0.0, (), 1.0)


@pytest.mark.parametrize("name", [FILL, "Memset (Device)"])
def test_fills_of_the_plan_are_allowed_and_counted(name):
    seen = [Activity("a", 1, 6.0), Activity(name, 1, 2.0)]
    assert attribute(plan("a", fills=1), seen).own_share == 0.75
    assert foreign_fault(plan("a", fills=1), seen) == ""
    assert "does not hold" in foreign_fault(plan("a"), seen)
    assert "does not hold" in foreign_fault(plan("a", fills=1), [seen[0], Activity(name, 2, 4.0)])


@pytest.mark.parametrize("name", [SOFTMAX, "Memcpy DtoD (Device -> Device)", "sm90_xmma_gemm_f32f32"])
def test_other_kernels_are_named(name):
    found = attribute(plan("a"), [Activity("a", 1, 1.0), Activity(name, 1, 3.0)])
    assert [a.name for a in found.foreign] == [name]
    assert found.own_share == 0.25
    assert name[:40] in foreign_fault(plan("a"), [Activity("a", 1, 1.0), Activity(name, 1, 3.0)])


def test_a_launch_that_is_missing_or_too_many_is_a_fault():
    assert launch_fault(plan("a", "a", "b"), [Activity("a", 2), Activity("b", 1)]) == ""
    assert (
        launch_fault(plan("a", "b"), [Activity("a", 1)])
        == "kernel b was launched 0 times, 1 by the launch plan"
    )
    assert (
        launch_fault(plan("a"), [Activity("a", 2)]) == "kernel a was launched 2 times, 1 by the launch plan"
    )
    assert "kernel c was launched 1 times, 0 by" in launch_fault(
        plan("a"), [Activity("a", 1), Activity("c", 1)]
    )
    assert "launched 0 times" in foreign_fault(plan("a"), [])


def test_a_device_that_did_nothing_did_nothing_foreign():
    assert attribute(plan(), []).own_share == 1.0
    assert foreign_fault(plan(), []) == ""
