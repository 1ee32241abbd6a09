"""What crosses the border of a child process, never as pickle: frames of a JSON header and a safetensors
payload.
"""

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file

from mkevolve.data.codec import Json, decode_spec, encode_spec
from mkevolve.data.graph import TensorSpec

_SEAL = 16
_PREFIX = struct.Struct(f"<{_SEAL}sIIQ")  # seal, number of the frame, bytes of the header and of the payload
_MOST_HEADER = 1 << 28
_MOST_ELEMENTS = 1 << 33  # of a tensor of which few elements were sent; more is no result of a real job
_PAD = 16  # each tensor starts at a multiple of its item size


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of a child: `payload` is a safetensors file, or empty."""

    header: dict[str, Json]
    payload: bytes = b""


class MalformedFrame(Exception):
    """The bytes of a child are not frames: it was cut off, or candidate code wrote to the pipe."""


class FrameWriter:
    """Writes frames whole, numbered and with a seal that the first one, sent before candidate code runs,
    announces.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._seal = os.urandom(_SEAL)
        self._count = 0
        self._owner = os.getpid()

    def write(self, frame: Frame) -> None:
        """Write one frame; blocks while the pipe is full. Ends a copy of the process, which none asked."""
        if os.getpid() != self._owner:
            os._exit(1)
        header = json.dumps(frame.header).encode()
        prefix = _PREFIX.pack(self._seal, self._count, len(header), len(frame.payload))
        self._count += 1
        for part in (prefix, header, frame.payload):
            view = memoryview(part)
            while view:
                view = view[os.write(self._fd, view) :]


class FrameReader:
    """Takes the bytes of a pipe as they come; `frames` are those that are whole.

    What candidate code writes to the pipe lacks the seal, or the right number, and is refused at its first
    bytes, however much follows. That is a hurdle and no proof: code that walks the stack of its process finds
    the writer. It can then claim any outputs for the cases that were asked, no more. The static rules deny
    candidates every way to do so.
    """

    def __init__(self, most: int) -> None:
        self.frames: list[Frame] = []
        self._most = most  # bytes of all frames
        self._data = bytearray()
        self._seal: bytes | None = None

    def feed(self, data: bytes) -> None:
        """Take what was read; raises `MalformedFrame` at the first bytes that are no frame of ours."""
        self._data += data
        while len(self._data) >= _PREFIX.size:
            seal, number, header, payload = _PREFIX.unpack_from(self._data)
            if self._seal not in (None, seal) or number != len(self.frames):
                raise MalformedFrame("something else than our frames was written to the pipe")
            self._seal = seal
            if header > _MOST_HEADER or payload > self._most:
                raise MalformedFrame("the child sent more than it may")
            end = _PREFIX.size + header + payload
            if len(self._data) < end:
                return
            self._most -= payload
            view = memoryview(self._data)
            try:
                frame = Frame(
                    _object(bytes(view[_PREFIX.size : _PREFIX.size + header])),
                    bytes(view[_PREFIX.size + header : end]),
                )
            finally:
                view.release()
            self.frames.append(frame)
            del self._data[:end]


def printable(text: str, most: int = 2000) -> str:
    """What a child said, for people: no control characters, which a terminal would obey, and not endless."""
    kept = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:most])
    return kept if len(text) <= most else f"{kept} ..."


def _object(text: bytes) -> dict[str, Json]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"a header that is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedFrame("a header that is no object")
    return value


def pack(tensors: Sequence[torch.Tensor]) -> tuple[list[Json], bytes]:
    """Return the specs and the payload of some CPU tensors; strides survive, storage sharing does not."""
    flat = {str(i): _flat(t) for i, t in enumerate(tensors)}
    return [encoded_spec(t) for t in tensors], save(flat) if flat else b""


def unpack(specs: Json, payload: bytes) -> tuple[torch.Tensor, ...]:
    """Inverse of `pack`; raises `MalformedFrame` where the payload does not hold what the specs say."""
    if not isinstance(specs, list):
        raise MalformedFrame("no list of tensor specs")
    try:
        flat = load(payload) if specs else {}
        return tuple(_shaped(flat[str(i)], decode_spec(s)) for i, s in enumerate(specs))
    except (KeyError, ValueError, RuntimeError, AttributeError, SafetensorError) as error:
        raise MalformedFrame(f"tensors: {error}") from error


def save_tensors(tensors: Sequence[torch.Tensor], path: Path) -> list[Json]:
    """Write a file that any number of children may map; return the specs that `map_tensors` needs.

    The file appears under its name only when it is complete.
    """
    part = path.with_suffix(".part")
    save_file({str(i): _flat(t) for i, t in enumerate(tensors)}, part)
    part.chmod(0o444)
    part.replace(path)
    return [encoded_spec(t) for t in tensors]


def map_tensors(specs: Json, path: Path) -> tuple[torch.Tensor, ...]:
    """Map the tensors of a file privately: pages are shared until written; writes never reach the file."""
    if not isinstance(specs, list):
        raise MalformedFrame("no list of tensor specs")
    with safe_open(path, framework="pt", device="cpu") as file:
        return tuple(_shaped(file.get_tensor(str(i)), decode_spec(s)) for i, s in enumerate(specs))


def scattered(
    specs: Json, parts: tuple[torch.Tensor, ...]
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Rebuild large tensors of which few elements are known; `parts`: indices (rank x elements) and values.

    Returns the tensors, zero elsewhere, and masks of what is known. Raises `MalformedFrame`.
    """
    if not isinstance(specs, list) or len(parts) != 2 * len(specs):
        raise MalformedFrame("no list of tensor specs with their elements")
    outputs, masks = [], []
    try:
        for spec, at, values in zip(map(decode_spec, specs), parts[::2], parts[1::2], strict=True):
            if not all(s >= 0 for s in (*spec.shape, *spec.stride)) or at.shape[0] != len(spec.shape):
                raise ValueError(f"elements of another tensor than {spec}")
            if _extent(spec.shape, spec.stride) > _MOST_ELEMENTS:
                raise ValueError(f"too large: {spec}")
            flat = torch.zeros(_extent(spec.shape, spec.stride), dtype=getattr(torch, spec.dtype))
            output = flat.as_strided(spec.shape, spec.stride)
            mask = torch.zeros(spec.shape, dtype=torch.bool)
            if values.numel():  # a tensor without axes has one element at the index ()
                output[tuple(at)] = values
                mask[tuple(at)] = True
            outputs.append(output)
            masks.append(mask)
    except (ValueError, RuntimeError, IndexError, AttributeError) as error:
        raise MalformedFrame(f"elements: {error}") from error
    return tuple(outputs), tuple(masks)


def encoded_spec(tensor: torch.Tensor) -> Json:
    """The spec of a tensor as JSON."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return encode_spec(TensorSpec(tuple(tensor.shape), dtype, tuple(tensor.stride())))


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that a tensor spans in its storage, padded so that the next one is aligned."""
    span = _extent(tensor.shape, tensor.stride())
    flat = tensor.detach().as_strided((span,), (1,), tensor.storage_offset()).contiguous().view(torch.uint8)
    return torch.nn.functional.pad(flat, (0, -flat.numel() % _PAD))


def _shaped(flat: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    span = _extent(spec.shape, spec.stride)
    size = span * dtype.itemsize
    if flat.dtype != torch.uint8 or flat.numel() != size + -size % _PAD:
        raise ValueError(f"{flat.numel()} bytes for {spec}")
    if not size:  # a view of no bytes has no dtype to change
        return torch.empty_strided(spec.shape, spec.stride, dtype=dtype)
    return flat[:size].view(dtype).as_strided(spec.shape, spec.stride)
