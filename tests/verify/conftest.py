from collections.abc import Callable

import pytest
import torch
from kernel_subjects import KERNEL_SUBJECTS
from verify_subjects import SUBJECTS, Subject

torch.set_num_threads(1)  # as every child; and other tests run beside these


@pytest.fixture
def make_subject() -> Callable[..., Subject]:
    """`make_subject("conv", torch.float16)`: a small subgraph and what reached it."""

    def make(name: str, dtype: torch.dtype = torch.float32) -> Subject:
        torch.manual_seed(0)
        return (SUBJECTS | KERNEL_SUBJECTS)[name](dtype)

    return make
