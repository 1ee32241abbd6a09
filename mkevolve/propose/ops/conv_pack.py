"""The `prepare` function of a convolution kernel: folds norms in fp64, then packs and casts the weights."""

from collections.abc import Iterable
from dataclasses import dataclass

from mkevolve.propose.ops.conv_match import Conv, Norm


@dataclass(frozen=True, slots=True)
class Packing:
    """Shape of packed weights: `[groups, rows, columns]`, zero where nothing of the weight lies.

    A row is (tap, input channel); `tap_channels` is the number of rows a tap takes, `rows` their padded sum.
    """

    groups: int
    taps: int
    tap_channels: int
    rows: int
    columns: int


def fold_lines(conv: Conv, name: str, *, into_weight: bool) -> list[str]:
    """Lines that compute `NAME_w` (fp64, norm folded where `into_weight`), `NAME_scale` and `NAME_bias`.

    Scale and bias are `[CO]` in fp64; without a norm to apply later there is no scale.
    """
    lines = [f"{name}_w = {conv.weight}.double()"]
    lines += _scale_lines(conv.norm, name)
    if conv.norm is None:
        bias = f"{conv.bias}.double()" if conv.bias else f"torch.zeros_like({name}_w.flatten(1)[:, 0])"
        return [*lines, f"{name}_bias = {bias}"]
    inner = (
        f"{conv.bias}.double() - {conv.norm.mean}.double()" if conv.bias else f"-{conv.norm.mean}.double()"
    )
    shift = f" + {conv.norm.bias}.double()" if conv.norm.bias else ""
    lines.append(f"{name}_bias = ({inner}) * {name}_scale{shift}")
    if into_weight:
        ones = ", 1" * (conv.spatial + 1)
        lines.append(f"{name}_w = {name}_w * {name}_scale.view(-1{ones})")
    return lines


def _scale_lines(norm: Norm | None, name: str) -> list[str]:
    if norm is None:
        return []
    inverse = f"({norm.var}.double() + {norm.eps!r}).rsqrt()"
    return [
        f"{name}_scale = {norm.weight}.double() * {inverse}" if norm.weight else f"{name}_scale = {inverse}"
    ]


def pack_lines(conv: Conv, name: str, packing: Packing) -> list[str]:
    """Lines that turn `NAME_w` into `NAME_packed`, of `packing`'s shape and the weight's dtype."""
    g, co, ci = packing.groups, conv.co // packing.groups, conv.ci // packing.groups
    lines = [
        f"{name}_packed = {name}_w.reshape({g}, {co}, {ci}, {packing.taps}).permute(0, 3, 2, 1)",
    ]
    columns, channels = packing.columns - co, packing.tap_channels - ci
    if columns or channels:
        lines.append(f"{name}_packed = torch.nn.functional.pad({name}_packed, (0, {columns}, 0, {channels}))")
    rows = packing.taps * packing.tap_channels
    lines.append(f"{name}_packed = {name}_packed.reshape({g}, {rows}, {packing.columns})")
    if packing.rows > rows:
        pad = f"(0, 0, 0, {packing.rows - rows})"
        lines.append(f"{name}_packed = torch.nn.functional.pad({name}_packed, {pad})")
    return [*lines, f"{name}_packed = {name}_packed.to({conv.weight}.dtype).contiguous()"]


def columns_lines(name: str, groups: int, channels: int, columns: int) -> list[str]:
    """Lines that lay a `[CO]` vector out as fp32 `[groups * columns]`, zero beyond each group's channels."""
    if columns == channels:
        return [f"{name} = {name}.float().contiguous()"]
    pad = f"torch.nn.functional.pad({name}.reshape({groups}, {channels}), (0, {columns - channels}))"
    return [f"{name} = {pad}.reshape(-1).float().contiguous()"]


def prepare_text(params: Iterable[str], lines: Iterable[str], results: Iterable[str]) -> str:
    """The whole function; `results` is what `run` gets after the activations."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"def prepare({', '.join(params)}):\n{body}\n    return {', '.join(results)},\n"
