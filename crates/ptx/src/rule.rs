//! Every rule that any part of Heist can report, in one table.
//!
//! A rule is a [`Code`], a title and the severity it usually has; who finds it
//! (the structural rules here, the checker, the simulator, a log reader) does
//! not matter, the same rule has the same code. The named constants are what
//! code uses, the table [`RULES`] is what `heist explain` walks. A number is
//! never reused, and a letter's rules are only ever appended to.

use crate::diagnostic::{Code, Severity};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its stable name.
    pub code: Code,
    /// How the constant for it is called: `UNDECLARED_REGISTER`.
    pub name: &'static str,
    /// What is wrong when it is broken, in one line.
    pub title: &'static str,
    /// The severity it has when the finder is sure; one that is not says `warning`.
    pub severity: Severity,
}

impl Code {
    /// The rule behind this code; `None` for a code that is not in the table.
    ///
    /// ```
    /// use heist_ptx::rule;
    /// assert_eq!(rule::UNDECLARED_REGISTER.rule().unwrap().code.0, "P020");
    /// ```
    pub fn rule(self) -> Option<&'static Rule> {
        find(self.0)
    }
}

/// The rule called `code`, in either case of its letter.
pub fn find(code: &str) -> Option<&'static Rule> {
    RULES
        .iter()
        .find(|rule| rule.code.0.eq_ignore_ascii_case(code))
}

macro_rules! rules {
    ($($name:ident = $code:literal $severity:ident $title:literal;)*) => {
        $(
            #[doc = concat!("`", $code, "`: ", $title, ".")]
            pub const $name: Code = Code($code);
        )*

        /// All rules, by letter and number.
        pub const RULES: &[Rule] = &[
            $(Rule {
                code: $name,
                name: stringify!($name),
                title: $title,
                severity: Severity::$severity,
            },)*
        ];
    };
}

rules! {
    // P: the text of PTX (001-019) and its structure (020-).
    UNEXPECTED = "P001" Error "a character or word that can't stand here";
    UNTERMINATED = "P002" Error "a comment or string without its end";
    BAD_NUMBER = "P003" Error "a number that is not one, or does not fit";
    UNKNOWN_DIRECTIVE = "P004" Error "a directive that PTX does not have";
    TOO_LARGE = "P005" Error "a file too large, or nested too deep";
    BAD_HEADER = "P006" Error "a missing or malformed `.version`, `.target` or `.address_size`";
    MISPLACED_DIRECTIVE = "P007" Error "a directive given twice, or in the wrong place";
    UNDECLARED_REGISTER = "P020" Error "a register that is not declared";
    UNDECLARED_LABEL = "P021" Error "a branch to a label that does not exist";
    UNDECLARED_VARIABLE = "P022" Error "a variable that is not declared";
    UNDECLARED_FUNCTION = "P023" Error "a call of a function that is not declared";
    DUPLICATE_REGISTER = "P024" Error "a register declared twice in one scope";
    DUPLICATE_LABEL = "P025" Error "a label defined twice in one scope";
    DUPLICATE_SYMBOL = "P026" Error "a variable or function declared twice";
    UNKNOWN_OPCODE = "P027" Error "an opcode that PTX does not have";
    OPERAND_COUNT = "P028" Error "too few or too many operands";
    OPERAND_KIND = "P029" Error "an operand of a kind that the instruction does not take";
    OPERAND_TYPE = "P030" Error "a register whose type does not fit the instruction's";
    UNKNOWN_TARGET = "P031" Error "a `.target` that does not exist";
    TARGET_NEEDS_VERSION = "P032" Error "a `.target` that needs a later `.version`";
    FEATURE_NEEDS_TARGET = "P033" Error "an instruction that the `.target` does not have";
    FEATURE_NEEDS_VERSION = "P034" Error "an instruction that the `.version` does not have";
    MISSING_MODIFIER = "P035" Error "an instruction without a modifier that it needs";
    BAD_MODIFIER = "P036" Error "a modifier that the instruction does not take";
    VECTOR_LENGTH = "P037" Error "a register list of the wrong length";
    WRONG_SPACE = "P038" Error "a variable accessed through a state space it does not live in";
    IMMEDIATE_RANGE = "P039" Error "a constant outside the range that the instruction takes";
    GUARD_TYPE = "P040" Error "a guard that is not a predicate";
    CALL_SIGNATURE = "P041" Error "a call whose arguments do not match the function";
    PARAM_SPACE = "P042" Error "kernel parameters larger than the target allows";
    BAD_DIRECTIVE = "P043" Error "a directive with a value that can't be";
    UNKNOWN_VERSION = "P044" Error "a `.version` that does not exist";

    // M: memory.
    GLOBAL_OUT_OF_BOUNDS = "M001" Error "access outside any global allocation";
    SHARED_OUT_OF_BOUNDS = "M002" Error "access outside the block's shared memory";
    LOCAL_OUT_OF_BOUNDS = "M003" Error "access outside the thread's local memory";
    PARAM_OUT_OF_BOUNDS = "M004" Error "access outside the parameters";
    CONST_OUT_OF_BOUNDS = "M005" Error "access outside the constant variables";
    CLUSTER_OUT_OF_BOUNDS = "M006" Error "access outside a peer block's shared memory";
    MISALIGNED = "M007" Error "an address that is not a multiple of the access size";
    PEER_EXITED = "M008" Error "access to the shared memory of a block that has exited";
    PEER_NOT_STARTED = "M009" Error "access to the shared memory of a block that may not have started";
    SHARED_UNWRITTEN = "M010" Error "a read of shared memory that nothing wrote";
    GLOBAL_UNWRITTEN = "M011" Error "a read of global memory that nothing wrote";
    LOCAL_UNWRITTEN = "M012" Warning "a read of local memory that nothing wrote";
    REGISTER_UNWRITTEN = "M013" Warning "a read of a register that nothing wrote";
    WRONG_WINDOW = "M014" Error "an address used in a state space it does not belong to";
    READ_ONLY = "M015" Error "a write to memory that is read-only";
    USE_AFTER_FREE = "M016" Error "access to a global allocation that was freed";
    NON_COHERENT_WRITTEN = "M017" Error "a read through the non-coherent path of data that the kernel writes";
    PEER_RANK = "M018" Error "a block rank that is not in the cluster";
    DYNAMIC_SHARED_MISSING = "M019" Error "dynamic shared memory used, and none given at launch";
    LOCAL_ESCAPES = "M020" Error "the address of one thread's local memory used by another";

    // R: races.
    SHARED_RACE = "R001" Error "two threads race on shared memory";
    GLOBAL_RACE = "R002" Error "two threads race on global memory";
    CLUSTER_RACE = "R003" Error "two blocks race on distributed shared memory";
    NARROW_SCOPE = "R004" Error "synchronisation of a scope that does not hold both threads";
    MIXED_ATOMICITY = "R005" Error "an atomic and a plain access race";
    WARP_RACE = "R006" Error "two lanes of a warp race without a warp barrier between them";
    UNORDERED_FLAG = "R007" Error "a flag that is set or awaited without release and acquire";
    MIXED_SIZE = "R008" Warning "atomic or strong accesses of different sizes to the same bytes";
    LOST_UPDATE = "R009" Error "an update by strong accesses that may lose another thread's";
    STREAM_RACE = "R010" Error "two operations of streams race on memory";
    HOST_RACE = "R011" Error "the host races with an operation of a stream";

    // B: barriers, and everything else that threads do together.
    DIVERGENT_BARRIER = "B001" Error "a barrier that only a part of the warp reaches";
    MISMATCHED_BARRIER = "B002" Error "threads that meet at one barrier with different operations or counts";
    BARRIER_COUNT = "B003" Error "a barrier whose thread count can't be";
    BARRIER_ID = "B004" Error "a barrier number that does not exist";
    BARRIER_EXITED = "B005" Error "a barrier that waits for threads that have exited";
    DEADLOCK = "B006" Error "threads wait for something that can't happen any more";
    MEMBER_MASK = "B007" Error "a member mask that does not name the threads that run";
    INACTIVE_LANE = "B008" Error "a value taken from a lane that takes no part";
    CLUSTER_BARRIER_ORDER = "B009" Error "a cluster barrier's arrive and wait do not alternate";
    CLUSTER_BARRIER_PARTIAL = "B010" Error "a cluster barrier that not all threads of the cluster reach";
    BARRIER_REUSE = "B011" Error "a barrier used again before its last round is over";
    DIVERGENT_ALIGNED = "B012" Error "an `.aligned` instruction that only a part of the warp reaches";
    LIVELOCK = "B013" Error "threads spin on a value that nobody is going to change";

    // A: asynchronous copies and mbarriers.
    CP_ASYNC_EARLY = "A001" Error "data of a cp.async used before it was waited for";
    CP_ASYNC_UNCOMMITTED = "A002" Error "a cp.async that no group or mbarrier ever covers";
    CP_ASYNC_UNWAITED = "A003" Warning "a cp.async that nobody waits for";
    CP_ASYNC_UNSHARED = "A004" Error "data of a cp.async read by a thread that no barrier joins to the copying one";
    PROXY_FENCE_BEFORE_ASYNC_READ = "A005" Error "generic writes read by the async proxy without `fence.proxy.async`";
    PROXY_FENCE_BEFORE_ASYNC_WRITE = "A006" Error "generic accesses overwritten by the async proxy without `fence.proxy.async`";
    BULK_EARLY = "A007" Error "data of a bulk copy used before its mbarrier's phase completed";
    BULK_SOURCE_OVERWRITTEN = "A008" Error "the source of an asynchronous copy overwritten before it was read";
    BULK_UNCOMMITTED = "A009" Error "a bulk store that no group covers or nobody waits for";
    MBARRIER_UNINITIALISED = "A010" Error "an mbarrier used before its init";
    MBARRIER_REINIT = "A011" Error "an mbarrier initialised again while in use";
    MBARRIER_ARRIVALS = "A012" Error "more arrivals on an mbarrier than its phase expects";
    MBARRIER_BYTES = "A013" Error "an mbarrier's transaction count leaves its range";
    MBARRIER_STARVED = "A014" Error "an mbarrier waits for arrivals or bytes that never come";
    MBARRIER_AS_DATA = "A015" Error "an mbarrier read or written as ordinary memory";
    MBARRIER_INIT_UNSEEN = "A016" Error "an mbarrier's init not made visible to those who use it";
    MBARRIER_PHASE = "A017" Error "a wait for a phase that is neither the current nor the last one";
    MBARRIER_COUNT = "A018" Error "an mbarrier count outside 1 to 1048575";
    MBARRIER_REMOTE = "A019" Error "an mbarrier operation that is not allowed on a peer block's barrier";
    MBARRIER_TOKEN = "A020" Error "an mbarrier state that belongs to another barrier or an older phase";
    BULK_SHAPE = "A021" Error "a bulk copy with a size or address that is not allowed";
    TENSOR_MAP = "A022" Error "a tensor map that is not valid";
    TENSOR_COPY = "A023" Error "a tensor copy whose box, coordinates or addresses are not allowed";
    ASYNC_AT_EXIT = "A024" Error "an asynchronous operation still in flight when its block exits";
    MULTICAST_MASK = "A025" Error "a multicast to blocks that are not in the cluster";
    TENSOR_MAP_FENCE = "A026" Error "a changed tensor map used without its proxy fence";
    BULK_REPEATED = "A027" Warning "a bulk copy issued by several threads for the same data";
    MBARRIER_NO_COMPLETE = "A028" Error "an arrive.noComplete that completes the phase";
    ASYNC_OVERLAP = "A029" Error "two asynchronous writes to the same bytes in flight";
    MBARRIER_UNARMED = "A030" Error "bytes that arrive at an mbarrier that does not wait for them";
    MBARRIER_INVAL_UNORDERED = "A031" Error "an mbarrier invalidated while others may still use it";

    // T: tensor cores.
    TENSOR_LOCAL = "T001" Error "a tensor-core load or store through a pointer to local memory";
    WGMMA_FENCE = "T002" Error "a wgmma whose registers were written or read without `wgmma.fence`";
    WGMMA_IN_FLIGHT = "T003" Error "registers of a wgmma touched before it was waited for";
    WGMMA_UNCOMMITTED = "T004" Error "a wgmma that is never committed";
    WGMMA_UNWAITED = "T005" Error "a wgmma whose result is never waited for";
    WGMMA_DESCRIPTOR = "T006" Error "a matrix descriptor that is not valid";
    TENSOR_DIVERGENT = "T007" Error "a tensor-core instruction that not the whole warp or warpgroup runs";
    WGMMA_SOURCE_OVERWRITTEN = "T008" Error "shared memory overwritten while a tensor-core product may still read it";
    WMMA_STRIDE = "T009" Error "a wmma pointer or stride that is not aligned";
    SETMAXNREG_IGNORED = "T010" Warning "a `setmaxnreg` that is going to be ignored";
    SETMAXNREG_POOL = "T011" Error "a `setmaxnreg` that asks for more registers than the block has";
    WGMMA_SERIALIZED = "T012" Warning "wgmma instructions that the assembler serialises";
    CUT_TO_TRAP = "T013" Warning "a kernel that is nothing but a trap";
    TENSOR_LOAD_EARLY = "T101" Warning "registers of a `tcgen05.ld` that is not waited for";
    TENSOR_RESULT_EARLY = "T102" Error "tensor memory used before the commit of a product or copy was waited for";
    TENSOR_TRANSFER_EARLY = "T103" Error "tensor memory used before the wait of a `tcgen05.ld` or `tcgen05.st`";
    TENSOR_THREAD_FENCE = "T104" Warning "no `tcgen05.fence::after_thread_sync` behind the synchronisation";
    TENSOR_LEAK = "T105" Error "tensor memory that is never freed";
    TENSOR_FREE = "T106" Error "tensor memory freed twice, in use, or by another address or size";
    TENSOR_ALLOCATION = "T107" Error "an allocation of tensor memory that can't be";
    TENSOR_PERMIT = "T108" Error "an allocation of tensor memory after the permit was given up";
    TENSOR_ALLOCATORS = "T109" Error "tensor memory allocated by several warps of a block";
    TENSOR_STARVED = "T110" Error "an allocation waits for tensor memory that nobody frees";
    TENSOR_LANES = "T111" Error "lanes of tensor memory that the warp can't reach";
    TENSOR_BOUNDS = "T112" Error "columns of tensor memory that the block does not have";
    TENSOR_UNWRITTEN = "T113" Error "tensor memory read that nothing has written";
    TENSOR_DESCRIPTOR = "T114" Error "an instruction descriptor that is not valid";
    TENSOR_GROUPS = "T115" Error "`cta_group::1` and `cta_group::2` mixed in a kernel";
    TENSOR_ISSUERS = "T116" Error "a product, copy or commit that several lanes start";
    TENSOR_UNCOMMITTED = "T117" Error "products that no commit covers, or a commit that covers nothing";

    // L: cluster launch control.
    CLC_SLOT = "L001" Error "a response slot that is not 16 aligned bytes of the block's shared memory";
    CLC_EARLY_READ = "L002" Error "a response read before its mbarrier's phase completed";
    CLC_AFTER_REFUSAL = "L003" Error "a request submitted after a refusal was observed";
    CLC_DECODE_REFUSED = "L004" Error "a block id decoded from a refused request";
    CLC_SLOT_BUSY = "L005" Error "two requests in flight on one slot";
    CLC_BYTES = "L006" Error "requests and expected bytes that do not match, 16 for each response";
    CLC_NOT_ELECTED = "L007" Warning "a request submitted by more than one thread";
    CLC_PEER_EXITED = "L008" Error "a multicast request when a block of the cluster has exited";
    CLC_PEER_NOT_STARTED = "L009" Error "a multicast request when a block of the cluster may not have started";
    CLC_OFFSET = "L010" Error "a cluster's block id used without the block's own offset in each dimension";
    CLC_PROXY_FENCE = "L011" Error "a response read, and its slot requested into again, without `fence.proxy.async`";
    CLC_AT_EXIT = "L012" Error "a request in flight when its block exits";
    CLC_GRANT_DROPPED = "L013" Error "a granted block that nobody runs";
    CLC_PLAIN_IN_CLUSTER = "L015" Warning "a request without multicast in a kernel with clusters";
    CLC_PEER_UNARMED = "L016" Error "a multicast response to a block that neither expects nor awaits it";
    CLC_SLOT_OVERWRITTEN = "L017" Error "a response overwritten before every block had read it";
    CLC_OPAQUE = "L019" Warning "a response taken apart by hand";
    CLC_SCOPE = "L020" Error "a slot or mbarrier of a request outside the block's own shared memory";

    // X: execution and its limits.
    UNSUPPORTED = "X001" Error "an instruction that the simulator does not run";
    TIME_BUDGET = "X002" Error "a kernel stopped because it ran past its budget";
    MEMORY_BUDGET = "X003" Error "a kernel stopped because it wants more memory than it may have";
    TRAP = "X004" Error "a trap was executed";
    BLOCK_SIZE = "X005" Error "a block with more threads than the device or kernel allows";
    GRID_SIZE = "X006" Error "a grid larger than the device allows";
    GRID_CLUSTER = "X007" Error "a grid that is not a multiple of its cluster";
    CLUSTER_SIZE = "X008" Error "a cluster larger than the device allows";
    STATIC_SHARED = "X009" Error "static shared memory over the limit";
    DYNAMIC_SHARED = "X010" Error "shared memory over the block's limit on this architecture";
    SHARED_OPT_IN = "X011" Warning "more than 48 KiB of shared memory, which needs an opt-in at launch";
    REGISTER_LIMIT = "X012" Error "more registers than the block or the SM has";
    ARGUMENTS = "X013" Error "launch arguments that do not match the kernel's parameters";
    NO_SUCH_KERNEL = "X014" Error "a kernel that is not in the module";
    LAUNCH_CONTRADICTION = "X015" Error "a launch that contradicts the kernel's own directives";
    WRONG_DEVICE = "X016" Error "a module whose target does not run on this device";
    CALL_DEPTH = "X017" Error "a call stack that grows past its limit";
    ASSERTION = "X018" Error "an assertion in the kernel failed";
    UNREACHABLE = "X019" Warning "code that can never run";
    DIVISION_BY_ZERO = "X020" Warning "an integer division by zero";
    INDIRECT_TARGET = "X021" Error "an indirect branch or call to something that is not a target";
    BREAKPOINT = "X023" Warning "a breakpoint was executed";
    UNRESOLVED = "X024" Error "a function or variable declared and defined nowhere";
    PRINTF_FORMAT = "X025" Error "a printf whose format and arguments do not match";
    RUNS_OFF_END = "X026" Error "control that runs past the end of a function";
    LOCAL_LIMIT = "X027" Error "more local memory than a thread may have";
    ALLOCATION = "X028" Error "a device-side allocation that fails or is freed twice";
    CONSTANT_LIMIT = "X029" Error "more constant variables than a file may have";

    // G: the GPU, its driver, and the logs of other tools.
    NO_DEVICE = "G001" Error "no GPU or no driver";
    DEVICE_LACKS = "G002" Error "a device that lacks what the kernel needs";
    JIT = "G003" Error "the driver does not assemble the PTX";
    ILLEGAL_ADDRESS = "G004" Error "illegal address on the GPU";
    MISALIGNED_ADDRESS = "G005" Error "misaligned address on the GPU";
    LAUNCH_FAILURE = "G006" Error "unspecified launch failure on the GPU";
    OUT_OF_RESOURCES = "G007" Error "a launch that asks for more than the GPU has";
    ILLEGAL_INSTRUCTION = "G008" Error "illegal instruction on the GPU";
    LAUNCH_TIMEOUT = "G009" Error "a kernel that does not end on the GPU";
    DRIVER_TOO_OLD = "G010" Error "PTX newer than the driver understands";
    STICKY = "G011" Error "an error left over from an earlier launch";
    OUT_OF_MEMORY = "G012" Error "no device memory left";
    DEVICE_ASSERT = "G013" Error "an assertion or trap on the GPU";
    INVALID_VALUE = "G014" Error "an argument that the driver does not accept";
    CLUSTER_LAUNCH = "G015" Error "a cluster that the GPU can't place";
    ADDRESS_SPACE = "G016" Error "an instruction given an address in the wrong space on the GPU";
    API_ERROR = "G017" Error "an error of the CUDA driver or runtime";
    PROGRAM_STOPPED = "G018" Error "the driver took a program's work off the GPU";
    GPU_FAULT = "G019" Error "a GPU, or a link to it, that is broken";
    SPILLS = "G020" Warning "registers spilled to local memory";
    STACK_FRAME = "G021" Warning "a stack frame in local memory";
    ASSEMBLER_ERROR = "G022" Error "the assembler rejects the kernel";
    ASSEMBLER_WARNING = "G023" Warning "a warning of the assembler";
    COMPILER_GIVES_UP = "G024" Error "nvcc gives up before it compiles";
    DEVICE_LINKER = "G025" Error "the linker of device code refuses the objects";
    SANITIZER_MEMCHECK = "G030" Error "an invalid access that compute-sanitizer found";
    SANITIZER_RACE = "G031" Error "a race that compute-sanitizer found";
    SANITIZER_SYNC = "G032" Error "a barrier error that compute-sanitizer found";
    SANITIZER_INIT = "G033" Error "an uninitialised read that compute-sanitizer found";
    SANITIZER_API = "G034" Error "an API error that compute-sanitizer found";
    SANITIZER_LEAK = "G035" Warning "a leak that compute-sanitizer found";
    REPLAY_DIFFERS = "G040" Error "a replay that leaves other memory than the GPU did";

    // S: policies that are loaded as data.
    POLICY_HEAD = "S001" Error "policy words whose head, length or checksum is wrong";
    POLICY_STEP = "S002" Error "a step of a policy that means nothing";
    POLICY_UNWRITTEN = "S003" Error "a step of a policy that takes a value which nothing wrote";
    POLICY_TYPES = "S004" Error "a step of a policy whose types do not fit";
    POLICY_STATE = "S005" Error "a step of a policy that names a state or shared word it does not have";
    POLICY_ANSWER = "S006" Error "a policy without an answer, or with one where nobody asks";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_ordered_and_well_formed() {
        let order = "PMRBATLXGS";
        let key = |rule: &Rule| {
            let (letter, number) = rule.code.0.split_at(1);
            let letter = order.find(letter).expect("a letter of the catalogue");
            assert_eq!(number.len(), 3, "{}", rule.code);
            (letter, number.parse::<u32>().expect("a number"))
        };
        for pair in RULES.windows(2) {
            assert!(
                key(&pair[0]) < key(&pair[1]),
                "{} is out of order",
                pair[1].code
            );
        }
    }

    #[test]
    fn names_and_titles_are_unique_and_titles_are_short() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(rule.title.len() <= 96, "{}: {}", rule.code, rule.title);
            assert!(!rule.title.ends_with('.'), "{}", rule.code);
            for other in &RULES[at + 1..] {
                assert_ne!(rule.title, other.title);
                assert_ne!(rule.name, other.name);
            }
        }
    }

    #[test]
    fn a_code_finds_its_rule() {
        assert_eq!(find("l003").map(|rule| rule.code), Some(CLC_AFTER_REFUSAL));
        assert_eq!(find("Z001"), None);
    }
}
