//! What the driver's assembler refuses.

use super::{Found, KERNELS, refused, say};
use heist_gpu::{Gpu, JitOptions, PtxText};

pub(super) fn jit_error(gpu: &Gpu) -> Found {
    let broken = PtxText::new(
        "broken.ptx",
        KERNELS.replace(
            "st.global.u32 [%at], %value;",
            "st.global.u33 [%at], %value;",
        ),
    );
    refused(
        gpu.load(&broken, &JitOptions::default()),
        &["broken.ptx", "line", "heist check broken.ptx"],
    )
}

pub(super) fn newer_ptx(gpu: &Gpu) -> Found {
    let newer = PtxText::new(
        "newer.ptx",
        KERNELS.replace(".version 8.0", ".version 99.0"),
    );
    refused(
        gpu.load(&newer, &JitOptions::default()),
        &["`.version 99.0`", "PTX up to"],
    )
}

pub(super) fn clamped_version(gpu: &Gpu) -> Found {
    let newer = PtxText::new(
        "newer.ptx",
        KERNELS.replace(".version 8.0", ".version 99.0"),
    );
    let options = JitOptions {
        clamp_version: true,
        ..JitOptions::default()
    };
    let program = gpu.load(&newer, &options).map_err(say)?;
    program.kernel("add_one").map_err(say)?;
    Ok(String::new())
}

pub(super) fn other_chip(gpu: &Gpu) -> Found {
    let other = PtxText::new(
        "other.ptx",
        KERNELS.replace(".target sm_90", ".target sm_80a"),
    );
    let far = PtxText::new(
        "far.ptx",
        ".version 8.8\n.target sm_121a\n.address_size 64\n.visible .entry k()\n{ ret; }\n",
    );
    let found = refused(
        gpu.load(&far, &JitOptions::default()),
        &["sm_121a", "that chip alone"],
    )?;
    refused(gpu.load(&other, &JitOptions::default()), &["other.ptx"])?;
    Ok(found)
}
