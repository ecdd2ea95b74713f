//! Whether a program has loaded the real driver past this library: what it launches there is not seen.

use crate::report::ReportFile;

/// Run when the program ends, also one without device code of its own.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = tell;

extern "C" fn tell() {
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if is_loaded(&mapped) {
        ReportFile::new().remark(
            "the program has loaded the real driver's library, libcuda.so, by its own path: what it launches \
             there is neither run here nor checked",
        );
    }
}

/// Whether the driver's library is among the mapped files.
fn is_loaded(mapped: &str) -> bool {
    let files = mapped.lines().filter_map(|line| line.rsplit('/').next());
    files.into_iter().any(|file| file.starts_with("libcuda.so"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_driver_is_seen_and_the_runtime_is_not_taken_for_it() {
        let line = |file: &str| format!("7f00-7f10 r-xp 00000000 08:01 42 /usr/lib/{file}\n");
        assert!(super::is_loaded(
            &(line("libc.so.6") + &line("libcuda.so.580.95.05"))
        ));
        assert!(!super::is_loaded(
            &(line("libcudart.so.13") + &line("libheist_cudart.so"))
        ));
        assert!(!super::is_loaded(
            "7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n"
        ));
    }
}
