"""What torch may do inside `run`: allocate and take views. The rest is refused as it is called."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mkevolve.backends.fault import CandidateFault
from mkevolve.data.verdict import Status

UNFILLED = frozenset(
    {"empty", "empty_strided", "empty_permuted", "empty_like", "new_empty", "new_empty_strided"}
)
FILLED = frozenset(
    {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
)

Place = Callable[[torch.Tensor, bool], torch.Tensor]


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every allocation of `run` to `place` (with whether it has values), lets views pass.

    Any other op is the candidate's fault, except where `lenient`: its result is placed, as it is.
    """

    def __init__(self, place: Place, lenient: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._place = place
        self._lenient = lenient

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else the first call would import all of torch.compile: seconds in every child."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in UNFILLED or name in FILLED:
            return self._place(result, name in FILLED)
        returns = func._schema.returns
        if any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return result
        if self._lenient:
            return self._place(result, True) if isinstance(result, torch.Tensor) else result
        raise CandidateFault(
            Status.STATIC_ERROR, f"run calls {func}: it may only allocate, take views and launch kernels"
        )
