"""The inverted residual block with squeeze-and-excitation of EfficientNet (arXiv:1905.11946)."""

import torch
from torch import nn
from torch.nn import functional as F


class MBConv(nn.Module):
    """1x1 expansion, depthwise convolution, squeeze-and-excitation, 1x1 projection; NCHW in and out.

    The input is added where shape allows. The squeeze has a quarter of the input's channels.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1, expansion: int = 6
    ) -> None:
        super().__init__()
        hidden = expansion * in_channels
        squeezed = max(1, in_channels // 4)
        self.residual = stride == 1 and in_channels == out_channels
        self.expand = nn.Conv2d(in_channels, hidden, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden, eps=1e-3)
        self.depthwise = nn.Conv2d(
            hidden, hidden, kernel, stride=stride, padding=kernel // 2, groups=hidden, bias=False
        )
        self.bn2 = nn.BatchNorm2d(hidden, eps=1e-3)
        self.squeeze = nn.Conv2d(hidden, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, hidden, 1)
        self.project = nn.Conv2d(hidden, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.bn1(self.expand(x)))
        y = F.silu(self.bn2(self.depthwise(y)))
        gate = F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        y = y * torch.sigmoid(self.excite(gate))
        out: torch.Tensor = self.bn3(self.project(y))
        return x + out if self.residual else out
