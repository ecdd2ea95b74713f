//! Kernels: what they need, and launching them.

use crate::cache::OptIn;
use crate::context::Gpu;
use crate::error::GpuError;
use crate::fault::LaunchRecord;
use crate::memory::{Array, DeviceMemory};
use crate::program::Program;
use crate::raw::sys::code;
use crate::raw::{self, Attributes, Handle, sys::of_function};
use crate::stream::Stream;
use heist_launch::element::Element;
use heist_launch::{Dim3, Launch, Scalar, TensorMap};
use std::ffi::CString;
use std::sync::Arc;

/// Shared memory that a block has without asking.
const SHARED_WITHOUT_OPT_IN: u32 = 48 << 10;

/// Blocks of a cluster that a device has without asking.
const PORTABLE_CLUSTER: u64 = 8;

/// A kernel of a loaded program.
pub struct Kernel {
    program: Program,
    function: Handle<raw::CUfunction>,
    info: KernelInfo,
    opt_in: Arc<OptIn>,
}

/// What the assembler made of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Its name.
    pub name: String,
    /// Registers of one thread.
    pub registers: u32,
    /// Bytes of shared memory that it declares itself.
    pub static_shared: u32,
    /// Bytes of local memory of one thread: spills and stack.
    pub local: u32,
    /// The most threads that a block of it can have.
    pub max_threads: u32,
    /// The cluster that it must be launched in, if it says so.
    pub required_cluster: Option<Dim3>,
    /// Sizes of its parameters in bytes.
    pub parameters: Vec<usize>,
}

/// One argument, as the device takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelArg {
    bytes: Vec<u8>,
}

impl KernelArg {
    /// A number.
    pub fn scalar(value: impl Into<Scalar>) -> KernelArg {
        KernelArg {
            bytes: value.into().to_bytes(),
        }
    }

    /// A pointer to an array.
    pub fn pointer<T: Element>(array: &Array<T>) -> KernelArg {
        KernelArg::address(array.address())
    }

    /// A pointer to memory.
    pub fn memory(memory: &DeviceMemory) -> KernelArg {
        KernelArg::address(memory.address())
    }

    /// A pointer as a number.
    pub fn address(address: u64) -> KernelArg {
        KernelArg::bytes(address.to_le_bytes().to_vec())
    }

    /// A struct by value.
    pub fn bytes(bytes: Vec<u8>) -> KernelArg {
        KernelArg { bytes }
    }

    /// A tensor map over memory. Its own reference to a buffer is not looked at.
    pub fn tensor_map(
        gpu: &Gpu,
        kernel: &str,
        map: &TensorMap,
        memory: &DeviceMemory,
    ) -> Result<KernelArg, GpuError> {
        let wrong = |error: heist_launch::TensorMapError| GpuError::Arguments {
            kernel: kernel.to_owned(),
            why: error.to_string(),
        };
        map.validate().map_err(wrong)?;
        map.validate_within(memory.len() as u64).map_err(wrong)?;
        if !gpu.info().tensor_maps {
            return Err(GpuError::Arguments {
                kernel: kernel.to_owned(),
                why: format!(
                    "{} has no tensor maps: they came with sm_90",
                    gpu.info().name
                ),
            });
        }
        gpu.enter()?;
        let encoded = raw::encode_tensor_map(map, memory.address());
        let encoded = gpu.check(encoded)?;
        Ok(KernelArg::bytes(raw::tensor_map_bytes(&encoded).to_vec()))
    }
}

/// What a launch may ask for besides its shape.
#[derive(Clone, Debug, Default)]
pub struct LaunchOptions {
    /// All blocks at once on the device, or a refusal.
    pub cooperative: bool,
    /// May start before the kernel before it has ended (programmatic dependent launch).
    pub programmatic: bool,
    /// Scheduling priority; lower numbers go first.
    pub priority: Option<i32>,
    /// The arguments as flags of the command, for a fault's message.
    pub flags: Option<String>,
}

/// How much of a device a launch fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks on one SM at a time.
    pub blocks_per_sm: u32,
    /// Clusters on the device at a time, for a launch with clusters.
    pub active_clusters: Option<u32>,
}

impl Kernel {
    pub(crate) fn find(program: &Program, name: &str) -> Result<Kernel, GpuError> {
        let gpu = program.gpu();
        gpu.enter()?;
        let missing = || GpuError::NoSuchKernel {
            module: program.name().to_owned(),
            kernel: name.to_owned(),
            known: program.kernel_names(),
        };
        let symbol = CString::new(name).map_err(|_| missing())?;
        let function = match raw::module_function(program.module(), &symbol) {
            Err(status) if status.is(code::NOT_FOUND) => return Err(missing()),
            other => gpu.check(other)?,
        };
        let get = |attribute| gpu.check(raw::function_attribute(function, attribute));
        let mut required_cluster = None;
        if gpu.info().clusters {
            let cluster = Dim3::new(
                get(of_function::REQUIRED_CLUSTER_WIDTH)?,
                get(of_function::REQUIRED_CLUSTER_HEIGHT)?,
                get(of_function::REQUIRED_CLUSTER_DEPTH)?,
            );
            required_cluster = (cluster.count() > 0).then_some(cluster);
        }
        let info = KernelInfo {
            name: name.to_owned(),
            registers: get(of_function::NUM_REGS)?,
            static_shared: get(of_function::SHARED_SIZE_BYTES)?,
            local: get(of_function::LOCAL_SIZE_BYTES)?,
            max_threads: get(of_function::MAX_THREADS_PER_BLOCK)?,
            required_cluster,
            parameters: gpu.check(raw::function_parameters(
                function,
                program.text().parameters(name),
            ))?,
        };
        Ok(Kernel {
            program: program.clone(),
            function: Handle(function),
            info,
            opt_in: program.opt_in(name),
        })
    }

    /// What it is and needs.
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }

    pub(crate) fn function(&self) -> raw::CUfunction {
        self.function.0
    }

    /// The program it is part of.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Puts a launch into a stream.
    pub fn launch(
        &self,
        stream: &Stream,
        launch: &Launch,
        arguments: &[KernelArg],
    ) -> Result<(), GpuError> {
        self.launch_with(stream, launch, arguments, &LaunchOptions::default())
    }

    /// Puts a launch with options into a stream.
    pub fn launch_with(
        &self,
        stream: &Stream,
        launch: &Launch,
        arguments: &[KernelArg],
        options: &LaunchOptions,
    ) -> Result<(), GpuError> {
        let launch = self.prepare(launch)?;
        let mut parameters = self.parameters(arguments)?;
        let record = LaunchRecord {
            module: self.program.name().to_owned(),
            kernel: self.info.name.clone(),
            launch,
            arguments: options.flags.clone(),
        };
        let attributes = Attributes {
            cooperative: options.cooperative,
            programmatic: options.programmatic,
            priority: options.priority,
        };
        let passed = self.without_required_cluster(launch);
        let mut refused = None;
        let result = stream.launch_tracked(record, || {
            let launched = raw::launch(
                self.function.0,
                &passed,
                attributes,
                &mut parameters,
                stream.raw(),
            );
            refused = launched.err();
            launched
        });
        match (result, refused) {
            (Err(GpuError::Call { .. }), Some(status)) => Err(GpuError::Refused {
                launch: format!("`{}` ({launch})", self.info.name),
                status,
                note: self.refusal_note(&launch, status.code),
            }),
            (result, _) => result,
        }
    }

    /// Checks a launch against device and kernel, and opts in to what it needs.
    pub(crate) fn prepare(&self, launch: &Launch) -> Result<Launch, GpuError> {
        let gpu = self.program.gpu();
        gpu.enter()?;
        launch
            .validate(&gpu.info().limits)
            .map_err(|error| GpuError::Launch {
                kernel: self.info.name.clone(),
                error,
            })?;
        let contradiction = |why: String| GpuError::Contradiction {
            kernel: self.info.name.clone(),
            why,
        };
        if launch.block.count() > u64::from(self.info.max_threads) {
            return Err(contradiction(format!(
                "a block has {} threads, and with {} registers a thread, or by its own directives, at most {} fit",
                launch.block.count(),
                self.info.registers,
                self.info.max_threads
            )));
        }
        if let (Some(asked), Some(required)) = (launch.cluster, self.info.required_cluster)
            && asked != required
        {
            return Err(contradiction(format!(
                "the launch says clusters of {asked}, the kernel's own `.reqnctapercluster` says {required}"
            )));
        }
        let total = self
            .info
            .static_shared
            .saturating_add(launch.dynamic_shared);
        let limit = gpu.info().limits.shared_per_block;
        if total > limit {
            return Err(contradiction(format!(
                "{} bytes of dynamic and {} of static shared memory are more than a block's {limit}",
                launch.dynamic_shared, self.info.static_shared
            )));
        }
        if total > SHARED_WITHOUT_OPT_IN {
            self.opt_in.raise(launch.dynamic_shared, |bytes| {
                let attribute = of_function::MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let told = raw::function_set_attribute(self.function.0, attribute, bytes);
                gpu.check(told)
            })?;
        }
        let cluster = launch.cluster.or(self.info.required_cluster);
        if cluster.is_some_and(|cluster| cluster.count() > PORTABLE_CLUSTER) {
            gpu.check(raw::function_set_attribute(
                self.function.0,
                of_function::NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                1,
            ))?;
        }
        Ok(*launch)
    }

    /// A cluster that the kernel requires is not said a second time.
    pub(crate) fn without_required_cluster(&self, mut launch: Launch) -> Launch {
        if self.info.required_cluster.is_some() {
            launch.cluster = None;
        }
        launch
    }

    /// The driver copies as many bytes as the kernel takes from wherever it is
    /// pointed, so numbers and sizes must be right.
    fn parameters(&self, arguments: &[KernelArg]) -> Result<Vec<Vec<u8>>, GpuError> {
        let wrong = |why| GpuError::Arguments {
            kernel: self.info.name.clone(),
            why,
        };
        let expected = &self.info.parameters;
        if arguments.len() != expected.len() {
            return Err(wrong(format!(
                "it takes {} arguments and was given {}",
                expected.len(),
                arguments.len()
            )));
        }
        for (index, (argument, &size)) in arguments.iter().zip(expected).enumerate() {
            if argument.bytes.len() != size {
                return Err(wrong(format!(
                    "parameter {index} takes {size} bytes and was given {}",
                    argument.bytes.len()
                )));
            }
        }
        Ok(arguments.iter().map(|arg| arg.bytes.clone()).collect())
    }

    fn refusal_note(&self, launch: &Launch, status: u32) -> Option<String> {
        let info = self.program.gpu().info();
        match status {
            code::LAUNCH_OUT_OF_RESOURCES => Some(format!(
                "it uses {} registers a thread and {} bytes of shared memory a block; an SM has {} and {}",
                self.info.registers,
                self.info.static_shared + launch.dynamic_shared,
                info.registers_per_sm,
                info.shared_per_sm
            )),
            code::INVALID_CLUSTER_SIZE | code::INVALID_VALUE if launch.cluster.is_some() => {
                let fit = self
                    .occupancy(launch)
                    .ok()
                    .and_then(|occupancy| occupancy.active_clusters)?;
                Some(format!(
                    "{fit} clusters of this shape fit {} at a time",
                    info.name
                ))
            }
            _ => None,
        }
    }

    /// How much of the device a launch fills.
    pub fn occupancy(&self, launch: &Launch) -> Result<Occupancy, GpuError> {
        let launch = self.prepare(launch)?;
        let gpu = self.program.gpu();
        let threads = u32::try_from(launch.block.count()).unwrap_or(u32::MAX);
        let blocks = raw::blocks_per_sm(self.function.0, threads, launch.dynamic_shared);
        let with_cluster = Launch {
            cluster: launch.cluster.or(self.info.required_cluster),
            ..launch
        };
        let active_clusters = match with_cluster.cluster {
            Some(_) => Some(gpu.check(raw::active_clusters(self.function.0, &with_cluster))?),
            None => None,
        };
        Ok(Occupancy {
            blocks_per_sm: gpu.check(blocks)?,
            active_clusters,
        })
    }
}
