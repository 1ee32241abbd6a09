"""A level-2 file in the style of KernelBench: convolution, activation, bias, pooling, a linear head."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, classes):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.head = nn.Linear(out_channels, classes)

    def forward(self, x):
        x = torch.relu(self.conv(x)) + self.bias
        x = x.mean(dim=(2, 3))
        return torch.softmax(self.head(x), dim=1)


def get_inputs():
    return [torch.randn(16, 8, 64, 64)]


def get_init_inputs():
    return [8, 32, 3, 10]
