//! The kernel log's `NVRM: Xid` lines: what the driver writes when something is wrong with a GPU, or
//! with what a program does on it.

use super::lines::lines;
use heist_ptx::{Code, Diagnostic, Source, rule};

/// An event of the driver's, by its number.
struct Event {
    number: u32,
    name: &'static str,
    code: Code,
    meaning: &'static str,
    remedy: &'static str,
}

const EVENTS: &[Event] = &[
    Event {
        number: 13,
        name: "graphics engine exception",
        code: rule::LAUNCH_FAILURE,
        meaning: "a kernel did something that its multiprocessor refuses; the program sees it as \
                  `unspecified launch failure`, or as the illegal address or instruction that it was",
        remedy: "give the kernel's PTX and its launch to `heist check`, or run it under \
                 `compute-sanitizer`. If right programs cause it, on one GPU alone, suspect the GPU",
    },
    Event {
        number: 31,
        name: "GPU memory page fault",
        code: rule::ILLEGAL_ADDRESS,
        meaning: "a kernel or a copy touched an address that is not mapped; the program sees `an \
                  illegal memory access was encountered`",
        remedy: "give the kernel's PTX and its launch to `heist check`, or run it under \
                 `compute-sanitizer --tool memcheck`; synchronise behind each launch while you look",
    },
    Event {
        number: 43,
        name: "GPU stopped processing",
        code: rule::PROGRAM_STOPPED,
        meaning: "the program did something wrong on the GPU, and the driver ended its work there; the GPU is \
                  well, and other programs go on",
        remedy: "look for the cause in the Xid before it and in the program's own CUDA error; only a \
                 new process can use the GPU again",
    },
    Event {
        number: 45,
        name: "preemptive cleanup, due to previous errors",
        code: rule::PROGRAM_STOPPED,
        meaning: "the driver took the program's work off the GPU: after another error, or since the \
                  program ended or was killed while kernels ran",
        remedy: "look for another Xid before it; if there is none, and somebody ended the program, \
                 nothing is wrong",
    },
    Event {
        number: 48,
        name: "double-bit ECC error",
        code: rule::GPU_FAULT,
        meaning: "memory of the GPU lost bits that can't be corrected; what used that memory is wrong \
                  or was stopped",
        remedy: "end the programs on this GPU and reset it (`nvidia-smi --gpu-reset`) or start the \
                 machine again; `nvidia-smi -q -d ECC,ROW_REMAPPER` shows the counts. If it comes \
                 again, have the GPU replaced",
    },
    Event {
        number: 74,
        name: "NVLink error",
        code: rule::GPU_FAULT,
        meaning: "a link between this GPU and another one, or a switch, failed; programs that use \
                  several GPUs are hit",
        remedy: "`nvidia-smi nvlink --status` and `--errorcounters` show which link; reset the GPUs at \
                 both ends. If it comes again, have the seating and the link looked at",
    },
    Event {
        number: 79,
        name: "GPU has fallen off the bus",
        code: rule::GPU_FAULT,
        meaning: "the driver can't reach the GPU over PCI Express any more; every program on it fails \
                  until it is back",
        remedy: "start the machine again; then look at power, temperature, seating and the PCI errors \
                 in the kernel's log. No program can cause it by a wrong address",
    },
    Event {
        number: 94,
        name: "contained ECC error",
        code: rule::GPU_FAULT,
        meaning: "memory of the GPU lost bits, and only the program that used them is ended; others go \
                  on",
        remedy: "start the ended program again from its last checkpoint, and reset the GPU when it is \
                 free, so that the bad memory is put out of use",
    },
    Event {
        number: 95,
        name: "uncontained ECC error",
        code: rule::GPU_FAULT,
        meaning: "memory of the GPU lost bits, and the damage could not be kept to one program: none \
                  that ran there can be trusted",
        remedy: "throw the results away, end all programs on this GPU, reset it or start the machine \
                 again before it is used; if it comes again, have the GPU replaced",
    },
];

/// What the words of an exception of a multiprocessor (Xid 13) say more exactly.
const EXCEPTIONS: &[(&str, Code)] = &[
    ("Misaligned Address", rule::MISALIGNED_ADDRESS),
    ("Illegal Instruction", rule::ILLEGAL_INSTRUCTION),
];

/// One line: the GPU, the event's number, and what follows.
fn event(line: &str) -> Option<(&str, u32, &str)> {
    let (_, rest) = line.split_once("NVRM: Xid (")?;
    let (gpu, rest) = rest.split_once("): ")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, words) = rest.split_at(digits);
    let words = words.trim_start_matches([',', ' ']);
    Some((gpu, number.parse().ok()?, words))
}

/// Whether a text has such lines.
pub(super) fn has_events(text: &str) -> bool {
    text.lines().any(|line| event(line).is_some())
}

/// One finding for each number and GPU.
pub(super) fn read(source: &Source) -> Vec<Diagnostic> {
    let mut seen: Vec<(Diagnostic, usize)> = Vec::new();
    for (span, line) in lines(source) {
        let Some((gpu, number, words)) = event(line) else {
            continue;
        };
        let known = EVENTS.iter().find(|event| event.number == number);
        let mut code = known.map_or(rule::PROGRAM_STOPPED, |event| event.code);
        if number == 13 {
            let exact = EXCEPTIONS.iter().find(|(part, _)| words.contains(part));
            code = exact.map_or(code, |(_, code)| *code);
        }
        let name = known.map_or("an event that is not described here", |event| event.name);
        let message = format!("Xid {number} of GPU {gpu}: {name}");
        let same = |one: &&mut (Diagnostic, usize)| one.0.message == message && one.0.code == code;
        if let Some(again) = seen.iter_mut().find(same) {
            again.1 += 1;
            continue;
        }
        let told = Diagnostic::error(code, span, message);
        seen.push((
            match known {
                Some(event) => told.note(event.meaning).help(event.remedy),
                None => told
                    .note("the driver writes an Xid where a GPU, or a program's work on it, has failed")
                    .help("look the number up in NVIDIA's catalogue of Xid errors"),
            },
            1,
        ));
    }
    seen.into_iter()
        .map(|(diagnostic, count)| match count {
            1 => diagnostic,
            _ => diagnostic.note(format!("reported {count} times")),
        })
        .collect()
}
