//! Logs that people have, read into few findings.

use heist_check::log::{TextKind, read, recognise};
use heist_ptx::{Severity, Source};
use std::fs;

/// The shape of a real report: thousands of threads, one cause.
#[test]
fn thousands_of_invalid_local_reads_are_one_finding() {
    let mut log = String::from("========= COMPUTE-SANITIZER\n");
    for error in 0..3389 {
        log.push_str(&format!(
            "========= Invalid __local__ read of size 4 bytes\n\
             =========     at nvcuda::wmma::load_matrix_sync(...) in mma.hpp:91\n\
             =========     by thread ({},0,0) in block ({},0,0)\n\
             =========     Address 0xfffdc8 is out of bounds\n=========\n",
            error % 128,
            error / 128
        ));
    }
    log.push_str("========= ERROR SUMMARY: 3389 errors\n");
    assert_eq!(recognise(&log), Some(TextKind::Sanitizer));
    let found = read(TextKind::Sanitizer, &Source::new("sanitizer.log", log)).findings;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code.0, "T001");
    assert!(
        found[0]
            .notes
            .iter()
            .any(|note| note.contains("3389 reports"))
    );
    assert!(found[0].helps[0].contains("shared memory"));
}

#[test]
fn a_build_log_gives_the_table_and_the_warning_that_matters() {
    let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4attnPf' for 'sm_89'
ptxas info    : Function properties for _Z4attnPf
    1344 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 127 registers, used 1 barriers, 24576 bytes smem, 404 bytes cmem[0]
/usr/local/cuda/include/crt/mma.hpp(91): Warning: cannot perform wmma load or store on local memory
/usr/local/cuda/include/crt/mma.hpp(91): Warning: cannot perform wmma load or store on local memory
";
    assert_eq!(recognise(log), Some(TextKind::Assembler));
    let reading = read(TextKind::Assembler, &Source::new("build.log", log));
    let usage = &reading.usage[0];
    assert_eq!(usage.kernel, "_Z4attnPf");
    assert_eq!(usage.arch, "sm_89");
    assert_eq!(
        (usage.registers, usage.shared, usage.stack),
        (127, 24576, 1344)
    );
    assert_eq!((usage.spill_stores, usage.spill_loads), (24, 48));
    let codes: Vec<&str> = reading
        .findings
        .iter()
        .map(|finding| finding.code.0)
        .collect();
    assert_eq!(codes, ["T001", "G020"]);
    assert!(
        reading.findings[0]
            .notes
            .iter()
            .any(|note| note == "reported 2 times")
    );
}

#[test]
fn errors_of_the_assembler_are_told_with_their_line() {
    let log = "ptxas k.ptx, line 28; error   : Unknown modifier '.u33'\nptxas fatal   : Ptx assembly aborted due to errors\n";
    let found = read(TextKind::Assembler, &Source::new("ptxas.log", log)).findings;
    assert_eq!(found[0].code.0, "G022");
    assert_eq!(found[0].message, "Unknown modifier '.u33'");
}

#[test]
fn a_cuda_error_is_explained_in_whatever_form_it_comes() {
    for (log, code) in [
        (
            "RuntimeError: CUDA error: unspecified launch failure",
            "G006",
        ),
        ("cudaErrorIllegalAddress", "G004"),
        ("CUDA driver error 716", "G005"),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "G004",
        ),
        ("CUDA error: invalid configuration argument", "G014"),
        ("CUDA error 9 at main.cu:12", "G014"),
        (
            "parallel_for failed: cudaErrorInvalidDeviceFunction: invalid device function",
            "G002",
        ),
        ("no CUDA-capable device is detected", "G001"),
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "G001",
        ),
        ("CUDA error: named symbol not found", "X014"),
        ("CUDA_ERROR_HARDWARE_STACK_ERROR", "G006"),
        ("CUDA error: invalid program counter", "G006"),
    ] {
        assert_eq!(recognise(log), Some(TextKind::CudaError), "{log}");
        let found = read(TextKind::CudaError, &Source::new("log", log)).findings;
        assert_eq!(found[0].code.0, code, "{log}");
        assert!(!found[0].helps.is_empty());
    }
}

/// What compute-sanitizer said of our broken kernels on an H200.
#[test]
fn logs_of_a_gpu_are_read_into_few_findings_that_name_the_rule() {
    let folder = heist_oracle::workspace_root().join("bench/sanitizer/logs");
    let mut logs = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).expect("the logs are in the repository") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_none_or(|ext| ext != "log") {
            continue;
        }
        logs += 1;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).expect("a log can be read");
        if recognise(&text) != Some(TextKind::Sanitizer) {
            wrong.push(format!("{name}: not recognised"));
            continue;
        }
        let reports = text.matches("     at ").count();
        let found = read(TextKind::Sanitizer, &Source::new(&*name, text)).findings;
        // The report, and the API error that it led to.
        if found.is_empty() || found.len() > 2 || found.len() > reports.max(1) + 1 {
            wrong.push(format!("{name}: {} findings", found.len()));
            continue;
        }
        let tool = name.rsplit('.').next().unwrap_or_default();
        let codes: &[&str] = match tool {
            "racecheck" => &["G031"],
            "synccheck" => &["G032"],
            "initcheck" => &["G033"],
            _ => &["G030", "M003", "G005", "G008", "G034"],
        };
        if !codes.contains(&found[0].code.0) {
            wrong.push(format!("{name}: {}", found[0]));
        }
        let rule = &name[..4];
        let kin = match rule {
            "M018" => "M006",
            "M019" => "M002",
            other => other,
        };
        let says = |code: &str| found[0].notes.iter().any(|note| note.starts_with(code));
        let told = [
            "M001", "M002", "M006", "M007", "M016", "A010", "A012", "A017", "B001",
        ];
        if told.contains(&kin) && tool != "racecheck" {
            let known = says(kin) || found[0].message.starts_with("Unknown Error");
            if !known {
                wrong.push(format!("{name}: does not name {kin}: {:?}", found[0].notes));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(logs >= 40, "only {logs} logs");
}

/// racecheck is sure of some hazards and not of others, and so are we.
#[test]
fn a_warning_of_racecheck_stays_one() {
    let log = "\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at stage+0x110
=========     and Read access at stage+0x130 [128 hazards]
=========
========= Error: Race reported between Write access at swap+0x90
=========     and Read access at swap+0xb0 [256 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
";
    let found = read(TextKind::Sanitizer, &Source::new("race.log", log)).findings;
    let at = |place: &str| {
        let mut found = found.iter().filter(|one| one.message.contains(place));
        found.next().expect("a finding for each")
    };
    assert_eq!(at("stage+0x110").severity, Severity::Warning);
    assert_eq!(at("swap+0x90").severity, Severity::Error);
    assert!(at("swap+0x90").notes[0].contains("Read access at swap+0xb0"));
}

/// Older ones name the hazard, each at its line.
#[test]
fn every_hazard_of_racecheck_is_one() {
    for hazard in ["RAW", "WAR", "WAW"] {
        let line = format!("========= Error: Potential {hazard} hazard detected at __shared__ 0x0");
        let log = format!("========= COMPUTE-SANITIZER\n{line}\n");
        let source = Source::new("race.log", log);
        let found = read(TextKind::Sanitizer, &source).findings;
        let codes: Vec<&str> = found.iter().map(|one| one.code.0).collect();
        assert_eq!(codes, ["G031"], "{hazard}");
        assert_eq!(source.position(found[0].span).line, 2, "{hazard}");
    }
}

fn codes_of(log: &str) -> Vec<&'static str> {
    let kind = recognise(log).unwrap_or_else(|| panic!("not recognised: {log}"));
    let found = read(kind, &Source::new("log", log)).findings;
    found.iter().map(|one| one.code.0).collect()
}

#[test]
fn all_errors_of_one_log_are_explained() {
    let log = "\
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    64 bytes stack frame, 32 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered
[rank1]: RuntimeError: CUDA error: misaligned address
CUDA_ERROR_LAUNCH_FAILED after cudaErrorAssert
";
    assert_eq!(codes_of(log), ["G004", "G005", "G006", "G013", "G020"]);
    let jit = "\
ptxas application ptx input, line 3; error   : Unknown modifier '.u33'
cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX
";
    assert_eq!(
        codes_of(jit),
        ["G022"],
        "the driver's error is the assembler's"
    );
}

#[test]
fn a_line_is_recognised_without_its_neighbours() {
    for (line, code) in [
        ("Invalid __global__ read of size 4 bytes", "G030"),
        (
            "Error: Race reported between Write access at k+0x90",
            "G031",
        ),
        (
            "    0 bytes stack frame, 12 bytes spill stores, 12 bytes spill loads",
            "G020",
        ),
        (
            "ptxas k.ptx, line 28; error   : Unknown modifier '.u33'",
            "G022",
        ),
        (
            "too many blocks in cooperative launch (CUDA error 720)",
            "G007",
        ),
    ] {
        assert_eq!(codes_of(line), [code], "{line}");
    }
    for line in [
        "Unknown Error",
        "error: expected a `;`",
        "this is out of the question",
        "HTTP Error 500: https://developer.download.nvidia.com/compute/cuda/repos",
    ] {
        assert_eq!(recognise(line), None, "{line}");
    }
}

#[test]
fn libraries_that_give_up_are_explained() {
    for (line, code) in [
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 294912, \
             Hardware limit: 232448. Reducing block sizes or `num_stages` may help.",
            "G007",
        ),
        ("Got cutlass error: Error Internal at: 417", "G017"),
        ("cutlass::Status: Error Misaligned Operand", "G005"),
        (
            "kernel.cu(12): error: namespace \"cooperative_groups\" has no member \"this_cluster\"",
            "G022",
        ),
        (
            "ptxas fatal   : Unresolved extern function 'cudaCGGetIntrinsicHandle'",
            "G022",
        ),
    ] {
        assert_eq!(codes_of(line), [code], "{line}");
    }
}

/// What nvcc says when it gives up, and its linker of device code.
#[test]
fn builds_that_fail_outside_of_ptxas_are_explained() {
    for (line, code, says) in [
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "G024",
            "--list-gpu-arch",
        ),
        (
            "nvcc fatal   : Unknown option '-march=native'",
            "G024",
            "-Xcompiler",
        ),
        (
            "nvcc fatal   : Cannot find compiler 'cl.exe' in PATH",
            "G024",
            "-ccbin",
        ),
        (
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
            "G024",
            "at once",
        ),
        (
            "nvcc fatal   : A single input file is required for a non-link phase",
            "G024",
            "--dryrun",
        ),
        (
            "nvlink error   : Undefined reference to '_Z5scalef' in 'main.o' (target: sm_90)",
            "X024",
            "-rdc=true",
        ),
        (
            "nvlink error   : Multiple definition of '_Z5scalef' in 'b.o', first defined in 'a.o'",
            "G025",
            "inline",
        ),
        (
            "nvlink fatal   : Could not open input file 'a.o'",
            "G025",
            "toolkit",
        ),
        (
            "nvlink warning : SM Arch ('sm_90') not found in 'a.o'",
            "G023",
            "-arch",
        ),
    ] {
        assert_eq!(recognise(line), Some(TextKind::Assembler), "{line}");
        let found = read(TextKind::Assembler, &Source::new("log", line)).findings;
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].code.0, code, "{line}");
        assert!(line.ends_with(&found[0].message), "{line}");
        assert!(found[0].helps[0].contains(says), "{:?}", found[0].helps);
    }
    // Two objects with one mistake, and one with another.
    let log = "\
nvlink error   : Undefined reference to 'f' in 'a.o'
nvlink error   : Undefined reference to 'f' in 'a.o'
nvlink error   : Undefined reference to 'g' in 'a.o'
";
    assert_eq!(codes_of(log), ["X024", "X024"]);
    for line in ["mynvcc fatal : no", "nvcc info : 3", "nvcc fatal error"] {
        assert_eq!(recognise(line), None, "{line}");
    }
}

/// The driver's lines in the kernel's log.
#[test]
fn xid_lines_say_what_a_program_or_a_gpu_did() {
    for (words, code, says) in [
        (
            "13, pid=71, name=train, Graphics SM Warp Exception on (GPC 2, TPC 3, SM 0): Out Of Range Address",
            "G006",
            "heist check",
        ),
        (
            "13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 1): Misaligned Address",
            "G005",
            "heist check",
        ),
        (
            "31, pid=71, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f00_00000000",
            "G004",
            "memcheck",
        ),
        ("43, pid=71, name=python, Ch 00000008", "G018", "before it"),
        (
            "45, pid='<unknown>', name=<unknown>, Ch 00000008",
            "G018",
            "before it",
        ),
        ("48, pid=71, DBE (double bit error)", "G019", "reset"),
        ("74, pid='<unknown>', NVLink: fatal error", "G019", "nvlink"),
        (
            "79, pid='<unknown>', GPU has fallen off the bus.",
            "G019",
            "power",
        ),
        ("94, pid=71, Contained: SM (0x1)", "G019", "checkpoint"),
        ("95, pid='<unknown>', Uncontained: FBHUB", "G019", "throw"),
        ("999, something new", "G018", "catalogue"),
    ] {
        let line = format!("[ 81.2] NVRM: Xid (PCI:0000:65:00): {words}");
        assert_eq!(recognise(&line), Some(TextKind::KernelLog), "{line}");
        let found = read(TextKind::KernelLog, &Source::new("dmesg", line.clone())).findings;
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].code.0, code, "{line}");
        assert!(found[0].helps[0].contains(says), "{:?}", found[0].helps);
        assert!(found[0].message.contains("PCI:0000:65:00"), "{}", found[0]);
    }
    // One finding for each GPU and number; the cause stands first.
    let log = "\
NVRM: Xid (PCI:0000:65:00): 31, pid=71, name=a
NVRM: Xid (PCI:0000:65:00): 31, pid=71, name=a
NVRM: Xid (PCI:0000:b1:00): 31, pid=72, name=b
NVRM: Xid (PCI:0000:65:00): 43, pid=71, name=a
";
    assert_eq!(codes_of(log), ["G004", "G004", "G018"]);
    assert_eq!(recognise("NVRM: Xid (PCI:0000:65:00): none"), None);
    assert_eq!(recognise("NVRM: loading NVIDIA UNIX Kernel Module"), None);
}
