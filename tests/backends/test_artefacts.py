from mkevolve.backends import artefacts
from mkevolve.data.plan import Dot

TTIR = """
#loc = loc("/a/candidate.py":10:0)
#loc1 = loc("/lib/standard.py":40:2)
#loc2 = loc("/a/candidate.py":23:19)
#loc3 = loc(callsite(#loc1 at #loc2))
#loc4 = loc("acc"(#loc2))
    %1 = tt.dot %a, %b, %c : tensor<128x64xf16> * tensor<64x32xf16> -> tensor<128x32xf32> loc(#loc4)
    %2 = tt.dot %a, %b, %c, inputPrecision = tf32x3 : tensor<2x16x16xf32> * tensor<2x16x16xf32> -> tensor<2x16x16xf32> loc(#loc3)
    %3 = tt.dot %a, %b, %c {maxNumImpreciseAcc = 32 : i32} : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
    %4 = tt.dot %a, %b, %c : tensor<16x32xf8E4M3FN> * tensor<32x16xf8E4M3FN> -> tensor<16x16xf32> loc(#loc1)
    %5 = arith.addf %1, %2 : tensor<16x16xf32> loc(#loc2)
"""  # noqa: E501

PTX = """
	@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	ld.global.L1::evict_first.b16 { %rs1 }, [ %rd2 + 0 ];
	ld.global.nc.v2.f64 {%fd1, %fd2}, [%rd3];
	@%p2 st.global.v2.b64 [ %rd4 + 0 ], { %rd5, %rd6 };
	cp.async.cg.shared.global [ %r5 + 0 ], [ %rd7 + 0 ], 0x10, %r6;
	cp.async.ca.shared.global [ %r5 + 0 ], [ %rd7 + 0 ], 0x4, %r6;
	cp.async.commit_group;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %f1 }, { %r1 }, { %r2 }, { %f1 };
	wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd8, %rd9, p, 1, 1;
	bar.sync 0;
	bar.sync 0;
	ex2.approx.ftz.f32 %f1, %f2;
	st.shared.v4.b32 [ %r1 ], { %r1 };
"""


def test_dots_have_precision_types_and_the_candidates_line():
    assert artefacts.find_dots(TTIR, "/a/candidate.py") == (
        Dot("float16", "float32", "native", 23),
        Dot("float32", "float32", "tf32x3", 23),
        Dot("float32", "float32", "ieee", None),
        Dot("float8_e4m3fn", "float32", "native", None),
    )


def test_ptx_counts_say_how_wide_memory_is_read():
    assert dict(artefacts.count_instructions({"ptx": PTX, "cubin": b""})) == {
        "ld.global.16": 2,
        "ld.global.2": 1,
        "st.global.16": 1,
        "cp.async.16": 1,
        "cp.async.4": 1,
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 1,
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": 1,
        "bar.sync": 2,
        "ex2.approx": 1,
        "st.shared": 1,
    }


def test_amd_usage_and_counts():
    text = """
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
	s_barrier
  - .agpr_count:     0
    .private_segment_fixed_size: 24
    .vgpr_count:     144
    .vgpr_spill_count: 6
"""
    assert artefacts.hip_usage(text) == (144, 24)
    assert dict(artefacts.count_instructions({"amdgcn": text})) == {
        "v_mfma_f32_32x32x8_f16": 1,
        "buffer_load_dwordx4": 1,
        "s_barrier": 1,
    }
