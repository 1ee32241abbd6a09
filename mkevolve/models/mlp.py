"""Feed-forward blocks: a plain perceptron, and the gated one of LLaMA."""

import torch
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Two linear layers with bias around an exact GELU; (..., width) in and out."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.gelu(self.up(x)))
        return out


class SwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))` without bias (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out
