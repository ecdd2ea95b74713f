//! Launches that come again and again: by a graph of their stream, wherever one is right.

use super::{Found, equal, kernel, say};
use heist_gpu::{Array, Gpu, ReadyLaunch, Stream};
use heist_launch::Launch;
use std::sync::Arc;

/// More than a stream launches before it gets a graph.
const MANY: u32 = 32;

/// A kernel that adds one to each of so many words.
struct Adding(ReadyLaunch);

impl Adding {
    fn parameters(&self, data: &Array<u32>, words: u64) -> Vec<u8> {
        let mut parameters = vec![0; self.0.parameter_bytes()];
        let values = [data.address().to_le_bytes(), words.to_le_bytes()];
        for (offset, bytes) in self.0.offsets().iter().zip(values) {
            parameters[*offset..*offset + 8].copy_from_slice(&bytes);
        }
        parameters
    }

    fn launch(&self, stream: &Stream, data: &Array<u32>, words: u64) -> Result<(), String> {
        let parameters = self.parameters(data, words);
        self.0.launch(stream.borrowed(), &parameters).map_err(say)
    }
}

pub(super) fn relaunches(gpu: &Gpu) -> Found {
    let kernel = Arc::new(kernel(gpu, "add_one")?);
    let adding = || kernel.ready(&Launch::new(8, 128)).map(Adding).map_err(say);
    let zeros = || gpu.upload(&[0u32; 1000]).map_err(say);
    let sums = |data: &Array<u32>| data.read().map_err(say);
    parameters(gpu, &adding()?, &zeros()?, &zeros()?)?;
    let (first, second) = (zeros()?, zeros()?);
    let both = adding()?;
    threads(gpu, &both, [&first, &second])?;
    let mut added = vec![MANY * 9; 500];
    added.resize(1000, MANY * 5);
    equal("what one thread added", sums(&first)?, added.clone())?;
    equal("what the other added", sums(&second)?, added)?;
    captured(gpu, &adding()?, &zeros()?)?;
    // Streams of any priority, and more of them than have graphs.
    let many = adding()?;
    let data = zeros()?;
    for count in 1..=12 {
        let stream = gpu.stream_with_priority(-(count % 2)).map_err(say)?;
        for _ in 0..MANY {
            many.launch(&stream, &data, 1000)?;
        }
        stream.synchronize().map_err(say)?;
        equal("graphs", many.0.graphs(), count.min(8) as usize)?;
    }
    equal(
        "the sums of 12 streams",
        sums(&data)?,
        vec![12 * MANY; 1000],
    )?;
    Ok(String::new())
}

/// Parameters that change and that stay, while launches before are still under way.
fn parameters(
    gpu: &Gpu,
    adding: &Adding,
    one: &Array<u32>,
    other: &Array<u32>,
) -> Result<(), String> {
    let stream = gpu.stream().map_err(say)?;
    let mut expected = [0; 2];
    for launch in 0..4 * MANY {
        let (to, which) = if launch / 3 % 2 == 0 {
            (one, 0)
        } else {
            (other, 1)
        };
        adding.launch(&stream, to, 1000)?;
        expected[which] += 1;
    }
    adding.launch(&stream, one, 10)?;
    stream.synchronize().map_err(say)?;
    equal("graphs", adding.0.graphs(), 1)?;
    let mut sums = vec![expected[0] + 1; 10];
    sums.resize(1000, expected[0]);
    equal("the sums", one.read().map_err(say)?, sums)?;
    equal(
        "the other sums",
        other.read().map_err(say)?,
        vec![expected[1]; 1000],
    )
}

/// Two threads, each with a stream and parameters of its own.
fn threads(gpu: &Gpu, adding: &Adding, data: [&Array<u32>; 2]) -> Result<(), String> {
    let streams = [gpu.stream().map_err(say)?, gpu.stream().map_err(say)?];
    std::thread::scope(|scope| {
        let run = |which: usize| {
            let (stream, data) = (&streams[which], data[which]);
            (0..8 * MANY).try_for_each(|launch| {
                // The same parameters twice, then others.
                let words = if launch / 2 % 2 == 0 { 1000 } else { 500 };
                adding.launch(stream, data, words)
            })
        };
        let other = scope.spawn(move || run(1));
        run(0)?;
        other.join().map_err(|_| "a panic")?
    })?;
    // A thread that finds the other at work does without a graph; alone, it gets one.
    for (stream, data) in streams.iter().zip(data) {
        for _ in 0..MANY {
            adding.launch(stream, data, 1000)?;
        }
        stream.synchronize().map_err(say)?;
    }
    equal("graphs", adding.0.graphs(), 2)
}

/// What is captured into a graph of the caller's runs when that does, as a kernel of it; another
/// thread may make a graph meanwhile.
fn captured(gpu: &Gpu, adding: &Adding, data: &Array<u32>) -> Result<(), String> {
    let (stream, beside) = (gpu.stream().map_err(say)?, gpu.stream().map_err(say)?);
    for _ in 0..MANY {
        adding.launch(&stream, data, 1000)?;
    }
    let mut wrong = Ok(());
    let graph = stream.capture(|stream| {
        wrong = (0..3).try_for_each(|_| adding.launch(stream, data, 1000));
        let elsewhere = std::thread::scope(|scope| {
            let run = || (0..MANY).try_for_each(|_| adding.launch(&beside, data, 1000));
            scope.spawn(run).join()
        });
        wrong = std::mem::replace(&mut wrong, Ok(())).and(
            elsewhere
                .map_err(|_| "a panic".to_owned())
                .and_then(|done| done),
        );
        Ok(())
    });
    let graph = graph.map_err(say)?;
    wrong?;
    equal("kernels of the graph", graph.nodes(), 3)?;
    equal("graphs of ours", adding.0.graphs(), 2)?;
    beside.synchronize().map_err(say)?;
    stream.synchronize().map_err(say)?;
    for _ in 0..2 {
        graph.launch(&stream).map_err(say)?;
    }
    adding.launch(&stream, data, 1000)?;
    stream.synchronize().map_err(say)?;
    equal(
        "the sums",
        data.read().map_err(say)?,
        vec![2 * MANY + 7; 1000],
    )
}
