//! A sweep over a space with planted disasters: a hang, a fault, a wrong result, too much shared memory, and
//! registers that spill. Each ends in a row of its own, and the rest is right:
//! `cargo run -p heist-bench --bin planted`, or `-- gpu`.

#[path = "../../crates/heist/tests/planted/space.rs"]
mod space;

use heist::run::{Device, Settings};
use heist::tune::{self, DeviceBench};
use heist_tune::{Budget, Journal, Progress, Worker, WorkerCommand, serve};
use space::{DISASTERS, Planted};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.first().map_or("sim:h200", String::as_str);
    let device = Device::open(name.parse()?)?;
    let limit = Duration::from_secs(8);
    if words.get(1).is_some_and(|word| word == "worker") {
        // The simulator has the time limit itself. On a GPU it is the process that is ended.
        let settings = Settings {
            limit,
            ..Settings::default()
        };
        let mut bench = DeviceBench::new(&device, &Planted, settings)?;
        return Ok(serve(
            &mut bench,
            std::io::stdin().lock(),
            std::io::stdout(),
        )?);
    }
    let mut worker = Worker::start(WorkerCommand {
        program: std::env::current_exe()?.into(),
        arguments: vec![name.into(), "worker".into()],
        limit: limit + Duration::from_secs(4),
    })
    .map_err(|failure| format!("{failure:?}"))?;
    let mut silent = |_: &Progress<'_>| {};
    let found = tune::search(
        &Planted,
        tune::target(&device)?,
        &mut worker,
        &mut Journal::in_memory(),
        &Budget::default(),
        &mut silent,
    )?;
    for row in &found.rows {
        let local = row.facts.as_ref().and_then(|facts| facts.local);
        let local = local.map_or(String::new(), |bytes| {
            format!(", {bytes} bytes of local memory")
        });
        println!("{}: {}{local}", row.candidate, row.status);
    }
    println!("{} disasters were planted", DISASTERS.len());
    Ok(())
}
