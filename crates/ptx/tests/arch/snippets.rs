//! One instruction, or one short sequence, for each feature.

use heist_ptx::arch::Feature;

/// PTX that needs `feature`, and nothing that is younger or rarer.
pub(super) fn snippet(feature: Feature) -> &'static str {
    use Feature::*;
    match feature {
        CpAsync => "cp.async.ca.shared.global [%r0], [%rd0], 16;",
        CpAsyncIgnoreSource => "cp.async.ca.shared.global [%r0], [%rd0], 4, %p0;",
        CacheHint => "ld.global.L2::cache_hint.b32 %r0, [%rd0], %rd1;",
        CreatePolicy => "createpolicy.fractional.L2::evict_last.b64 %rd0, 1.0;",
        Prefetch256 => "ld.global.L2::256B.b32 %r0, [%rd0];",
        PrefetchSize => "ld.global.L2::64B.b32 %r0, [%rd0];",
        L1Eviction => "ld.global.L1::evict_last.b32 %r0, [%rd0];",
        ApplyPriority => "applypriority.global.L2::evict_normal [%rd0], 128;",
        Discard => "discard.global.L2 [%rd0], 128;",
        PrefetchEviction => "prefetch.global.L2::evict_last [%rd0];",
        SharedCta => "ld.shared::cta.u32 %r0, [%r1];",
        Mmio => "ld.mmio.relaxed.sys.global.u32 %r0, [%rd0];",
        Access128 => "ld.global.b128 %q0, [%rd0];",
        Access256 => "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd0];",
        Atomic128 => "atom.exch.b128 %q0, [%rd0], %q1;",
        AtomicBf16 => "atom.global.add.noftz.bf16 %h0, [%rd0], %h1;",
        VectorReduction => "red.global.add.v2.f32 [%rd0], {%f2, %f3};",
        Alloca => "stacksave.u64 %rd0;",
        ParamGeneric => "cvta.param.u64 %rd0, input;",
        StBulk => "st.bulk.weak.shared::cta [%rd0], 128, 0;",
        StAsyncGlobal => "st.async.mmio.release.sys.global.u32 [%rd0], %r1;",
        Multimem => "multimem.red.relaxed.sys.global.add.u32 [%rd0], %r0;",
        MultimemFp8 => {
            "multimem.ld_reduce.relaxed.sys.global.add.v4.e4m3x4 {%r0, %r1, %r2, %r3}, [%rd0];"
        }
        Clusters => "mov.u32 %r0, %cluster_ctarank;",
        ClusterShared => "ld.shared::cluster.u32 %r0, [%r1];",
        ClusterScope => "fence.acq_rel.cluster;",
        ClusterBarrier => "barrier.cluster.arrive.aligned;",
        ClusterBarrierSemantics => "barrier.cluster.arrive.release.aligned;",
        Mapa => "mapa.shared::cluster.u32 %r0, %r1, %r2;",
        StAsync => "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0], %r1, [%r2];",
        RedAsync => {
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, [%r2];"
        }
        ClusterLaunchControl => {
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1];"
        }
        ClusterLaunchControlMulticast => {
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r0], [%r1];"
        }
        GridDependency => "griddepcontrol.wait;",
        Mbarrier => "mbarrier.init.shared.b64 [%r0], 1;",
        MbarrierParity => "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], %r1;",
        MbarrierTryWait => "mbarrier.try_wait.shared.b64 %p0, [%r0], %rd1;",
        MbarrierCount => "mbarrier.arrive.shared::cta.b64 %rd1, [%r0], 2;",
        MbarrierTransactions => "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r0], 16;",
        MbarrierSemantics => "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0];",
        MbarrierRelaxed => "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd1, [%r0];",
        BulkCopy => {
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0], %r1, [%r2];"
        }
        BulkCopyCta => {
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%rd0], %r1, [%r2];"
        }
        BulkByteMask => {
            "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r0], %r1, %h0;"
        }
        BulkReduce => {
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r0], %r1;"
        }
        TensorCopy => {
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r2}], [%r3];"
        }
        TensorCtaGroup => {
            "cp.async.bulk.tensor.2d.cta_group::1.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r2}], [%r3];"
        }
        TensorGather => {
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r2, %r4, %r5, %r6}], [%r3];"
        }
        TensorScatter => {
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd0, {%r1, %r2, %r4, %r5, %r6}], [%r0];"
        }
        TensorIm2colW => {
            "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes [%r0], [%rd0, {%r1, %r2, %r4}], [%r3], {%h0, %h1};"
        }
        TensormapReplace => "tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd1;",
        TensormapFence => "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;",
        TensormapPrefetch => "prefetch.tensormap [%rd0];",
        ProxyFence => "fence.proxy.alias;",
        ProxyFenceAsync => "fence.proxy.async.shared::cta;",
        MbarrierInitFence => "fence.mbarrier_init.release.cluster;",
        OneWayFence => "fence.acquire.gpu;",
        Ldmatrix => "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r4];",
        LdmatrixB8 => "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r4];",
        Stmatrix => "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0, %r1, %r2, %r3};",
        StmatrixB8 => "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r4], {%r0};",
        Movmatrix => "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;",
        MmaTuring => {
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r4}, {%f0, %f1, %f2, %f3};"
        }
        MmaAmpere => {
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};"
        }
        MmaBf16 => {
            "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r3}, {%f0, %f1, %f2, %f3};"
        }
        MmaF64 => {
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0, %d1}, {%d2}, {%d3}, {%d0, %d1};"
        }
        MmaF64Large => {
            "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%d0, %d1, %d2, %d3}, {%d4, %d5}, {%d6}, {%d0, %d1, %d2, %d3};"
        }
        MmaBinaryAnd => {
            "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r0, %r1, %r2, %r3};"
        }
        MmaSparse => {
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r4, %r5}, {%f0, %f1, %f2, %f3}, %r9, 0x0;"
        }
        MmaSparseOrdered => {
            "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r4, %r5}, {%f0, %f1, %f2, %f3}, %r9, 0x0;"
        }
        MmaFp8 => {
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f0, %f1, %f2, %f3};"
        }
        MmaFp6 => {
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f0, %f1, %f2, %f3};"
        }
        MmaBlockScale => {
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f0, %f1, %f2, %f3}, %r20, {%h0, %h1}, %r21, {%h2, %h3};"
        }
        WmmaBf16 => {
            "wmma.load.a.sync.aligned.m16n16k16.row.bf16 {%r0, %r1, %r2, %r3}, [%rd0], %r8;"
        }
        WmmaF64 => "wmma.load.a.sync.aligned.m8n8k4.row.f64 {%d0}, [%rd0], %r8;",
        Wgmma => {
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, 1, 1, 1, 0, 0;"
        }
        Setmaxnreg => "setmaxnreg.inc.sync.aligned.u32 64;",
        Tcgen05 => "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;",
        Tcgen05Int8 => "tcgen05.mma.cta_group::1.kind::i8 [%r0], %rd0, %rd1, %r1, %p0;",
        Bf16Fma => "fma.rn.bf16x2 %r0, %r1, %r2, %r3;",
        Bf16Arithmetic => "add.rn.bf16 %h0, %h1, %h2;",
        F16MinMax => "max.f16x2 %r0, %r1, %r2;",
        FmaRelu => "fma.rn.relu.f16 %h0, %h1, %h2, %h3;",
        MinMaxNan => "max.NaN.f32 %f0, %f1, %f2;",
        XorSignAbs => "min.xorsign.abs.f32 %f0, %f1, %f2;",
        MinMaxThree => "min.f32 %f0, %f1, %f2, %f3;",
        F32x2 => "add.rn.f32x2 %rd0, %rd1, %rd2;",
        MixedPrecision => "add.f32.f16 %f0, %h0, %f1;",
        PackedInt16 => "add.u16x2 %r0, %r1, %r2;",
        PackedInt8 => "add.u8x4 %r0, %r1, %r2;",
        IntegerRelu => "max.relu.s32 %r0, %r1, %r2;",
        TanhAndEx2F16 => "ex2.approx.f16x2 %r0, %r1;",
        TanhAndEx2Bf16 => "ex2.approx.ftz.bf16x2 %r0, %r1;",
        SignExtend => "szext.wrap.s32 %r0, %r1, %r2;",
        Bf16Convert => "cvt.rn.bf16.f32 %h0, %f0;",
        Bf16FromInteger => "cvt.rni.s32.bf16 %r0, %h0;",
        Fp8Convert => "cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;",
        Fp4Convert => "cvt.rn.satfinite.e2m1x2.f32 %b0, %f0, %f1;",
        StochasticRounding => "cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1;",
        Redux => "redux.sync.add.s32 %r0, %r1, 0xffffffff;",
        ReduxF32 => "redux.sync.min.f32 %f0, %f1, 0xffffffff;",
        Elect => "elect.sync _|%p0, 0xffffffff;",
        BarrierCta => "barrier.cta.sync.aligned 0;",
    }
}
