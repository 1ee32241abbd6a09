"""How a wrong result differs: the share of elements, the first index and the pattern, for people and LLMs."""

import torch

_MAXIMUM = " (tl.maximum and tl.minimum drop NaN unless propagate_nan=tl.PropagateNan.ALL)"


def describe(output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    """One line about the `wrong` elements (boolean, same shape, at least one set)."""
    count = int(wrong.sum())
    first = tuple(int(i) for i in wrong.nonzero()[0]) if wrong.dim() else ()
    share = f"{count} of {wrong.numel()} elements ({100.0 * count / max(wrong.numel(), 1):.2g} %)"
    given, wanted = _numbers(output[first], reference[first])
    values = f"first at {_index(first)}: {given} instead of {wanted}"
    return f"{share} wrong, {values}; pattern: {_pattern(output, reference, wrong)}"


def _index(index: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, index)) + "]"


def _numbers(given: torch.Tensor, wanted: torch.Tensor) -> tuple[str, str]:
    """Both values with as many digits as it takes to tell them apart."""
    digits = 6
    while (texts := (_number(given, digits), _number(wanted, digits)))[0] == texts[1] and digits < 17:
        digits += 1
    return texts


def _number(value: torch.Tensor, digits: int) -> str:
    return f"{float(value):.{digits}g}" if value.is_floating_point() else str(value.item())


def _pattern(output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    place = _place(wrong)
    kind = _values(output, reference, wrong)
    if kind == "noise" and bool(wrong.double().mean() > 0.3):
        kind = _transposed(output, reference) or kind
    return ", ".join(part for part in (place, kind) if part)


def _values(output: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    """What the wrong values are: NaN, zeros, a constant, scaled, shifted, or noise."""
    given, wanted = output[wrong].double(), reference[wrong].double()
    if bool((~given.isfinite() & wanted.isfinite()).all()):
        return "NaN" if bool(given.isnan().any()) else "infinite"
    if bool((given.isfinite() & ~wanted.isfinite()).all()):
        return f"finite where the reference is not{_MAXIMUM if bool(wanted.isnan().any()) else ''}"
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


def _place(wrong: torch.Tensor) -> str:
    """Where the wrong elements lie: one index of an axis, a tail, the border, or nowhere in particular."""
    if bool(wrong.all()):
        return "everywhere"
    extents = []
    for axis, size in enumerate(wrong.shape):
        others = [a for a in range(wrong.dim()) if a != axis]
        hit = wrong.any(dim=others) if others else wrong
        at = hit.nonzero().flatten()
        extents.append((axis, size, at))
        if size > 1 and at.numel() == 1:
            return f"one channel (index {int(at)} of axis {axis})"
    for axis, size, at in extents:
        low = int(at[0])
        if low > 0 and at.numel() == size - low:
            return f"tail (axis {axis} from {low} of {size})"
    if _on_border(wrong):
        return "border"
    flat = wrong.reshape(-1).nonzero().flatten()
    if int(flat[0]) >= wrong.numel() // 2 and flat.numel() == wrong.numel() - int(flat[0]):
        return f"tail (flat from {int(flat[0])} of {wrong.numel()})"
    return ""


def _on_border(wrong: torch.Tensor) -> bool:
    if wrong.dim() < 2 or min(wrong.shape[-2:]) < 3:
        return False
    return not bool(wrong[..., 1:-1, 1:-1].any())


def _transposed(output: torch.Tensor, reference: torch.Tensor) -> str:
    """Name two axes whose exchange makes the result right."""
    flat = output.reshape(-1).double()
    scale = float(reference.double().abs().nan_to_num(0.0, 0.0, 0.0).max()) or 1.0
    for a in range(reference.dim()):
        for b in range(a + 1, reference.dim()):
            swapped = reference.transpose(a, b).reshape(-1).double()
            if (
                bool(((flat - swapped).abs() <= 0.01 * scale).all())
                and min(reference.shape[a], reference.shape[b]) > 1
            ):
                return f"transposed (axes {a} and {b})"
    return ""
