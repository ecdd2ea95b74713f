//! Kernels and their launches in files, for the Python programs that run them beside others'.

use heist_kernels::{Job, KernelError};
use heist_launch::{Arg, BufferRef, Role, TensorMap};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn map(map: &TensorMap) -> Value {
    json!({
        "buffer": map.buffer.to_string(), "element": format!("{:?}", map.element),
        "dims": map.dims, "strides": map.strides, "box": map.box_dims,
        "swizzle": format!("{:?}", map.swizzle), "l2": format!("{:?}", map.l2),
    })
}

fn parameter(arg: &Arg) -> Result<Value, KernelError> {
    Ok(match arg {
        Arg::Scalar(scalar) => json!({ "bits": scalar.bits, "size": scalar.ty.bytes() }),
        // A number of a parameter struct, as the bytes that the kernel reads.
        Arg::Bytes(bytes) if matches!(bytes.len(), 4 | 8) => {
            let bits = bytes
                .iter()
                .rev()
                .fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            json!({ "bits": bits, "size": bytes.len() })
        }
        Arg::Pointer {
            buffer: BufferRef::Named(name),
            ..
        } => json!({ "buffer": name }),
        Arg::Buffer { data, .. } => json!({ "own": hex(data.bytes()) }),
        Arg::TensorMap(tensor) => json!({ "map": map(tensor) }),
        other => {
            return Err(KernelError::unfit(format!(
                "the sweep can't pass {other:?}"
            )));
        }
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Everything that a launcher needs, with the PTX in files of their own.
pub(crate) fn describe(
    name: &str,
    job: &Job,
    directory: &Path,
    written: &mut BTreeMap<String, String>,
) -> Result<Value, Box<dyn std::error::Error>> {
    let mut steps = Vec::new();
    for step in &job.steps {
        let text = step.ptx();
        let number = written.len();
        let file = written
            .entry(text.clone())
            .or_insert_with(|| format!("{number}.ptx"));
        std::fs::write(directory.join(&*file), text)?;
        let params: Result<Vec<Value>, KernelError> = step.params.iter().map(parameter).collect();
        steps.push(json!({
            "ptx": file, "entry": step.entry, "grid": step.launch.grid.to_array(),
            "block": step.launch.block.to_array(), "shared": step.launch.dynamic_shared,
            "overlaps": step.overlaps, "params": params?,
        }));
    }
    let buffers: Vec<Value> = job
        .buffers
        .iter()
        .map(|buffer| {
            // A kernel of packed sequences reads where they start.
            let start = (buffer.role == Role::In && buffer.name.ends_with("starts"))
                .then(|| hex(buffer.data.bytes()));
            json!({ "name": buffer.name, "bytes": buffer.data.bytes().len(), "data": start })
        })
        .collect();
    Ok(json!({ "name": name, "steps": steps, "buffers": buffers }))
}
