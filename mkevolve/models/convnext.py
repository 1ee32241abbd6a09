"""The block of ConvNeXt (Liu et al. 2022, arXiv:2201.03545)."""

import torch
from torch import nn
from torch.nn import functional as F


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm over channels, MLP, layer scale, residual; NCHW in and out."""

    def __init__(self, channels: int, expansion: int = 4) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, expansion * channels)
        self.down = nn.Linear(expansion * channels, channels)
        # A trained scale, not the initial 1e-6, which would hide the whole branch behind the residual.
        self.scale = nn.Parameter(1.0 + 0.1 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.down(F.gelu(self.up(self.norm(y))))
        out: torch.Tensor = x + (self.scale * y).permute(0, 3, 1, 2)
        return out
