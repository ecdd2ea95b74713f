//! The status of a failed driver call.

use crate::raw::sys::code;
use heist_ptx::{Code, rule};
use std::fmt;

/// A call of the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The call.
    pub call: &'static str,
    /// The driver's number for what went wrong.
    pub code: u32,
}

impl Status {
    pub(crate) fn new(call: &'static str, code: u32) -> Status {
        Status { call, code }
    }

    pub(crate) fn is(self, code: u32) -> bool {
        self.code == code
    }

    /// Whether a kernel did something that ends the context: from here on every
    /// call in it fails with the same.
    pub fn is_fault(self) -> bool {
        matches!(
            self.code,
            code::ILLEGAL_ADDRESS
                | code::LAUNCH_TIMEOUT
                | code::ASSERT
                | code::HARDWARE_STACK_ERROR
                | code::ILLEGAL_INSTRUCTION
                | code::MISALIGNED_ADDRESS
                | code::INVALID_ADDRESS_SPACE
                | code::INVALID_PC
                | code::LAUNCH_FAILED
                // Memory errors of the hardware itself end a context too.
                | 214
                | 220
                | 226
        )
    }

    /// The driver's name for the code, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub fn name(self) -> String {
        self.described().0
    }

    fn described(self) -> (String, String) {
        let known = crate::raw::present()
            .then(|| crate::raw::describe(self.code))
            .flatten();
        known.unwrap_or_else(|| {
            let name = match self.code {
                code::ILLEGAL_ADDRESS => "CUDA_ERROR_ILLEGAL_ADDRESS",
                code::MISALIGNED_ADDRESS => "CUDA_ERROR_MISALIGNED_ADDRESS",
                code::LAUNCH_FAILED => "CUDA_ERROR_LAUNCH_FAILED",
                code::OUT_OF_MEMORY => "CUDA_ERROR_OUT_OF_MEMORY",
                _ => "CUDA error",
            };
            (name.to_owned(), "no description".to_owned())
        })
    }

    /// What it means for the author of the kernel.
    pub fn in_words(self) -> &'static str {
        match self.code {
            code::ILLEGAL_ADDRESS => {
                "a thread read or wrote an address that is not in any allocation"
            }
            code::MISALIGNED_ADDRESS => {
                "a thread accessed an address that is not a multiple of the access's size"
            }
            code::INVALID_ADDRESS_SPACE => {
                "an instruction got an address of another state space than it takes, such as a local address for a tensor-core load"
            }
            code::ILLEGAL_INSTRUCTION => {
                "an instruction was executed in a state that it does not allow, such as a tensor-core operation on a bad descriptor, or code for another chip"
            }
            code::LAUNCH_FAILED => {
                "an exception that the hardware does not name: often a trap, shared memory out of bounds, a bad mbarrier or bulk copy, or a stack overflow"
            }
            code::ASSERT => "an assertion in the kernel failed",
            code::HARDWARE_STACK_ERROR => "a thread's call stack was corrupted or overflowed",
            code::INVALID_PC => "a jump went outside the program",
            code::LAUNCH_TIMEOUT => "the kernel ran longer than this system allows",
            code::LAUNCH_OUT_OF_RESOURCES => {
                "a block needs more registers or shared memory than an SM has"
            }
            code::COOPERATIVE_LAUNCH_TOO_LARGE => {
                "a cooperative grid must fit the device all at once, and this one does not"
            }
            code::INVALID_CLUSTER_SIZE => "no SM cluster of the device can hold this cluster",
            code::OUT_OF_MEMORY => "the device has not enough free memory",
            code::INVALID_VALUE => "an argument of the call is not one that the driver takes",
            _ => "the driver gives no more than its own words",
        }
    }

    /// The rule that stands for it in diagnostics.
    pub fn rule(self) -> Code {
        match self.code {
            code::ILLEGAL_ADDRESS => rule::ILLEGAL_ADDRESS,
            code::MISALIGNED_ADDRESS => rule::MISALIGNED_ADDRESS,
            code::INVALID_ADDRESS_SPACE => rule::ADDRESS_SPACE,
            code::ILLEGAL_INSTRUCTION => rule::ILLEGAL_INSTRUCTION,
            code::ASSERT => rule::DEVICE_ASSERT,
            code::LAUNCH_TIMEOUT => rule::LAUNCH_TIMEOUT,
            code::LAUNCH_OUT_OF_RESOURCES | code::COOPERATIVE_LAUNCH_TOO_LARGE => {
                rule::OUT_OF_RESOURCES
            }
            code::INVALID_CLUSTER_SIZE => rule::CLUSTER_LAUNCH,
            code::OUT_OF_MEMORY => rule::OUT_OF_MEMORY,
            code::INVALID_VALUE => rule::INVALID_VALUE,
            code::LAUNCH_FAILED | code::HARDWARE_STACK_ERROR | code::INVALID_PC => {
                rule::LAUNCH_FAILURE
            }
            _ => rule::API_ERROR,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = self.described();
        write!(f, "{} failed: {text} ({name}, {})", self.call, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_refusals() {
        assert!(Status::new("cuStreamSynchronize", 700).is_fault());
        assert!(Status::new("cuStreamSynchronize", 719).is_fault());
        assert!(!Status::new("cuLaunchKernelEx", 1).is_fault());
        assert!(!Status::new("cuLaunchKernelEx", 701).is_fault());
        assert!(!Status::new("cuMemAlloc_v2", 2).is_fault());
    }

    #[test]
    fn every_code_has_a_rule_and_words() {
        for code in [
            1, 2, 700, 701, 702, 710, 714, 715, 716, 717, 718, 719, 720, 912, 12345,
        ] {
            let status = Status::new("cuCall", code);
            assert!(status.rule().rule().is_some(), "{code}");
            assert!(!status.in_words().is_empty());
            assert!(status.to_string().contains("cuCall failed"));
        }
    }

    #[test]
    fn each_code_has_its_own_words_and_rule() {
        for (number, name, word, code) in [
            (1, "", "not one that the driver takes", rule::INVALID_VALUE),
            (
                2,
                "CUDA_ERROR_OUT_OF_MEMORY",
                "enough free memory",
                rule::OUT_OF_MEMORY,
            ),
            (
                700,
                "CUDA_ERROR_ILLEGAL_ADDRESS",
                "not in any allocation",
                rule::ILLEGAL_ADDRESS,
            ),
            (
                701,
                "",
                "more registers or shared memory",
                rule::OUT_OF_RESOURCES,
            ),
            (
                702,
                "",
                "longer than this system allows",
                rule::LAUNCH_TIMEOUT,
            ),
            (710, "", "assertion", rule::DEVICE_ASSERT),
            (714, "", "call stack", rule::LAUNCH_FAILURE),
            (
                715,
                "",
                "a state that it does not allow",
                rule::ILLEGAL_INSTRUCTION,
            ),
            (
                716,
                "CUDA_ERROR_MISALIGNED_ADDRESS",
                "not a multiple",
                rule::MISALIGNED_ADDRESS,
            ),
            (717, "", "another state space", rule::ADDRESS_SPACE),
            (718, "", "outside the program", rule::LAUNCH_FAILURE),
            (
                719,
                "CUDA_ERROR_LAUNCH_FAILED",
                "hardware does not name",
                rule::LAUNCH_FAILURE,
            ),
            (720, "", "cooperative", rule::OUT_OF_RESOURCES),
            (912, "", "cluster", rule::CLUSTER_LAUNCH),
            (12345, "", "no more than its own words", rule::API_ERROR),
        ] {
            let status = Status::new("cuCall", number);
            assert!(
                status.in_words().contains(word),
                "{number}: {}",
                status.in_words()
            );
            assert_eq!(status.rule(), code, "{number}");
            // A driver that is here may have other words for it.
            if !crate::raw::present() && !name.is_empty() {
                assert_eq!(status.name(), name);
            }
        }
    }
}
