//! The record of one launch.

use crate::driver::{self, OK};
use crate::kernel::Kernel;
use crate::launch::Wish;
use crate::memory::{Reach, Stretch};
use crate::recorder::Recorder;
use heist_ptx::Source;
use heist_ptx::arch::Arch;
use heist_record::{After, Memory, Param, Record};
use serde_json::json;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a launch and records it. A launch that can't be recorded is made all the same, and the
/// user is told why.
pub(crate) fn record(
    recorder: &mut Recorder,
    wish: &Wish,
    kernel: &Kernel,
    launch: impl FnOnce() -> c_int,
) -> c_int {
    let prepared = catch_unwind(AssertUnwindSafe(|| prepare(recorder, wish, kernel)));
    let prepared = prepared.unwrap_or_else(|_| Err("the recorder has a defect".to_owned()));
    let (mut record, stretches) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            let what = format!(
                "launch {} of `{}` can't be recorded: {why}",
                recorder.launches, kernel.name
            );
            recorder.report.line(&json!({ "refused": what }));
            recorder.pass_over(&kernel.name);
            return launch();
        }
    };
    let status = launch();
    let after = match status {
        OK => driver::cuCtxSynchronize(),
        refused => refused,
    };
    record.status = u32::try_from(after).unwrap_or(u32::MAX);
    record.memory = stretches
        .into_iter()
        .map(|one| finished(one, after == OK))
        .collect();
    let bytes: usize = record.memory.iter().map(|one| one.before.len()).sum();
    let file = &recorder.settings.file;
    let beside = file.with_extension(format!("heist-{}", std::process::id()));
    let written =
        std::fs::write(&beside, record.to_bytes()).and_then(|()| std::fs::rename(&beside, file));
    let line = match written {
        Ok(()) => json!({ "recorded": {
            "kernel": kernel.name,
            "number": record.number,
            "stretches": record.memory.len(),
            "bytes": bytes,
            "status": record.status,
            "left_out": record.left_out,
        } }),
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            json!({ "refused": format!("can't write {}: {error}", file.display()) })
        }
    };
    recorder.report.line(&line);
    status
}

fn finished(stretch: Stretch, readable: bool) -> Memory {
    let after = match readable.then(|| stretch.read()).flatten() {
        None => After::Unknown,
        Some(bytes) if bytes == stretch.before => After::Same,
        Some(bytes) => After::Changed(bytes),
    };
    Memory {
        kind: stretch.kind,
        at: stretch.at,
        before: stretch.before,
        after,
    }
}

/// All that is known before the launch.
fn prepare(
    recorder: &Recorder,
    wish: &Wish,
    kernel: &Kernel,
) -> Result<(Record, Vec<Stretch>), String> {
    if kernel.name.is_empty() {
        return Err(
            "the driver does not tell its name, which those of CUDA 12.5 and later do".to_owned(),
        );
    }
    let mut capturing = 0;
    let asked = driver::cuStreamIsCapturing(wish.stream, &raw mut capturing);
    if asked == OK && capturing != 0 {
        return Err(
            "it is part of a graph that is being captured, and runs later: ask for another one \
                    with --launch"
                .to_owned(),
        );
    }
    let waited = driver::cuCtxSynchronize();
    if waited != OK {
        return Err(format!(
            "an earlier launch has failed with status {waited}: ask for that one"
        ));
    }
    let device = Device::now().ok_or("the driver does not tell which GPU it is for")?;
    let here = device.arch()?;
    let (text, from) = kernel.ptx(&recorder.images, here, recorder.settings.ptx.as_deref())?;
    let source = Source::new("its PTX", text);
    let module = heist_ptx::parse(&source).map_err(|found| {
        let first = found.first().map_or(String::new(), ToString::to_string);
        format!("its PTX can't be read: {first}")
    })?;
    let mut entries = module.entries();
    let entry = entries.find(|entry| entry.name == *kernel.name);
    let entry = entry.ok_or_else(|| format!("{from} has no kernel of that name"))?;
    // SAFETY: the driver reads the parameters of the same kernel.
    let arguments = unsafe { wish.arguments(&entry.params) };
    let arguments = arguments.ok_or("its parameters are given in a way that is not known")?;
    let mut reach = Reach::new(recorder.settings.limit);
    reach.variables(&module, kernel.owner);
    let mut params = Vec::new();
    for (at, bytes) in arguments.into_iter().enumerate() {
        let map = <[u8; 128]>::try_from(bytes.as_slice()).ok();
        if let Some(map) = map.and_then(|map| recorder.maps.get(&map)) {
            reach.pointer(map.base);
            params.push(Param::Map(Box::new(map.clone())));
            continue;
        }
        let known = |part: &[u8]| {
            <&[u8; 128]>::try_from(part).is_ok_and(|part| recorder.maps.contains_key(part))
        };
        if bytes.len() > 128 && bytes.windows(128).step_by(64).any(known) {
            reach.left_out.push(format!(
                "the tensor map in the struct that is parameter {at}: its bytes are the GPU's, which a \
                 simulated one can't read"
            ));
        }
        reach.words(&bytes);
        params.push(Param::Bytes(bytes));
    }
    let record = Record {
        program: std::env::args().collect(),
        gpu: device.name,
        capability: device.capability,
        driver: device.driver,
        ptx: source.text().to_owned(),
        ptx_from: from,
        kernel: kernel.name.clone(),
        number: recorder.launches,
        launch: wish.launch,
        cooperative: wish.cooperative,
        params,
        memory: Vec::new(),
        left_out: reach.left_out.clone(),
        status: 0,
    };
    Ok((record, reach.into_stretches()))
}

/// The GPU of the launch.
struct Device {
    name: String,
    capability: u32,
    driver: u32,
}

impl Device {
    fn now() -> Option<Device> {
        /// Numbers of the driver's attributes.
        const MAJOR: c_int = 75;
        const MINOR: c_int = 76;
        let (mut device, mut version) = (0, 0);
        let mut name = [0 as c_char; 256];
        if driver::cuCtxGetDevice(&raw mut device) != OK
            || driver::cuDeviceGetName(name.as_mut_ptr(), 255, device) != OK
            || driver::cuDriverGetVersion(&raw mut version) != OK
        {
            return None;
        }
        let attribute = |id: c_int| {
            let mut value = 0;
            let status = driver::cuDeviceGetAttribute(&raw mut value, id, device);
            (status == OK).then_some(value as u32)
        };
        let letters = name.iter().take_while(|letter| **letter != 0);
        let name: Vec<u8> = letters.map(|letter| *letter as u8).collect();
        Some(Device {
            name: String::from_utf8_lossy(&name).into_owned(),
            capability: attribute(MAJOR)? * 10 + attribute(MINOR)?,
            driver: version as u32,
        })
    }

    /// The architecture that it runs, with what it alone has.
    fn arch(&self) -> Result<Arch, String> {
        let name = format!("sm_{}", self.capability);
        let own = Arch::parse(&format!("{name}a")).or_else(|| Arch::parse(&name));
        own.ok_or_else(|| format!("{name} is not an architecture that Heist knows"))
    }
}
