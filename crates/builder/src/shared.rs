//! Arrays in shared memory and in a thread's own memory.
//!
//! The builder lays them out: each is aligned, their total is checked against the architecture's
//! limit when the kernel is finished, and past 48 KiB they all move into dynamic shared memory,
//! whose size is in the launch.

use crate::emit::{Base, LocalPiece, SharedId, SharedPiece};
use crate::error::Problem;
use crate::kernel::Kernel;
use crate::pointer::{Index, IntoIndex, Local, Ptr, Shared, Space};
use crate::scalar::Storable;
use heist_ptx::SmolStr;

/// An array of `len` elements in the space `S`.
pub struct Array<'k, S, T> {
    ptr: Ptr<'k, S, T>,
    len: u32,
}

/// An array that a block's threads share.
pub type SharedArray<'k, T> = Array<'k, Shared, T>;
/// An array that a thread has for itself.
pub type LocalArray<'k, T> = Array<'k, Local, T>;

impl<S, T> Clone for Array<'_, S, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, T> Copy for Array<'_, S, T> {}

impl<S: Space, T: Storable> std::fmt::Debug for Array<'_, S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}[{}]", self.ptr, self.len)
    }
}

impl<'k, S: Space, T: Storable> Array<'k, S, T> {
    /// A pointer to its first element.
    pub fn ptr(&self) -> Ptr<'k, S, T> {
        self.ptr
    }

    pub(crate) fn at_ptr(ptr: Ptr<'k, S, T>, len: u32) -> Array<'k, S, T> {
        Array { ptr, len }
    }

    /// How many elements it has.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.len) * u64::from(T::BYTES)
    }

    /// A pointer to an element. A constant index past the end fails the build.
    #[track_caller]
    pub fn at(&self, index: impl IntoIndex<'k>) -> Ptr<'k, S, T> {
        let index = index.into_index();
        if let Index::Known(n) = index
            && !(0..i64::from(self.len)).contains(&n)
        {
            self.ptr.k.fail_with(Problem::OutOfRange {
                what: "the index into an array".into(),
                value: n,
                low: 0,
                high: i64::from(self.len) - 1,
            });
        }
        self.ptr.at(index)
    }

    /// The part from element `from`, `len` long. Both are checked.
    #[track_caller]
    pub fn part(&self, from: u32, len: u32) -> Array<'k, S, T> {
        let end = u64::from(from) + u64::from(len);
        if end > u64::from(self.len) {
            self.ptr.k.fail_with(Problem::OutOfRange {
                what: "the end of a part of an array".into(),
                value: end as i64,
                low: 0,
                high: self.len.into(),
            });
        }
        Array {
            ptr: self.ptr.at(from),
            len,
        }
    }

    /// The same bytes as an array of another type.
    #[track_caller]
    pub fn cast<U: Storable>(&self) -> Array<'k, S, U> {
        self.ptr.k.must_divide(
            "the size of a reinterpreted array in bytes",
            self.bytes(),
            U::BYTES.into(),
        );
        Array {
            ptr: self.ptr.cast(),
            len: (self.bytes() / u64::from(U::BYTES)) as u32,
        }
    }
}

impl<'k> IntoIndex<'k> for Index<'k> {
    fn into_index(self) -> Index<'k> {
        self
    }
}

impl<'k> Kernel<'k> {
    /// An array of `len` elements that the block's threads share, aligned to 16
    /// bytes. Its first contents are undefined.
    #[track_caller]
    pub fn shared<T: Storable>(&self, name: &str, len: u32) -> SharedArray<'k, T> {
        self.shared_aligned(name, len, 16)
    }

    /// An array that the block's threads share, at an address that is a
    /// multiple of `align`.
    #[track_caller]
    pub fn shared_aligned<T: Storable>(
        &self,
        name: &str,
        len: u32,
        align: u32,
    ) -> SharedArray<'k, T> {
        let align = self.alignment::<T>(align);
        let mut shared = self.rec.shared.borrow_mut();
        let id = SharedId(shared.len() as u32);
        shared.push(SharedPiece {
            name: SmolStr::new(name),
            bytes: u64::from(len) * u64::from(T::BYTES),
            align,
        });
        Array {
            ptr: Ptr::new(*self, Base::Shared(id), 0),
            len,
        }
    }

    /// An array of this thread alone. It lies in memory, not in registers: for
    /// a few values use a Rust array of [`Var`](crate::Var).
    #[track_caller]
    pub fn local<T: Storable>(&self, name: &str, len: u32) -> LocalArray<'k, T> {
        let align = self.alignment::<T>(T::BYTES);
        let mut locals = self.rec.locals.borrow_mut();
        let id = locals.len() as u32;
        locals.push(LocalPiece {
            name: SmolStr::new(name),
            bytes: u64::from(len) * u64::from(T::BYTES),
            align,
        });
        Array {
            ptr: Ptr::new(*self, Base::Local(id), 0),
            len,
        }
    }

    #[track_caller]
    fn alignment<T: Storable>(&self, align: u32) -> u32 {
        if !align.is_power_of_two() {
            self.fail(format!(
                "an alignment of {align} bytes is not a power of two"
            ));
            return T::BYTES;
        }
        align.max(T::BYTES)
    }
}
