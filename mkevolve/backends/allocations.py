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

    Any other op is the candidate's fault, except where `lenient`: its result is placed, as it is. Nothing is
    looked at while `suspended`: when our own code runs, as inside of a launch.
    """

    def __init__(self, place: Place, lenient: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._place = place
        self._lenient = lenient
        self.suspended = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else the first call would import all of torch.compile: seconds in every child."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.suspended:
            return func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        allocates, views = name in UNFILLED or name in FILLED, _is_view(func)
        if not self._lenient and (func._schema.is_mutable or not (allocates or views)):
            raise CandidateFault(
                Status.STATIC_ERROR, f"run calls {func}: it may only allocate, take views and launch kernels"
            )
        result = func(*args, **(kwargs or {}))
        if views or not isinstance(result, torch.Tensor):
            return result
        if result.layout != torch.strided or result.is_quantized:
            raise CandidateFault(Status.STATIC_ERROR, f"run allocates a tensor of layout {result.layout}")
        return self._place(result, name not in UNFILLED)


def _is_view(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
