//! A small problem whose space has a disaster of every kind in it.

use heist::kernels::catalogue::Prepared;
use heist::kernels::reference::Difference;
use heist::kernels::{Job, KernelError, Step, Target, Work, job};
use heist::launch::{Arg, Buffer, Launch, Role};
use heist::ptx::{Source, parse};
use heist::tune::Tunable;
use heist_tune::{Axis, Candidate, Proposal};

const NUMBERS: u32 = 256;
/// Values that one thread of the kernel that spills holds at a time, and the registers that it has for them.
const HELD: u32 = 540;
const REGISTERS: u32 = 32;

/// Adds one to some numbers.
pub(crate) struct Planted;

/// What is wrong with a candidate.
pub(crate) const DISASTERS: [&str; 5] = ["hang", "fault", "wrong", "shared", "spills"];

impl Tunable for Planted {
    fn space(&self, target: Target) -> Result<Vec<Proposal>, KernelError> {
        let right = Axis::product(&[Axis::new("threads", [32, 64, 128, 256])]);
        let planted = DISASTERS.map(|name| Candidate::new([("disaster", name)]));
        // The disasters look like the best.
        let all = planted.into_iter().chain(right).zip(1u8..);
        let judged = |(candidate, at): (Candidate, u8)| Proposal {
            judged: match shared(&candidate) {
                bytes if bytes > target.arch.limits().shared_opt_in => Err(format!(
                    "{bytes} bytes of shared memory a block, and {} has {} for it",
                    target.arch,
                    target.arch.limits().shared_opt_in
                )),
                _ => Ok(Some(f64::from(at))),
            },
            candidate,
        };
        Ok(all.map(judged).collect())
    }

    fn prepare(&self, candidate: &Candidate, _: Target) -> Result<Prepared, KernelError> {
        let threads = candidate.get("threads").unwrap_or("64");
        let threads: u32 = threads
            .parse()
            .map_err(|_| KernelError::unfit(format!("{threads} threads")))?;
        let text = ptx(candidate.get("disaster").unwrap_or_default());
        let module = parse(&Source::new("planted.ptx", text))
            .map_err(|found| KernelError::unfit(format!("{found:?}")))?;
        let numbers: Vec<u32> = (0..NUMBERS).collect();
        let expected: Vec<f64> = numbers.iter().map(|one| f64::from(one + 1)).collect();
        let work = Work {
            flops: f64::from(NUMBERS),
            bytes: 8.0 * f64::from(NUMBERS),
        };
        let job = Job::new("planted", work)
            .buffer("d", Role::InOut, Buffer::from_slice(&numbers))
            .step(Step {
                module: module.into(),
                entry: "add".to_owned(),
                launch: Launch::new(NUMBERS / threads, threads).dynamic_shared(shared(candidate)),
                params: vec![job::buffer("d"), Arg::scalar(0u32)],
                readout: None,
                overlaps: false,
                halves: None,
            });
        Ok(Prepared {
            job,
            verify: Box::new(move |job| {
                let found = job.data("d").and_then(Buffer::to_vec::<u32>);
                let found: Vec<f64> = found
                    .unwrap_or_default()
                    .into_iter()
                    .map(f64::from)
                    .collect();
                Ok(Difference::between(&found, &expected))
            }),
            bound: 1e-9,
        })
    }
}

fn shared(candidate: &Candidate) -> u32 {
    match candidate.get("disaster") {
        Some("shared") => 300 << 10,
        _ => 0,
    }
}

fn ptx(disaster: &str) -> String {
    let (registers, body) = match disaster {
        // Waits for a number that nobody writes.
        "hang" => (
            String::new(),
            "again:\n ld.volatile.global.u32 %r9, [%rd1];\n setp.ne.u32 %p1, %r9, 77777;\n @%p1 bra again;\n".to_owned(),
        ),
        "fault" => (String::new(), " mov.u64 %rd3, 64;\n".to_owned()),
        "wrong" => (String::new(), " add.u32 %r3, %r3, 1;\n".to_owned()),
        "spills" => (format!(".maxnreg {REGISTERS}\n"), spilling()),
        _ => (String::new(), String::new()),
    };
    format!(
        ".version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 data, .param .u32 zero)
{registers}{{
 .reg .pred %p<2>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .b32 %v<{HELD}>;
 ld.param.u64 %rd1, [data];
 ld.param.u32 %r8, [zero];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ntid.x;
 mov.u32 %r4, %tid.x;
 mad.lo.u32 %r5, %r1, %r2, %r4;
 mul.wide.u32 %rd2, %r5, 4;
 add.u64 %rd3, %rd1, %rd2;
 ld.global.u32 %r3, [%rd3];
 add.u32 %r3, %r3, 1;
{body} st.global.u32 [%rd3], %r3;
 ret;
}}
"
    )
}

/// Values that are all read before the first is used, and come to nothing.
fn spilling() -> String {
    let read = (0..HELD).map(|at| format!(" ld.volatile.global.u32 %v{at}, [%rd3];\n"));
    // The factor comes of the last: no product can be made before all are there.
    let last = format!(" and.b32 %r8, %r8, %v{};\n", HELD - 1);
    let used = (0..HELD).map(|at| format!(" mad.lo.u32 %r3, %v{at}, %r8, %r3;\n"));
    read.chain([last]).chain(used).collect()
}
