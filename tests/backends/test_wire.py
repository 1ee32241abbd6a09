import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mkevolve.backends import wire
from mkevolve.backends.wire import Frame, MalformedFrame

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool]


def tensors() -> list[torch.Tensor]:
    base = torch.arange(24.0).reshape(2, 3, 4)
    return [
        *(torch.arange(7).to(d) for d in DTYPES),
        torch.tensor(3.5),
        torch.empty(0, 3),
        torch.empty(2, 0, dtype=torch.float16),
        base.permute(2, 0, 1),
        base[:, 1, 1:3],
        torch.ones(3).expand(4, 3),
        torch.view_as_complex(torch.randn(5, 2)),
    ]


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    return torch.equal(got, want) and (got.dtype, got.stride()) == (want.dtype, want.stride())


def test_tensors_survive_with_their_strides():
    sent = tensors()
    specs, payload = wire.pack(sent)
    got = wire.unpack(specs, payload)
    assert len(got) == len(sent)
    assert all(map(same, got, sent))


def test_a_file_is_mapped_privately(tmp_path):
    path = tmp_path / "inputs.safetensors"
    sent = tensors()
    specs = wire.save_tensors(sent, path)
    before = path.read_bytes()
    for _ in range(2):
        got = wire.map_tensors(specs, path)
        assert all(map(same, got, sent))
        got[0].fill_(9)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


SENT = [Frame({"a": 1}, b"xyz"), Frame({"b": [None, "é"]}), Frame({}, b"")]


def written(frames: list[Frame]) -> bytes:
    read, write = os.pipe()
    writer = wire.FrameWriter(write)
    for frame in frames:
        writer.write(frame)
    os.close(write)
    data = os.read(read, 1 << 16)
    os.close(read)
    return data


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_frames_of_a_pipe(piece):
    data, reader = written(SENT), wire.FrameReader(3)
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    assert reader.frames == SENT


@pytest.mark.parametrize(
    "forged", [written(SENT[:1]), b"x" * 64, b"\0" * 64], ids=["another seal", "letters", "zeros"]
)
def test_what_lacks_the_seal_is_refused_and_what_came_before_stays(forged):
    reader = wire.FrameReader(100)
    reader.feed(written(SENT))
    with pytest.raises(MalformedFrame, match="something else"):
        reader.feed(forged)
    assert reader.frames == SENT


def test_a_frame_that_is_repeated_is_refused():
    data, reader = written(SENT), wire.FrameReader(100)
    reader.feed(data)
    with pytest.raises(MalformedFrame, match="something else"):
        reader.feed(data)


def test_more_than_the_limit_is_refused_before_it_is_read():
    reader = wire.FrameReader(99)
    with pytest.raises(MalformedFrame, match="more than it may"):
        reader.feed(written([Frame({}, b"x" * 100)])[:40])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_malformed_or_nothing(data):
    reader = wire.FrameReader(1 << 20)
    try:
        reader.feed(data)
    except MalformedFrame:
        return
    assert reader.frames == [] or all(isinstance(f.header, dict) for f in reader.frames)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_payload_is_malformed_or_has_the_shapes_that_were_said(data):
    specs, payload = wire.pack([torch.arange(6.0).reshape(2, 3), torch.ones(5, dtype=torch.int8)])
    at = data.draw(st.integers(0, len(payload) - 1))
    damaged = payload[:at] + data.draw(st.binary(max_size=3)) + payload[at + data.draw(st.integers(0, 3)) :]
    try:
        got = wire.unpack(specs, damaged)
    except MalformedFrame:
        return
    assert [t.shape for t in got] == [(2, 3), (5,)]


@pytest.mark.parametrize(
    "specs",
    [
        None,
        [[[5], "float32", [1]]],
        [[[1 << 40], "float32", [1]]],
        [[[2], "no_such", [1]]],
        [[[2], "float32", [-1]]],
        [[[2, 2], "float32", [1]]],
        ["x"],
    ],
)
def test_specs_that_do_not_fit_are_malformed(specs):
    _, payload = wire.pack([torch.ones(2)])
    with pytest.raises(MalformedFrame):
        wire.unpack(specs, payload)
