"""The device's memory is checked here on the CPU: it asks nothing of a device."""

import re

import pytest
import torch

from mkevolve.backends.device_memory import DeviceMemory, first_difference, flat_bytes, poison_word, to_host
from mkevolve.backends.memory import OutOfBoundsError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.fixture
def memory() -> DeviceMemory:
    return DeviceMemory(0, "cpu")


def damage(memory: DeviceMemory) -> tuple[str, ...]:
    """Where the margins were written."""
    try:
        memory.check_margins()
    except OutOfBoundsError as error:
        return tuple(str(error).removeprefix("stores outside of ").split(", "))
    return ()


def beyond(tensor: torch.Tensor, at: int) -> torch.Tensor:
    """The element `at` of a placed tensor's storage, which may lie outside the tensor."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + at)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_keep_bytes_and_strides(memory, dtype):
    given = torch.arange(12).reshape(3, 4).to(dtype).t()
    placed = memory.place("x0", given)
    assert (placed.shape, placed.stride(), placed.dtype) == (given.shape, given.stride(), dtype)
    assert torch.equal(flat_bytes(placed), flat_bytes(given))
    assert placed.data_ptr() != given.data_ptr()
    assert memory.changes() == ()
    assert damage(memory) == ()
    flat_bytes(placed)[5:6].fill_(199)
    ((name, index),) = memory.changes()
    assert name == "x0"
    assert index == divmod(5 // (dtype.itemsize), 4)[::-1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", [0, 1])
def test_allocations_keep_what_they_are_filled_with_and_margins_are_watched(dtype, pattern):
    memory = DeviceMemory(pattern, "cpu")
    made = memory.allocate(torch.zeros(5, 3, dtype=dtype), filled=False)
    filled = memory.allocate(torch.ones(4, dtype=dtype), filled=True)
    assert torch.equal(flat_bytes(filled), flat_bytes(torch.ones(4, dtype=dtype)))
    assert damage(memory) == ()
    flat_bytes(beyond(made, 15)).fill_(0x55)
    flat_bytes(beyond(filled, -2)).fill_(0x55)
    assert damage(memory) == ("t0 (element 15 of 15)", "t1 (element -2 of 4)")


@pytest.mark.parametrize("dtype", DTYPES)
def test_new_allocations_stand_out_or_look_like_any_other(dtype):
    loud, plain = (
        DeviceMemory(pattern, "cpu").allocate(torch.zeros(3, 9001, dtype=dtype), filled=False)
        for pattern in (0, 1)
    )
    word, width = poison_word(loud, 0)
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    assert (flat_bytes(loud).view(words) == word).all()
    if dtype != torch.bool:
        assert len(flat_bytes(plain).view(words).unique()) >= 8
        assert plain.to(torch.complex128).abs().max() < 100


def test_the_two_patterns_differ():
    made = [torch.empty(1, dtype=dtype) for dtype in DTYPES]
    assert all(poison_word(tensor, 0) != poison_word(tensor, 1) for tensor in made)


def test_the_nearest_stray_store_is_named(memory):
    made = memory.allocate(torch.zeros(8), filled=True)
    for at in (-40, 9, 30):
        beyond(made, at).fill_(1.0)
    with pytest.raises(OutOfBoundsError, match=re.escape("t0 (element 9 of 8)")) as caught:
        memory.check_margins()
    assert (caught.value.tensor, caught.value.index) == ("t0", 9)


def test_margins_grow_with_the_tensor(memory):
    rows = memory.allocate(torch.zeros(64, 1024), filled=True)
    beyond(rows, 64 * 1024 + 20 * 1024).fill_(1.0)  # twenty rows too far
    assert damage(memory) == (f"t0 (element {84 * 1024} of {64 * 1024})",)


def test_a_misaligned_input_stays_misaligned(memory):
    placed = memory.place("q0", torch.arange(6.0), skew=4)
    other = memory.place("q1", torch.arange(6.0))
    assert (placed.data_ptr() - other.data_ptr()) % 16 == 4
    assert torch.equal(placed, other)
    beyond(placed, -1).fill_(7.0)
    assert damage(memory) == ("q0 (element -1 of 6)",)


def test_the_region_of_a_view_is_found(memory):
    given = memory.place("x0", torch.zeros(4, 4))
    made = memory.allocate(torch.zeros(4, 4), filled=False)
    found = memory.find(made[2:, 1:])
    assert found is not None
    assert (found.name, found.source) == ("t0", None)
    assert memory.find(given.t()).name == "x0"
    assert memory.find(torch.zeros(3)) is None


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_empty_and_scalar_tensors(memory, shape):
    placed = memory.place("x0", torch.ones(shape))
    assert torch.equal(placed, torch.ones(shape))
    assert torch.equal(to_host(placed), torch.ones(shape))
    assert damage(memory) == memory.changes() == ()


def test_nan_inputs_are_compared_by_their_bits(memory):
    memory.place("x0", torch.full((4,), float("nan")))
    assert memory.changes() == ()


def test_a_store_between_the_elements_of_an_input_is_a_change(memory):
    placed = memory.place("x0", torch.zeros(3, 8)[:, ::2])
    assert placed.stride() == (8, 2)
    beyond(placed, 1).fill_(1.0)
    assert memory.changes() == (("x0", ()),)
    placed[1, 2] = 1.0
    assert memory.changes() == (("x0", (1, 2)),)


def test_first_difference_is_one_of_bits():
    one = torch.zeros(3, 4).t()
    assert first_difference(one, one.clone(memory_format=torch.preserve_format)) is None
    other = one.clone()
    other[2, 1] = -0.0
    assert first_difference(one, other) == (2, 1)
    nan = torch.full((2,), float("nan"))
    assert first_difference(nan, nan.clone()) is None
    assert first_difference(torch.tensor(1.0), torch.tensor(2.0)) == ()
    assert first_difference(torch.zeros(0), torch.zeros(0)) is None
    assert first_difference(torch.zeros(2, dtype=torch.complex64), torch.tensor([0, 1j])) == (1,)


def test_a_copy_for_the_host_has_storage_of_its_own():
    base = torch.arange(24.0).reshape(4, 6)
    view = base[1:, ::2]
    copy = to_host(view)
    assert torch.equal(copy, view)
    assert copy.stride() == view.stride()
    base.zero_()
    assert copy[0, 0] == 6.0


def test_decoys_stay_in_range_and_vanish(memory):
    floats, shared = torch.arange(6.0).reshape(2, 3), torch.arange(3.0).expand(2, 3)
    placed = memory.place("x0", floats), memory.place("x1", torch.arange(5)), memory.place("x2", shared)
    weight = memory.place("q0", torch.ones(2))
    with memory.swapped():
        assert torch.equal(placed[0], floats.flip(0, 1) * 0.75)
        assert placed[1].tolist() == [4, 3, 2, 1, 0]
        assert placed[2].tolist() == [[1.5, 0.75, 0.0]] * 2
        assert torch.equal(weight, torch.ones(2))
        assert [name for name, _ in memory.changes()] == ["x0", "x1", "x2"]
    assert memory.changes() == ()


def test_parameters_are_decoys_where_there_is_nothing_else(memory):
    weight = memory.place("q0", torch.arange(3.0))
    with memory.swapped():
        assert weight.tolist() == [1.5, 0.75, 0.0]
    assert weight.tolist() == [0.0, 1.0, 2.0]
