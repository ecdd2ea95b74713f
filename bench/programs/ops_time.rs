//! How long a launch of a planned operation takes the host, on a real GPU.
//!
//! `cargo run --release -p heist-bench --bin ops_time`

use heist::gpu::{JitOptions, PtxText};
use heist::kernels::attention::{Cache, Dtype, Layout, Mask};
use heist::kernels::gemm::{Gemm, Input, Layout as Stored, Output};
use heist::launch::{Launch, TensorElement, TensorMap};
use heist::ops::{
    Added, Attention, AttentionOperands, GemmOperands, Memory, Ops, Sequences, WorkspaceMemory,
};
use heist::run::Device;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

/// Microseconds of the host for a call: the best of some rounds, with a queue that is
/// empty before each.
fn host(
    gpu: &heist::gpu::Gpu,
    mut call: impl FnMut() -> Result<(), heist::ops::OpError>,
) -> Result<f64, Box<dyn Error>> {
    const CALLS: u32 = 200;
    let mut best = f64::INFINITY;
    for _ in 0..50 {
        gpu.synchronize()?;
        let start = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    gpu.synchronize()?;
    Ok(best / f64::from(CALLS) * 1e6)
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open("gpu".parse()?)?;
    let Device::Gpu(gpu) = &device else {
        return Err("a real GPU is wanted".into());
    };
    let gpu = gpu.clone();
    let stream = gpu.untracked_stream()?;
    let ops = Ops::new(device)?;
    let memory = |bytes: u64| gpu.allocate_with(&vec![0; bytes as usize + 256]);

    // What of it is the driver's: a kernel that does nothing, and a tensor map.
    let text = PtxText::new(
        "nothing",
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing(.param .u64 at) { ret; }\n",
    );
    let nothing = Arc::new(gpu.load(&text, &JitOptions::default())?.kernel("nothing")?);
    let ready = nothing.ready(&Launch::new(1, 128))?;
    let time = host(&gpu, || Ok(ready.launch(stream.borrowed(), &[0; 8])?))?;
    println!("a kernel that does nothing: {time:.2} us of the host a launch");
    let map = TensorMap::dense("a", TensorElement::Bf16, &[128, 128], &[64, 64]);
    let place = memory(32768)?;
    let time = host(&gpu, || {
        std::hint::black_box(gpu.encode_tensor_map(&map)?);
        Ok(())
    })?;
    let encoded = gpu.encode_tensor_map(&map)?;
    let moved = host(&gpu, || {
        std::hint::black_box(encoded.at(&gpu, place.address())?);
        Ok(())
    })?;
    println!("a tensor map: {time:.3} us of the host to encode, {moved:.3} to give it an address");

    let begin = Instant::now();
    let problem = Gemm::new(128, 128, 128, Input::Bf16, Output::Bf16, Stored::Nt);
    let plan = ops.gemm(&problem, None)?;
    println!(
        "gemm: planned in {:.1} ms",
        begin.elapsed().as_secs_f64() * 1e3
    );
    let [a, b, d] = [memory(32768)?, memory(32768)?, memory(32768)?];
    let counters = memory(plan.workspace().counters)?;
    let scratch = memory(plan.workspace().scratch)?;
    let operands = GemmOperands {
        a: Memory::device(&a),
        b: Memory::device(&b),
        c: None,
        d: Memory::device(&d),
        bias: None,
        scales: None,
    };
    let workspace = WorkspaceMemory {
        counters: Memory::device(&counters),
        scratch: Memory::device(&scratch),
    };
    let time = host(&gpu, || {
        plan.launch(&operands, workspace, stream.borrowed())
    })?;
    println!("gemm: {time:.2} us of the host a launch ({})", plan.name());

    for queries in [128u32, 1024] {
        let begin = Instant::now();
        let problem = Attention {
            sequences: Sequences::Same {
                batch: 1,
                queries,
                keys: queries,
            },
            heads: 2,
            kv_heads: 2,
            head_dim: 64,
            value_dim: None,
            dtype: Dtype::Bf16,
            cache: Cache::Same,
            append: None,
            mask: Mask::Causal,
            layout: Layout::Heads,
            views: None,
            scale: None,
            added: Added::default(),
        };
        let plan = ops.attention(&problem, None)?;
        println!(
            "attention: planned in {:.1} ms",
            begin.elapsed().as_secs_f64() * 1e3
        );
        let bytes = u64::from(queries) * 2 * 64 * 2;
        let [q, k, v, out] = [
            memory(bytes)?,
            memory(bytes)?,
            memory(bytes)?,
            memory(bytes)?,
        ];
        let counters = memory(plan.workspace().counters)?;
        let scratch = memory(plan.workspace().scratch)?;
        let operands = AttentionOperands::new(
            Memory::device(&q),
            Memory::device(&k),
            Memory::device(&v),
            Memory::device(&out),
        );
        let workspace = WorkspaceMemory {
            counters: Memory::device(&counters),
            scratch: Memory::device(&scratch),
        };
        let time = host(&gpu, || {
            plan.launch(&operands, workspace, stream.borrowed())
        })?;
        println!(
            "attention: {time:.2} us of the host a call of {} launches ({})",
            plan.launches(),
            plan.name()
        );
    }
    Ok(())
}
