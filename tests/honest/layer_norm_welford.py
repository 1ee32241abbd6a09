"""layer_norm: Welford by `tl.reduce` with an own combine, as inductor writes it."""
import torch
import triton
import triton.language as tl


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    new_weight = weight_1 + weight_2
    w2_over_w = tl.where(new_weight == 0.0, 0.0, weight_2 / new_weight)
    return (
        mean_1 + delta * w2_over_w,
        m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w,
        new_weight,
    )


@triton.jit
def welford(mean, m2, weight, dim):
    return tl.reduce((mean, m2, weight), dim, welford_combine)


@triton.jit
def red_fused(in_ptr0, in_ptr1, in_ptr2, out_ptr0, xnumel, rnumel, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rbase = tl.arange(0, RBLOCK)[None, :]
    mean = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    m2 = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    weight = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        value = tl.load(in_ptr0 + (rindex + rnumel * xindex), rmask & xmask, eviction_policy='evict_last', other=0.0)
        delta = value - mean
        new_weight = weight + 1
        new_mean = mean + delta / new_weight
        new_m2 = m2 + delta * (value - new_mean)
        mean = tl.where(rmask & xmask, new_mean, mean)
        m2 = tl.where(rmask & xmask, new_m2, m2)
        weight = tl.where(rmask & xmask, new_weight, weight)
    mean_t, m2_t, weight_t = welford(mean, m2, weight, 1)
    mu = mean_t[:, None]
    var = m2_t[:, None] / rnumel
    rs = tl.math.rsqrt(var + 1e-05)
    for roffset in range(0, rnumel, RBLOCK):
        rindex = roffset + rbase
        rmask = rindex < rnumel
        value = tl.load(in_ptr0 + (rindex + rnumel * xindex), rmask & xmask, eviction_policy='evict_first', other=0.0)
        w = tl.load(in_ptr1 + rindex, rmask, eviction_policy='evict_last', other=0.0)
        b = tl.load(in_ptr2 + rindex, rmask, eviction_policy='evict_last', other=0.0)
        tl.store(out_ptr0 + (rindex + rnumel * xindex), (value - mu) * rs * w + b, rmask & xmask)


def run(x, weight, bias):
    xnumel, rnumel = x.size()
    buf0 = torch.empty((xnumel, rnumel), device=x.device, dtype=x.dtype)
    grid = lambda META: (triton.cdiv(xnumel, META["XBLOCK"]),)
    red_fused[grid](x, weight, bias, buf0, xnumel, rnumel, XBLOCK=4, RBLOCK=16)
    return buf0
