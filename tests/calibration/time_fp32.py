"""Time the fp32 kernels on a GPU: `python time_fp32.py OUT.jsonl [SECONDS]`; the rest is `time_kernels.py`."""
import sys

import time_kernels
import torch

S = torch.float32
time_kernels.CASES = {
    "matmul_fp32": [("linear", 2048, 2048, 1024, S), ("linear", 8192, 768, 768, S)],
    "conv_fp32": [("conv", 10, 64, 56, S), ("conv", 10, 64, 224, S)],
}

if __name__ == "__main__":
    time_kernels.main(sys.argv[1], *map(float, sys.argv[2:3]), most=12)
