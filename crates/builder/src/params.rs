//! Kernel parameters as one Rust struct for both sides.
//!
//! [`kernel_params!`](crate::kernel_params) declares a struct once. On the host
//! its fields are numbers and device addresses; inside the kernel they are
//! values and typed pointers. Order, size and alignment come from the one
//! declaration, so the two can't disagree.
//!
//! ```
//! use heist_builder::*;
//! kernel_params! {
//!     /// What `scale` works on.
//!     pub struct ScaleArgs {
//!         /// The numbers, changed in place.
//!         data: Global<f32>,
//!         factor: f32,
//!         n: u32,
//!     }
//! }
//! let args = ScaleArgs { data: DevicePtr::new(0x7000), factor: 2.0, n: 100 };
//! assert_eq!(ScaleArgs::layout()[2].offset, 12);
//! assert_eq!(args.values()[1].bytes, 2.0f32.to_le_bytes());
//! ```

use crate::emit::{Base, Opnd};
use crate::kernel::Kernel;
use crate::pointer::{Global, Ptr};
use crate::scalar::{Class, Scalar, ScalarKind, Storable};
use crate::value::Val;
use std::fmt;
use std::marker::PhantomData;

/// Which side of the launch a parameter struct is on.
pub trait Side {
    /// What a parameter of type `P` is on this side.
    type Of<P: Param>: Clone + fmt::Debug;
}

/// The side that launches.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Side for Host {
    type Of<P: Param> = P::Host;
}

/// The side inside the kernel `'k`.
#[derive(Clone, Copy, Debug)]
pub struct On<'k>(PhantomData<fn(&'k ()) -> &'k ()>);

impl<'k> Side for On<'k> {
    type Of<P: Param> = P::Device<'k>;
}

/// The side of a runner that owns memory: where the host would give an
/// address, `B` stands for a whole buffer.
///
/// ```
/// use heist_builder::*;
/// kernel_params! { pub struct Args { data: Global<f32>, n: u32 } }
/// let args: Args<With<Vec<f32>>> = Args { data: vec![1.0, 2.0], n: 2 };
/// let passed = ParamsWith::passed(args);
/// assert!(matches!(&passed[0], Passed::Buffer { data, .. } if data.len() == 2));
/// assert!(matches!(&passed[1], Passed::Number(number) if number.bytes == [2, 0, 0, 0]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct With<B>(PhantomData<fn() -> B>);

impl<B: Clone + fmt::Debug> Side for With<B> {
    type Of<P: Param> = P::With<B>;
}

/// A parameter as a runner that owns memory takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Passed<B> {
    /// A number.
    Number(ParamValue),
    /// What stands for a pointer or a tensor map.
    Buffer {
        /// The field's name.
        name: &'static str,
        /// The buffer.
        data: B,
        /// What it is.
        kind: ParamKind,
    },
}

/// A device address of `T`s, as the host hands it over.
pub struct DevicePtr<T> {
    address: u64,
    to: PhantomData<fn() -> T>,
}

impl<T> DevicePtr<T> {
    /// The address of memory on the device.
    pub const fn new(address: u64) -> DevicePtr<T> {
        DevicePtr {
            address,
            to: PhantomData,
        }
    }

    /// The address.
    pub const fn address(self) -> u64 {
        self.address
    }
}

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
impl<T> fmt::Debug for DevicePtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePtr({:#x})", self.address)
    }
}

/// What a kernel takes as one parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a kernel parameter",
    note = "parameters are Global<T>, TensorMap, or a number such as u32 or f32"
)]
pub trait Param: 'static {
    /// What the host passes.
    type Host: Copy + fmt::Debug;
    /// What the kernel sees.
    type Device<'k>: Copy + fmt::Debug;
    /// What a runner that owns memory is given.
    type With<B: Clone + fmt::Debug>: Clone + fmt::Debug;
    #[doc(hidden)]
    fn pass<B: Clone + fmt::Debug>(name: &'static str, value: Self::With<B>) -> Passed<B>;
    #[doc(hidden)]
    fn shape() -> ParamShape;
    #[doc(hidden)]
    fn bytes(host: &Self::Host) -> Vec<u8>;
    #[doc(hidden)]
    fn read<'k>(k: &Kernel<'k>, index: u32, name: &str) -> Self::Device<'k>;
}

/// Size, alignment and kind of a parameter.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamShape {
    pub size: u32,
    pub align: u32,
    pub kind: ParamKind,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A number, by its PTX type.
    Number(&'static str),
    /// An address in global memory; the element's PTX type and its bytes.
    Pointer(&'static str, u32),
    /// A tensor map, 128 opaque bytes.
    TensorMap,
}

impl<T: Storable> Param for Global<T> {
    type Host = DevicePtr<T>;
    type Device<'k> = Ptr<'k, Global, T>;
    type With<B: Clone + fmt::Debug> = B;
    fn pass<B: Clone + fmt::Debug>(name: &'static str, data: B) -> Passed<B> {
        let kind = Self::shape().kind;
        Passed::Buffer { name, data, kind }
    }
    fn shape() -> ParamShape {
        ParamShape {
            size: 8,
            align: 8,
            kind: ParamKind::Pointer(T::KIND.memory(), T::BYTES),
        }
    }
    fn bytes(host: &DevicePtr<T>) -> Vec<u8> {
        host.address.to_le_bytes().to_vec()
    }
    fn read<'k>(k: &Kernel<'k>, index: u32, name: &str) -> Ptr<'k, Global, T> {
        let place = k.rec.place;
        let (generic, global) = (k.rec.reg(Class::B64), k.rec.reg(Class::B64));
        k.rec.name_reg(generic, &format!("{name}_generic"));
        k.rec.name_reg(global, name);
        let from = Opnd::Address(Base::Param(index), 0);
        k.rec
            .prologue_op("ld.param.u64", vec![generic.into(), from], place);
        k.rec.prologue_op(
            "cvta.to.global.u64",
            vec![global.into(), generic.into()],
            place,
        );
        Ptr::new(*k, Base::Reg(global), 0)
    }
}

macro_rules! number_params {
    ($($ty:ty)*) => {$(
        impl Param for $ty {
            type Host = $ty;
            type Device<'k> = Val<'k, $ty>;
            type With<B: Clone + fmt::Debug> = $ty;
            fn pass<B: Clone + fmt::Debug>(name: &'static str, value: $ty) -> Passed<B> {
                Passed::Number(ParamValue {
                    name,
                    bytes: Self::bytes(&value),
                    kind: Self::shape().kind,
                })
            }
            fn shape() -> ParamShape {
                ParamShape {
                    size: <$ty as Storable>::BYTES,
                    align: <$ty as Storable>::BYTES,
                    kind: ParamKind::Number(<$ty as Scalar>::KIND.memory()),
                }
            }
            fn bytes(host: &$ty) -> Vec<u8> {
                let size = <$ty as Storable>::BYTES as usize;
                host.to_bits64().to_le_bytes()[..size].to_vec()
            }
            fn read<'k>(k: &Kernel<'k>, index: u32, name: &str) -> Val<'k, $ty> {
                read_number(k, index, name)
            }
        }
    )*};
}
number_params!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 half::f16 half::bf16);

fn read_number<'k, T: Scalar>(k: &Kernel<'k>, index: u32, name: &str) -> Val<'k, T> {
    let reg = k.rec.reg(T::KIND.class());
    k.rec.name_reg(reg, name);
    k.rec.prologue_op(
        format!("ld.param.{}", ScalarKind::memory(T::KIND)),
        vec![reg.into(), Opnd::Address(Base::Param(index), 0)],
        k.rec.place,
    );
    Val::from_reg(*k, reg)
}

/// A parameter's place in the kernel's parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// The field's name.
    pub name: &'static str,
    /// Bytes from the start.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
    /// What it is.
    pub kind: ParamKind,
}

/// A parameter's value, ready for a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamValue {
    /// The field's name.
    pub name: &'static str,
    /// Little-endian bytes, as many as its size.
    pub bytes: Vec<u8>,
    /// What it is.
    pub kind: ParamKind,
}

/// The parameters of a kernel with a `B` in place of every address and tensor map:
/// `Args<With<B>>` for a struct declared with [`kernel_params!`](crate::kernel_params).
pub trait ParamsWith<B> {
    /// The parameters in order, as a runner that owns memory takes them.
    fn passed(self) -> Vec<Passed<B>>;
}

/// A struct declared with [`kernel_params!`](crate::kernel_params).
pub trait KernelParams: 'static {
    /// The same struct inside the kernel.
    type Device<'k>;
    /// The same struct with a `B` in place of every address: see [`With`].
    type With<B: Clone + fmt::Debug>: ParamsWith<B>;
    #[doc(hidden)]
    fn shapes() -> Vec<(&'static str, ParamShape)>;
    #[doc(hidden)]
    fn read<'k>(k: &Kernel<'k>) -> Self::Device<'k>;
    /// The values in order, as a launch takes them.
    fn values(&self) -> Vec<ParamValue>;

    /// The arguments of a launch in order, for a runner that owns memory: what was
    /// given in place of an address stays as it is, and a number becomes its bytes,
    /// as many as its field has.
    ///
    /// ```
    /// use heist_builder::*;
    /// kernel_params! { pub struct Args { data: Global<f32>, factor: f64, n: u32 } }
    /// let own = Args { data: vec![7u8; 8], factor: 2.0, n: 2 };
    /// let arguments: Vec<Vec<u8>> = Args::arguments(own);
    /// assert_eq!(arguments[0], [7; 8]);
    /// assert_eq!(arguments[1], 2.0f64.to_le_bytes());
    /// assert_eq!(arguments[2], [2, 0, 0, 0]);
    /// ```
    fn arguments<B: From<Vec<u8>> + Clone + fmt::Debug>(own: Self::With<B>) -> Vec<B> {
        let one = |passed| match passed {
            Passed::Number(number) => B::from(number.bytes),
            Passed::Buffer { data, .. } => data,
        };
        own.passed().into_iter().map(one).collect()
    }

    /// Name, offset, size and alignment of each parameter.
    fn layout() -> Vec<ParamInfo> {
        let mut end = 0u32;
        Self::shapes()
            .into_iter()
            .map(|(name, shape)| {
                let offset = end.next_multiple_of(shape.align);
                end = offset + shape.size;
                ParamInfo {
                    name,
                    offset,
                    size: shape.size,
                    align: shape.align,
                    kind: shape.kind,
                }
            })
            .collect()
    }
}

/// Declares a kernel's parameters once, for the host and the kernel.
///
/// A field's type is a number (`u32`, `f32`, ...), [`Global<T>`](crate::Global)
/// for a pointer to global memory, or [`TensorMap`](crate::TensorMap). On the
/// host `Args` has plain numbers and [`DevicePtr`]s; the kernel's body receives
/// `Args<On<'k>>`, with [`Val`](crate::Val)s and [`Ptr`](crate::Ptr)s.
#[macro_export]
macro_rules! kernel_params {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {}

        impl<B: ::std::clone::Clone + ::std::fmt::Debug> $crate::ParamsWith<B> for $name {
            fn passed(self) -> ::std::vec::Vec<$crate::Passed<B>> {
                ::std::vec::Vec::new()
            }
        }

        impl $crate::KernelParams for $name {
            type Device<'k> = $name;
            type With<B: ::std::clone::Clone + ::std::fmt::Debug> = $name;
            fn shapes() -> ::std::vec::Vec<(&'static str, $crate::ParamShape)> {
                ::std::vec::Vec::new()
            }
            fn read<'k>(_: &$crate::Kernel<'k>) -> $name {
                $name {}
            }
            fn values(&self) -> ::std::vec::Vec<$crate::ParamValue> {
                ::std::vec::Vec::new()
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident : $ty:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name<S: $crate::Side = $crate::Host> {
            $($(#[$field_meta])* #[allow(missing_docs)] pub $field: S::Of<$ty>,)+
        }

        impl<B: ::std::clone::Clone + ::std::fmt::Debug> $crate::ParamsWith<B>
            for $name<$crate::With<B>>
        {
            fn passed(self) -> ::std::vec::Vec<$crate::Passed<B>> {
                ::std::vec![$(<$ty as $crate::Param>::pass(stringify!($field), self.$field),)+]
            }
        }

        impl $crate::KernelParams for $name {
            type Device<'k> = $name<$crate::On<'k>>;
            type With<B: ::std::clone::Clone + ::std::fmt::Debug> = $name<$crate::With<B>>;
            fn shapes() -> ::std::vec::Vec<(&'static str, $crate::ParamShape)> {
                ::std::vec![$((stringify!($field), <$ty as $crate::Param>::shape()),)+]
            }
            fn read<'k>(k: &$crate::Kernel<'k>) -> $name<$crate::On<'k>> {
                let mut index = 0u32..;
                $(let $field = <$ty as $crate::Param>::read(
                    k,
                    index.next().unwrap_or(0),
                    stringify!($field),
                );)+
                $name { $($field,)+ }
            }
            fn values(&self) -> ::std::vec::Vec<$crate::ParamValue> {
                ::std::vec![$($crate::ParamValue {
                    name: stringify!($field),
                    bytes: <$ty as $crate::Param>::bytes(&self.$field),
                    kind: <$ty as $crate::Param>::shape().kind,
                },)+]
            }
        }
    };
}
