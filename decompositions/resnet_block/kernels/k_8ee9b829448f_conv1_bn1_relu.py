"""conv 3x3, 3 to 64 channels, folded batch norm, then relu: implicit GEMM, taps x channels in one step."""
import torch
import triton
import triton.language as tl


TUNABLES = {
    "BLOCK_M": (256, 128, 64),
    "BLOCK_N": (64,),
    "BLOCK_K": (32,),
    "num_warps": (8, 4),
    "num_stages": (2, 3),
}


@triton.jit
def _conv(
    packed_w0, x0, shift, out_n2,
    x0_d0, x0_d2, x0_d3, pixels, plane, x0_s0, x0_s1, x0_s2, out_n2_s0, out_n2_s1,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, x0_d1: tl.constexpr,
):
    pid = tl.program_id(0)
    tile_m = pid
    tile_n = 0
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = m < pixels
    n = m // plane
    pixel = m % plane
    oh = pixel // x0_d3
    ow = pixel % x0_d3
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    co = column
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in range(tl.cdiv(27, BLOCK_K)):
        k = i * BLOCK_K + tl.arange(0, BLOCK_K)
        tap = k // 3
        c = k % 3
        ih = (oh - 1)[:, None] + (tap // 3)[None, :]
        iw = (ow - 1)[:, None] + (tap % 3)[None, :]
        inside = rows[:, None] & (ih >= 0) & (ih < x0_d2) & (iw >= 0) & (iw < x0_d3)
        a_at = n[:, None] * x0_s0 + c[None, :] * x0_s1 + (ih) * x0_s2 + (iw)
        x0_v = tl.load(x0 + a_at, mask=inside & (k < 27)[None, :], other=0)
        b = tl.load(packed_w0 + k[:, None] * 64 + column[None, :])
        acc = tl.dot(x0_v, b, acc, input_precision="tf32x3")
    acc = acc + tl.load(shift + column)[None, :]
    n2 = tl.where(acc < 0, 0, acc)
    at = pixel[:, None] + n[:, None] * out_n2_s0 + co[None, :] * out_n2_s1
    tl.store(out_n2 + at, n2, mask=rows[:, None])


def prepare(p0, p1, p2, p3, p4):
    c0_w = p0.double()
    c0_scale = p1.double() * (p4.double() + 1e-05).rsqrt()
    c0_bias = (-p3.double()) * c0_scale + p2.double()
    c0_w = c0_w * c0_scale.view(-1, 1, 1, 1)
    c0_packed = c0_w.reshape(1, 64, 3, 9).permute(0, 3, 2, 1)
    c0_packed = c0_packed.reshape(1, 27, 64)
    c0_packed = torch.nn.functional.pad(c0_packed, (0, 0, 0, 5))
    c0_packed = c0_packed.to(p0.dtype).contiguous()
    packed_w0 = c0_packed
    shift = c0_bias
    shift = shift.float().contiguous()
    return packed_w0, shift


def run(x0, packed_w0, shift, *, BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages):
    out_n2 = torch.empty((x0.shape[0], 64, x0.shape[2], x0.shape[3]), dtype=torch.float32, device=x0.device)
    _conv[(triton.cdiv(x0.shape[0] * x0.shape[2] * x0.shape[3], BLOCK_M),)](
        packed_w0, x0, shift, out_n2,
        x0.shape[0], x0.shape[2], x0.shape[3], x0.shape[0] * x0.shape[2] * x0.shape[3], x0.shape[2] * x0.shape[3], x0.stride(0), x0.stride(1), x0.stride(2), out_n2.stride(0), out_n2.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, x0_d1=x0.shape[1],
        num_warps=num_warps, num_stages=num_stages,
    )
    return out_n2
