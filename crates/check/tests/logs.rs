//! Logs that people have, read into few findings.

use heist_check::log::{Kind, read, recognise};
use heist_ptx::Source;

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
    assert_eq!(recognise(&log), Some(Kind::Sanitizer));
    let found = read(Kind::Sanitizer, &Source::new("sanitizer.log", log)).findings;
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
    assert_eq!(recognise(log), Some(Kind::Assembler));
    let reading = read(Kind::Assembler, &Source::new("build.log", log));
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
    let found = read(Kind::Assembler, &Source::new("ptxas.log", log)).findings;
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
    ] {
        assert_eq!(recognise(log), Some(Kind::CudaError), "{log}");
        let found = read(Kind::CudaError, &Source::new("log", log)).findings;
        assert_eq!(found[0].code.0, code, "{log}");
        assert!(!found[0].helps.is_empty());
    }
}
