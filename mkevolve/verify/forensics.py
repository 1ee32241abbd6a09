"""How a wrong result differs: the share of elements, the first index and the pattern, for people and LLMs.

A pattern is where (`verify/patterns.py`) and what: NaN, infinite, finite or a number where the reference is
not, zeros, one constant, scale, shift, transposed, displaced, noise. What is read off samples, so that a
large tensor costs no more than a small one.
"""

from dataclasses import dataclass

import torch

from mkevolve.verify.chunks import chunks
from mkevolve.verify.patterns import place

_MAXIMUM = (
    " (tl.maximum and tl.minimum drop NaN unless propagate_nan=tl.PropagateNan.ALL;"
    " so do tl.max, tl.argmax and tl.where(x > 0, x, 0))"
)
_SAMPLES = 1 << 16  # wrong elements looked at
_POSITIONS = 4096  # elements compared with those at other places


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with one result: how much of what was judged, the first index, the pattern.

    `text` says it all in one line.
    """

    share: float
    index: tuple[int, ...]
    pattern: str
    text: str


def describe(
    output: torch.Tensor,
    reference: torch.Tensor,
    wrong: torch.Tensor,
    judged: torch.Tensor | None = None,
) -> Difference:
    """Describe the `wrong` elements (boolean, same shape, one set at least) of the `judged` (None: all)."""
    count = int(wrong.count_nonzero())
    total = wrong.numel() if judged is None else int(judged.count_nonzero())
    first = _first(wrong)
    share = count / max(total, 1)
    amount = f"{count} of {total} elements ({100.0 * share:.3g} %)"
    given, wanted = _numbers(output[first], reference[first])
    values = f"first at {_text(first)}: {given} instead of {wanted}"
    pattern = _pattern(output, reference, wrong, judged, share)
    return Difference(share, first, pattern, f"{amount} wrong, {values}; pattern: {pattern}")


def _first(wrong: torch.Tensor) -> tuple[int, ...]:
    """The index of the first element that is set."""
    index: list[int] = []
    for _ in range(wrong.dim()):
        hit = wrong.flatten(1).any(dim=1) if wrong.dim() > 1 else wrong
        index.append(int(hit.view(torch.uint8).argmax()))
        wrong = wrong[index[-1]]
    return tuple(index)


def _text(index: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, index)) + "]"


def _numbers(given: torch.Tensor, wanted: torch.Tensor) -> tuple[str, str]:
    """Both values with as many digits as it takes to tell them apart."""
    digits = 6
    while (texts := (_number(given, digits), _number(wanted, digits)))[0] == texts[1] and digits < 17:
        digits += 1
    return texts


def _number(value: torch.Tensor, digits: int) -> str:
    return f"{float(value):.{digits}g}" if value.is_floating_point() else str(value.item())


def _pattern(
    output: torch.Tensor,
    reference: torch.Tensor,
    wrong: torch.Tensor,
    judged: torch.Tensor | None,
    share: float,
) -> str:
    where = place(wrong, judged)
    what = _values(output, reference, wrong)
    if what == "noise" and judged is None:
        what = _displaced(output, reference, wrong) or what
        what = _transposed(output, reference) or what if share > 0.3 else what
    return ", ".join(part for part in (where, what) if part)


def _values(output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    """What the wrong values are: NaN, zeros, a constant, scaled, shifted, or noise."""
    given, wanted = _sampled(output, reference, wrong)
    if bool((~given.isfinite() & wanted.isfinite()).all()):
        return "NaN" if bool(given.isnan().any()) else "infinite"
    if bool((given.isfinite() & ~wanted.isfinite()).all()):
        return f"finite where the reference is not{_MAXIMUM if bool(wanted.isnan().any()) else ''}"
    if bool((~given.isnan() & wanted.isnan()).all()):
        return f"a number where the reference is NaN{_MAXIMUM}"
    both = given.isfinite() & wanted.isfinite()
    given, wanted = given[both], wanted[both]
    if given.numel() < 2:
        return "noise"
    if bool((given == 0).all()):
        return "zeros"
    if bool((given == given[0]).all()):
        return "one constant"
    scale = float((given * wanted).sum() / wanted.square().sum().clamp(min=1e-300))
    size = float((given - wanted).abs().max())
    if scale and float((given - scale * wanted).abs().max()) < 0.02 * size:
        return f"scale ({scale:.4g} times the reference)"
    shift = float((given - wanted).mean())
    if float((given - wanted - shift).abs().max()) < 0.02 * size:
        return f"shift (by {shift:.4g})"
    return "noise"


def _sampled(
    output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first wrong elements of every chunk, in float64: given and wanted."""
    parts = list(chunks(tuple(wrong.shape)))
    each = max(_SAMPLES // len(parts), 1)
    given, wanted = [], []
    for index in parts:
        mask = wrong[index]
        given.append(output[index][mask][:each].double())
        wanted.append(reference[index][mask][:each].double())
    return torch.cat(given), torch.cat(wanted)


def _transposed(output: torch.Tensor, reference: torch.Tensor) -> str:
    """Name two axes whose exchange makes the result right."""
    shape = tuple(reference.shape)
    flat = _positions(reference.numel())
    given = output[_unravelled(flat, shape)].double()
    scale = _scale(reference[_unravelled(flat, shape)])
    for a in range(len(shape)):
        for b in range(a + 1, len(shape)):
            if min(shape[a], shape[b]) < 2:
                continue
            swapped = list(shape)
            swapped[a], swapped[b] = shape[b], shape[a]
            at = list(_unravelled(flat, tuple(swapped)))
            at[a], at[b] = at[b], at[a]
            if bool(((given - reference[tuple(at)].double()).abs() <= 0.01 * scale).all()):
                return f"transposed (axes {a} and {b})"
    return ""


def _displaced(output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    """Name the axis along which the wrong elements hold what belongs a place or two further on."""
    parts = _unravelled(_positions(reference.numel()), tuple(reference.shape))
    hit = wrong[parts]
    at = tuple(p[hit] for p in parts)
    for axis, size in enumerate(reference.shape):
        for step in (1, -1, 2, -2):
            inside = (at[axis] + step >= 0) & (at[axis] + step < size)
            here = tuple(p[inside] for p in at)
            there = tuple(p + step if a == axis else p for a, p in enumerate(here))
            if here[0].numel() < 3 or int(inside.count_nonzero()) * 2 < at[0].numel():
                continue
            wanted = reference[there].double()
            off = (output[here].double() - wanted).abs()
            if bool((off <= 0.01 * _scale(wanted)).all()):
                return f"displaced (by {step} along axis {axis})"
    return ""


def _positions(numel: int) -> torch.Tensor:
    """Flat positions to look at: all of them, or random ones."""
    if numel <= _POSITIONS:
        return torch.arange(numel)
    return torch.randint(numel, (_POSITIONS,), generator=torch.Generator().manual_seed(0))


def _unravelled(flat: torch.Tensor, shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    parts = []
    for size in reversed(shape):
        parts.append(flat % size)
        flat = flat // size
    return tuple(reversed(parts))


def _scale(reference: torch.Tensor) -> float:
    """The largest finite magnitude; one where there is none."""
    return float(reference.double().abs().nan_to_num(0.0, 0.0, 0.0).max()) or 1.0
