//! What a plan is told as, for the program that runs it.

use heist_kernels::LaunchPlan;
use heist_kernels::attention::Problem;
use heist_launch::{Arg, BufferRef, TensorMap};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(map: &TensorMap) -> Value {
    let TensorMap {
        buffer: BufferRef::Named(buffer),
        ..
    } = map
    else {
        return Value::Null;
    };
    json!({
        "map": buffer, "element": map.element.as_str(), "dims": map.dims, "strides": map.strides,
        "box": map.box_dims, "element_strides": map.element_strides,
        "swizzle": map.swizzle.as_str(), "l2": map.l2.as_str(),
    })
}

fn parameter(arg: &Arg) -> Value {
    match arg {
        Arg::Scalar(scalar) => json!({ "hex": hex(&scalar.to_bytes()) }),
        Arg::Bytes(bytes) => json!({ "hex": hex(bytes) }),
        Arg::Buffer { data, .. } => json!({ "own": hex(data.bytes()) }),
        Arg::Pointer {
            buffer: BufferRef::Named(name),
            ..
        } => json!({ "buffer": name }),
        Arg::Pointer { .. } | Arg::Struct(_) | Arg::Function(_) => Value::Null,
        Arg::TensorMap(tensor) => map(tensor),
    }
}

pub(crate) fn describe(
    directory: &Path,
    files: &mut BTreeMap<String, String>,
    name: &str,
    problem: &Problem,
    plan: &LaunchPlan,
) -> Result<Value, Box<dyn std::error::Error>> {
    let mut steps = Vec::new();
    for step in &plan.steps {
        // Kernels are the same for many shapes.
        let (text, next) = (step.ptx(), format!("{}.ptx", files.len()));
        let file = files.entry(text.clone()).or_insert(next).clone();
        std::fs::write(directory.join(&file), text)?;
        let (grid, block) = (step.launch.grid, step.launch.block);
        steps.push(json!({
            "ptx": file, "entry": step.entry, "grid": [grid.x, grid.y, grid.z],
            "block": [block.x, block.y, block.z], "shared": step.launch.dynamic_shared,
            "overlaps": step.overlaps,
            "params": step.params.iter().map(parameter).collect::<Vec<_>>(),
        }));
    }
    let buffers = plan
        .buffers
        .iter()
        .map(|buffer| json!({ "name": buffer.name, "bytes": buffer.bytes() }));
    Ok(json!({
        "name": name, "plan": plan.name, "variant": plan.variant,
        "page": problem.page_size, "ragged": problem.is_ragged(),
        "cache": problem.cache.to_string(), "bytes": problem.work().bytes,
        "table": problem.page_table(),
        "buffers": buffers.collect::<Vec<_>>(), "steps": steps,
    }))
}
