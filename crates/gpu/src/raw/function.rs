//! Modules, the functions in them, and their launches.

use super::sys::{self, CUlaunchAttributeValue, jit, of_launch};
use super::{CUfunction, CUmodule, CUstream, check};
use crate::raw::sys::code;
use crate::status::Status;
use heist_launch::Launch;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

/// What the assembler in the driver said.
#[derive(Default)]
pub(crate) struct JitLogs {
    pub(crate) info: String,
    pub(crate) error: String,
}

/// What to ask the assembler in the driver for.
pub(crate) struct JitRequest {
    pub(crate) max_registers: Option<u32>,
    pub(crate) optimization: Option<u32>,
    pub(crate) line_info: bool,
}

/// Assembles PTX; the logs come back either way.
pub(crate) fn module_load(
    image: &CStr,
    request: &JitRequest,
) -> (Result<CUmodule, Status>, JitLogs) {
    const LOG: usize = 64 << 10;
    let mut info = vec![0u8; LOG];
    let mut error = vec![0u8; LOG];
    // Numbers travel in the pointer's own bits.
    let number = |value: usize| ptr::without_provenance_mut::<c_void>(value);
    let mut options = vec![
        jit::INFO_LOG_BUFFER,
        jit::INFO_LOG_BUFFER_SIZE_BYTES,
        jit::ERROR_LOG_BUFFER,
        jit::ERROR_LOG_BUFFER_SIZE_BYTES,
        jit::LOG_VERBOSE,
    ];
    let mut values = vec![
        info.as_mut_ptr().cast::<c_void>(),
        number(LOG),
        error.as_mut_ptr().cast::<c_void>(),
        number(LOG),
        number(1),
    ];
    if request.line_info {
        options.push(jit::GENERATE_LINE_INFO);
        values.push(number(1));
    }
    if let Some(registers) = request.max_registers {
        options.push(jit::MAX_REGISTERS);
        values.push(number(registers as usize));
    }
    if let Some(level) = request.optimization {
        options.push(jit::OPTIMIZATION_LEVEL);
        values.push(number(level as usize));
    }
    let mut module = ptr::null_mut();
    // The driver writes the lengths that it used back into `values`; the buffers
    // were zeroed, so the terminator is found without them.
    let result = call!(cuModuleLoadDataEx(
        &mut module,
        image.as_ptr().cast(),
        options.len() as c_uint,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
    };
    let logs = JitLogs {
        info: text(&info),
        error: text(&error),
    };
    (result.map(|()| module), logs)
}

pub(crate) fn module_unload(module: CUmodule) -> Result<(), Status> {
    call!(cuModuleUnload(module))
}

pub(crate) fn module_function(module: CUmodule, name: &CStr) -> Result<CUfunction, Status> {
    let mut function = ptr::null_mut();
    call!(cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
    Ok(function)
}

pub(crate) fn function_attribute(function: CUfunction, attribute: c_uint) -> Result<u32, Status> {
    let mut value: c_int = 0;
    call!(cuFuncGetAttribute(&mut value, attribute, function))?;
    Ok(value.max(0) as u32)
}

pub(crate) fn function_set_attribute(
    function: CUfunction,
    attribute: c_uint,
    value: u32,
) -> Result<(), Status> {
    let value = c_int::try_from(value).unwrap_or(c_int::MAX);
    call!(cuFuncSetAttribute(function, attribute, value))
}

/// The sizes in bytes of a function's parameters. Where their number is not known,
/// they are asked for until the driver refuses, which a sanitizer reports.
pub(crate) fn function_parameters(
    function: CUfunction,
    count: Option<usize>,
) -> Result<Vec<usize>, Status> {
    let mut sizes = Vec::new();
    while count.is_none_or(|count| sizes.len() < count) {
        let (mut offset, mut size) = (0usize, 0usize);
        match call!(cuFuncGetParamInfo(
            function,
            sizes.len(),
            &mut offset,
            &mut size
        )) {
            Ok(()) => sizes.push(size),
            // The end of the list is an index that is out of range.
            Err(status) if status.is(code::INVALID_VALUE) => {
                break;
            }
            Err(status) => return Err(status),
        }
    }
    Ok(sizes)
}

/// Blocks of this size that fit one SM at a time.
pub(crate) fn blocks_per_sm(
    function: CUfunction,
    threads: u32,
    dynamic_shared: u32,
) -> Result<u32, Status> {
    let mut blocks: c_int = 0;
    let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
    call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &mut blocks,
        function,
        threads,
        dynamic_shared as usize
    ))?;
    Ok(blocks.max(0) as u32)
}

/// What a launch may ask for besides its shape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) cooperative: bool,
    pub(crate) programmatic: bool,
    pub(crate) priority: Option<i32>,
}

fn with_config<R>(
    launch: &Launch,
    attributes: Attributes,
    stream: CUstream,
    body: impl FnOnce(&sys::CUlaunchConfig) -> R,
) -> R {
    let blank = sys::CUlaunchAttribute {
        id: of_launch::IGNORE,
        pad: [0; 4],
        value: CUlaunchAttributeValue::new([]),
    };
    // On the stack: a launch allocates nothing.
    let mut list = [blank; 4];
    let mut count = 0;
    let mut add = |id, value| {
        list[count].id = id;
        list[count].value = value;
        count += 1;
    };
    if let Some(cluster) = launch.cluster {
        let size = cluster.to_array().map(|blocks| blocks as i32);
        add(
            of_launch::CLUSTER_DIMENSION,
            CUlaunchAttributeValue::new(size),
        );
    }
    if attributes.cooperative {
        add(of_launch::COOPERATIVE, CUlaunchAttributeValue::new([1]));
    }
    if attributes.programmatic {
        add(
            of_launch::PROGRAMMATIC_STREAM_SERIALIZATION,
            CUlaunchAttributeValue::new([1]),
        );
    }
    if let Some(priority) = attributes.priority {
        add(of_launch::PRIORITY, CUlaunchAttributeValue::new([priority]));
    }
    let config = sys::CUlaunchConfig {
        gridDimX: launch.grid.x,
        gridDimY: launch.grid.y,
        gridDimZ: launch.grid.z,
        blockDimX: launch.block.x,
        blockDimY: launch.block.y,
        blockDimZ: launch.block.z,
        sharedMemBytes: launch.dynamic_shared,
        hStream: stream,
        attrs: if count == 0 {
            ptr::null_mut()
        } else {
            list.as_mut_ptr()
        },
        numAttrs: count as c_uint,
    };
    body(&config)
}

/// Clusters that fit the device at a time.
pub(crate) fn active_clusters(function: CUfunction, launch: &Launch) -> Result<u32, Status> {
    let mut clusters: c_int = 0;
    with_config(launch, Attributes::default(), ptr::null_mut(), |config| {
        call!(cuOccupancyMaxActiveClusters(
            &mut clusters,
            function,
            config
        ))
    })?;
    Ok(clusters.max(0) as u32)
}

/// Launches a function. `parameters` holds the bytes of each parameter; their
/// number and sizes must be those of [`function_parameters`], since the driver
/// copies as many bytes as the function takes from each.
pub(crate) fn launch(
    function: CUfunction,
    launch: &Launch,
    attributes: Attributes,
    parameters: &mut [Vec<u8>],
    stream: CUstream,
) -> Result<(), Status> {
    let mut pointers: Vec<*mut c_void> = parameters
        .iter_mut()
        .map(|bytes| bytes.as_mut_ptr().cast())
        .collect();
    with_config(launch, attributes, stream, |config| {
        call!(cuLaunchKernelEx(
            config,
            function,
            pointers.as_mut_ptr(),
            ptr::null_mut()
        ))
    })
}

/// The most parameters that [`launch_packed`] passes.
pub(crate) const MOST_PARAMETERS: usize = 96;

/// Pointers to parameters in one piece, each at its offset. The driver only reads through them.
pub(crate) fn parameter_list(
    parameters: &[u8],
    offsets: &[usize],
) -> [*mut c_void; MOST_PARAMETERS] {
    let mut pointers = [ptr::null_mut::<c_void>(); MOST_PARAMETERS];
    for (pointer, offset) in pointers.iter_mut().zip(offsets) {
        *pointer = parameters[*offset..].as_ptr().cast_mut().cast();
    }
    pointers
}

/// The same with the bytes of all parameters in one piece, each beginning at its
/// offset; nothing is allocated. There are at most [`MOST_PARAMETERS`] offsets,
/// and the bytes reach to the end of the last parameter.
pub(crate) fn launch_packed(
    function: CUfunction,
    launch: &Launch,
    attributes: Attributes,
    parameters: &[u8],
    offsets: &[usize],
    stream: CUstream,
) -> Result<(), Status> {
    let mut pointers = parameter_list(parameters, offsets);
    with_config(launch, attributes, stream, |config| {
        call!(cuLaunchKernelEx(
            config,
            function,
            pointers.as_mut_ptr(),
            ptr::null_mut()
        ))
    })
}
