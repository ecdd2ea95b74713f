//! The names and numbers of CUDA errors, and what they usually mean.

use super::lines::lines;
use heist_ptx::{Code, Diagnostic, Source, rule};

/// One error: how the runtime and the driver name it, its number, how it is
/// said in words, and what it means.
struct CudaError {
    runtime: &'static str,
    driver: &'static str,
    number: u32,
    words: &'static str,
    code: Code,
    meaning: &'static str,
    remedy: &'static str,
}

const ERRORS: &[CudaError] = &[
    CudaError {
        runtime: "cudaErrorInvalidConfiguration",
        // The driver says CUDA_ERROR_INVALID_VALUE here, which has an entry of its own.
        driver: "cudaErrorInvalidConfiguration",
        number: 9,
        words: "invalid configuration argument",
        code: rule::INVALID_VALUE,
        meaning: "the grid or the block of a launch is empty, or larger than the GPU takes: no work, and so no \
                  blocks; more than 1024 threads a block, or 64 along z; more than 65535 blocks along y or z",
        remedy: "print the grid and the block before the launch, and leave the launch out where there is no \
                 work; `heist check` with that launch says which limit it is",
    },
    CudaError {
        runtime: "cudaErrorInvalidDeviceFunction",
        driver: "cudaErrorInvalidDeviceFunction",
        number: 98,
        words: "invalid device function",
        code: rule::DEVICE_LACKS,
        meaning: "the binary holds no code of this kernel for this GPU, or what was launched is no kernel",
        remedy: "build for this GPU's architecture, or embed PTX of a plain target; launch the `__global__` \
                 function itself",
    },
    CudaError {
        runtime: "cudaErrorNoDevice",
        driver: "CUDA_ERROR_NO_DEVICE",
        number: 100,
        words: "no CUDA-capable device is detected",
        code: rule::NO_DEVICE,
        meaning: "the driver sees no GPU: there is none, it is hidden, or it is not given to this container",
        remedy: "see what `nvidia-smi` and CUDA_VISIBLE_DEVICES say; without a GPU use a simulated one, \
                 `--device sim:h200`",
    },
    CudaError {
        runtime: "cudaErrorInsufficientDriver",
        driver: "cudaErrorInsufficientDriver",
        number: 35,
        words: "CUDA driver version is insufficient for CUDA runtime version",
        code: rule::NO_DEVICE,
        meaning: "there is no driver, or one that is older than the program's CUDA runtime",
        remedy: "install a newer driver, or build with an older toolkit; in a container, start it with GPU \
                 support",
    },
    CudaError {
        runtime: "cudaErrorSymbolNotFound",
        driver: "CUDA_ERROR_NOT_FOUND",
        number: 500,
        words: "named symbol not found",
        code: rule::NO_SUCH_KERNEL,
        meaning: "the module has no kernel or variable of that name",
        remedy: "`grep .entry` in the PTX lists the kernels; names of C++ are mangled there",
    },
    CudaError {
        runtime: "cudaErrorHardwareStackError",
        driver: "CUDA_ERROR_HARDWARE_STACK_ERROR",
        number: 714,
        words: "hardware stack error",
        code: rule::LAUNCH_FAILURE,
        meaning: "a thread's stack of calls is full or damaged: a recursion without an end, or a store past a \
                  local array",
        remedy: "give the kernel's PTX and its launch to `heist check`, which follows calls and local memory",
    },
    CudaError {
        runtime: "cudaErrorInvalidPc",
        driver: "CUDA_ERROR_INVALID_PC",
        number: 718,
        words: "invalid program counter",
        code: rule::LAUNCH_FAILURE,
        meaning: "a thread jumped to where there is no code: a call through a pointer that is no function's",
        remedy: "give the kernel's PTX and its launch to `heist check`, which looks at every indirect call",
    },
    CudaError {
        runtime: "cudaErrorCooperativeLaunchTooLarge",
        driver: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        number: 720,
        words: "too many blocks in cooperative launch",
        code: rule::OUT_OF_RESOURCES,
        meaning: "the blocks of a cooperative grid must be on the GPU together, and these do not fit",
        remedy: "launch as many blocks as the occupancy calculator gives times the number of SMs, and \
                 loop over the work",
    },
    CudaError {
        runtime: "cudaErrorInvalidKernelImage",
        driver: "CUDA_ERROR_INVALID_IMAGE",
        number: 200,
        words: "device kernel image is invalid",
        code: rule::DEVICE_LACKS,
        meaning: "what was loaded is no code for this GPU, or it is damaged",
        remedy: "build for this GPU's architecture, and empty the compiler's cache",
    },
    CudaError {
        runtime: "cudaErrorIllegalAddress",
        driver: "CUDA_ERROR_ILLEGAL_ADDRESS",
        number: 700,
        words: "an illegal memory access was encountered",
        code: rule::ILLEGAL_ADDRESS,
        meaning: "a thread read or wrote an address that is in no allocation. The call that \
                  reports it is often not the launch that caused it",
        remedy: "give the kernel's PTX and its launch to `heist check`, or run it under \
                 `compute-sanitizer --tool memcheck`, and synchronise behind each launch while you look",
    },
    CudaError {
        runtime: "cudaErrorMisalignedAddress",
        driver: "CUDA_ERROR_MISALIGNED_ADDRESS",
        number: 716,
        words: "misaligned address",
        code: rule::MISALIGNED_ADDRESS,
        meaning: "an address was no multiple of the access's size: usually a vector access, a \
                  cp.async or a bulk copy on a padded row",
        remedy: "pad rows to a multiple of the widest access (16 bytes for cp.async.cg), and align \
                 shared arrays with `__align__(16)`",
    },
    CudaError {
        runtime: "cudaErrorLaunchFailure",
        driver: "CUDA_ERROR_LAUNCH_FAILED",
        number: 719,
        words: "unspecified launch failure",
        code: rule::LAUNCH_FAILURE,
        meaning: "the kernel died in a way that the GPU has no name for: an access in the wrong \
                  state space, a tensor-core load on local memory, a bad mbarrier, a fault in an \
                  asynchronous copy",
        remedy: "give the kernel's PTX and its launch to `heist check`: the simulated GPU names the \
                 instruction and the rule",
    },
    CudaError {
        runtime: "cudaErrorIllegalInstruction",
        driver: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        number: 715,
        words: "an illegal instruction was encountered",
        code: rule::ILLEGAL_INSTRUCTION,
        meaning: "an instruction was executed in a state that it does not allow: a bad matrix \
                  descriptor, a bad tensor map, code for another chip",
        remedy: "check descriptors and tensor maps; `heist check` with a launch names the instruction",
    },
    CudaError {
        runtime: "cudaErrorInvalidAddressSpace",
        driver: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        number: 717,
        words: "operation not supported on global/shared address space",
        code: rule::ADDRESS_SPACE,
        meaning: "an instruction was given an address in a memory that it does not work on",
        remedy: "look for a generic pointer that is converted to the wrong space; `heist check` \
                 follows pointers through the PTX",
    },
    CudaError {
        runtime: "cudaErrorLaunchOutOfResources",
        driver: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        number: 701,
        words: "too many resources requested for launch",
        code: rule::OUT_OF_RESOURCES,
        meaning: "the block asks for more registers than an SM has",
        remedy: "use fewer threads, or cap the registers with `__launch_bounds__` or `-maxrregcount`",
    },
    CudaError {
        runtime: "cudaErrorInvalidValue",
        driver: "CUDA_ERROR_INVALID_VALUE",
        number: 1,
        words: "invalid argument",
        code: rule::INVALID_VALUE,
        meaning: "at a launch, most often more than 48 KiB of dynamic shared memory without the \
                  opt-in, or a dimension over the limit",
        remedy: "opt in with cudaFuncAttributeMaxDynamicSharedMemorySize before the launch, and \
                 check the grid and block against the device's limits",
    },
    CudaError {
        runtime: "cudaErrorLaunchTimeout",
        driver: "CUDA_ERROR_LAUNCH_TIMEOUT",
        number: 702,
        words: "the launch timed out and was terminated",
        code: rule::LAUNCH_TIMEOUT,
        meaning: "the kernel did not end: a barrier that not all threads reach, or a wait for an \
                  mbarrier phase that never completes",
        remedy: "`heist check` with a launch tells who waits for what",
    },
    CudaError {
        runtime: "cudaErrorMemoryAllocation",
        driver: "CUDA_ERROR_OUT_OF_MEMORY",
        number: 2,
        words: "out of memory",
        code: rule::OUT_OF_MEMORY,
        meaning: "no device memory was left",
        remedy: "free what is not needed, or use smaller buffers",
    },
    CudaError {
        runtime: "cudaErrorAssert",
        driver: "CUDA_ERROR_ASSERT",
        number: 710,
        words: "device-side assert triggered",
        code: rule::DEVICE_ASSERT,
        meaning: "an assertion in the kernel failed",
        remedy: "the assertion's own message names the file, line, block and thread",
    },
    CudaError {
        runtime: "cudaErrorNoKernelImageForDevice",
        driver: "CUDA_ERROR_NO_BINARY_FOR_GPU",
        number: 209,
        words: "no kernel image is available for execution on the device",
        code: rule::DEVICE_LACKS,
        meaning: "the binary holds no code that this GPU can run; code for an `a` target, such as \
                  sm_90a, runs on that chip alone",
        remedy: "build for this GPU's architecture, or embed PTX of a plain target",
    },
    CudaError {
        runtime: "cudaErrorInvalidClusterSize",
        driver: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        number: 912,
        words: "a launch with a cluster that the GPU can't place",
        code: rule::CLUSTER_LAUNCH,
        meaning: "the blocks of a cluster must be resident together, and these are too many or too \
                  large for that",
        remedy: "use a smaller cluster or less shared memory a block, opt in to clusters of more \
                 than 8, and keep the grid a multiple of the cluster",
    },
    CudaError {
        runtime: "cudaErrorUnsupportedPtxVersion",
        driver: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        number: 222,
        words: "the provided PTX was compiled with an unsupported toolchain",
        code: rule::DRIVER_TOO_OLD,
        meaning: "the PTX is newer than the driver",
        remedy: "install a newer driver, or compile with an older toolkit",
    },
    CudaError {
        runtime: "cudaErrorInvalidPtx",
        driver: "CUDA_ERROR_INVALID_PTX",
        number: 218,
        words: "a PTX JIT compilation failed",
        code: rule::JIT,
        meaning: "the driver's assembler rejected the PTX",
        remedy: "`heist check` on the PTX says where and why",
    },
];

/// What a library says when it gives up, by all the words that tell it.
struct Saying {
    words: &'static [&'static str],
    name: &'static str,
    code: Code,
    meaning: &'static str,
    remedy: &'static str,
}

const SAYINGS: &[Saying] = &[
    Saying {
        words: &["out of resource: shared memory"],
        name: "Triton's OutOfResources",
        code: rule::OUT_OF_RESOURCES,
        meaning: "the kernel at this configuration wants more shared memory than a block can have; \
                  nothing was launched",
        remedy: "fewer stages (`num_stages`) or smaller blocks: each stage keeps a tile of every operand \
                 of `tl.dot`. Prune such configurations before the autotuner tries them",
    },
    Saying {
        words: &["out of resource: "],
        name: "Triton's OutOfResources",
        code: rule::OUT_OF_RESOURCES,
        meaning: "the kernel at this configuration wants more registers, threads or tensor memory than \
                  a block can have; nothing was launched",
        remedy: "smaller blocks, or another `num_warps`; prune such configurations before the autotuner \
                 tries them",
    },
    Saying {
        words: &["cutlass", "Error Internal"],
        name: "CUTLASS's Error Internal",
        code: rule::API_ERROR,
        meaning: "a CUDA call inside the kernel's `initialize` or `run` failed, and CUTLASS does not say \
                  which: mostly the opt-in to more shared memory than the GPU has, a launch for another \
                  architecture, or an error that an earlier kernel left behind",
        remedy: "call `cudaGetLastError()` before and after, and print it: that is the error. Then compare \
                 `sizeof(SharedStorage)` with the GPU's limit, and the arch tag with the GPU",
    },
    Saying {
        words: &["cutlass", "Error Misaligned Operand"],
        name: "CUTLASS's Error Misaligned Operand",
        code: rule::MISALIGNED_ADDRESS,
        meaning: "a pointer or a leading dimension is no multiple of the alignment that the kernel was \
                  instantiated with; nothing was launched",
        remedy: "pad the leading dimensions, or take an instance with a smaller alignment (8, 4, 1 elements)",
    },
];

/// The saying that a line has, whose words may be of any case.
fn said(line: &str) -> Option<&'static Saying> {
    let lower = line.to_ascii_lowercase();
    let has = |words: &&str| lower.contains(&words.to_ascii_lowercase());
    SAYINGS.iter().find(|saying| saying.words.iter().all(has))
}

/// The errors that a line names, by name or in words.
fn named(line: &str) -> impl Iterator<Item = &'static CudaError> {
    ERRORS.iter().filter(move |error| {
        line.contains(error.runtime)
            || line.contains(error.driver)
            || (line.contains(error.words) && speaks_of_cuda(line))
            || line
                .split(|c: char| !c.is_ascii_alphanumeric())
                .collect::<Vec<_>>()
                .windows(2)
                .any(|pair| {
                    pair[0].eq_ignore_ascii_case("error")
                        && pair[1].parse() == Ok(error.number)
                        && line.to_ascii_lowercase().contains("cuda")
                        && !line.to_ascii_lowercase().contains("http")
                })
    })
}

fn speaks_of_cuda(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.contains("cuda") || lower.contains("gpu") || lower.contains("error")
}

/// Whether a text names an error, and which comes first.
pub(super) fn first_error(text: &str) -> Option<&'static str> {
    text.lines().find_map(|line| {
        let error = named(line).next().map(|error| error.runtime);
        error.or_else(|| said(line).map(|saying| saying.name))
    })
}

/// One finding for each error that a text names, and for each thing that a library says.
pub(super) fn read(source: &Source) -> Vec<Diagnostic> {
    let mut seen: Vec<(&'static str, Diagnostic, usize)> = Vec::new();
    let mut add = |name, code, span, message: String, meaning: &str, remedy: &str| match seen
        .iter_mut()
        .find(|(known, ..)| *known == name)
    {
        Some(known) => known.2 += 1,
        None => {
            let told = Diagnostic::error(code, span, message);
            seen.push((name, told.note(meaning).help(remedy), 1));
        }
    };
    for (span, line) in lines(source) {
        for error in named(line) {
            let message = format!("{} ({}): {}", error.runtime, error.number, error.words);
            let (meaning, remedy) = (error.meaning, error.remedy);
            add(error.runtime, error.code, span, message, meaning, remedy);
        }
        if let Some(saying) = said(line) {
            let message = format!("{}: {}", saying.name, line.trim());
            let (meaning, remedy) = (saying.meaning, saying.remedy);
            add(saying.meaning, saying.code, span, message, meaning, remedy);
        }
    }
    seen.into_iter()
        .map(|(_, diagnostic, count)| match count {
            1 => diagnostic,
            _ => diagnostic.note(format!("reported {count} times")),
        })
        .collect()
}
