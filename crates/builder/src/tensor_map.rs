//! Tensor maps: a tensor in global memory as the copy engine sees it, passed as a kernel parameter.

use crate::bulk_store::PendingStore;
use crate::emit::{Base, Opnd};
use crate::kernel::Kernel;
use crate::params::{Param, ParamKind, ParamShape, Passed};
use crate::pointer::{Ptr, Shared};
use crate::scalar::{Class, Storable};
use crate::value::Val;
use heist_ptx::arch::Feature;
use std::fmt;
use std::marker::PhantomData;

/// A tensor map as a kernel parameter: `D` dimensions of `T`.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap<T, const D: usize>(PhantomData<T>);

/// A tensor map's 128 bytes, as the driver encodes them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct EncodedTensorMap(pub [u8; 128]);

impl fmt::Debug for EncodedTensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodedTensorMap")
    }
}

/// A tensor map inside the kernel.
pub struct TensorMapRef<'k, T, const D: usize> {
    k: Kernel<'k>,
    param: u32,
    address: crate::emit::Reg,
    /// Where copies take place; everywhere, if this is nothing.
    pub(crate) only: Option<crate::emit::Reg>,
    of: PhantomData<fn() -> T>,
}
impl<T, const D: usize> Clone for TensorMapRef<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const D: usize> Copy for TensorMapRef<'_, T, D> {}
impl<T, const D: usize> fmt::Debug for TensorMapRef<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMapRef(parameter {})", self.param)
    }
}

impl<T: Storable, const D: usize> Param for TensorMap<T, D> {
    type Host = EncodedTensorMap;
    type Device<'k> = TensorMapRef<'k, T, D>;
    type With<B: Clone + fmt::Debug> = B;
    fn pass<B: Clone + fmt::Debug>(name: &'static str, data: B) -> Passed<B> {
        let kind = Self::shape().kind;
        Passed::Buffer { name, data, kind }
    }
    fn shape() -> ParamShape {
        ParamShape {
            size: 128,
            align: 64,
            kind: ParamKind::TensorMap,
        }
    }
    fn bytes(host: &EncodedTensorMap) -> Vec<u8> {
        host.0.to_vec()
    }
    fn read<'k>(k: &Kernel<'k>, index: u32, name: &str) -> TensorMapRef<'k, T, D> {
        let place = k.rec.place;
        let (param, address) = (k.rec.reg(Class::B64), k.rec.reg(Class::B64));
        k.rec.name_reg(param, &format!("{name}_param"));
        k.rec.name_reg(address, name);
        let from = Opnd::AddressOf(Base::Param(index), 0);
        k.rec
            .prologue_op("mov.b64", vec![param.into(), from], place);
        k.rec
            .prologue_op("cvta.param.u64", vec![address.into(), param.into()], place);
        TensorMapRef {
            k: *k,
            param: index,
            address,
            only: None,
            of: PhantomData,
        }
    }
}

impl<'k, T: Storable, const D: usize> TensorMapRef<'k, T, D> {
    pub(crate) fn operand(&self, coordinates: [Val<'k, i32>; D]) -> Opnd {
        const { assert!(D >= 1 && D <= 5, "a tensor map has 1 to 5 dimensions") }
        let coordinates = coordinates.iter().map(|c| c.register().into()).collect();
        Opnd::TensorAddress(Base::Reg(self.address), coordinates)
    }

    /// Remembers how many bytes the map's box must have; a second size fails.
    #[track_caller]
    pub(crate) fn box_has(&self, bytes: u32) {
        self.k.require(Feature::ParamGeneric);
        let mut boxes = self.k.rec.tensor_boxes.borrow_mut();
        match boxes.iter().find(|(param, _)| *param == self.param) {
            Some((_, known)) if *known != u64::from(bytes) => {
                self.k.fail(format!(
                    "one tensor map used with boxes of {known} and of {bytes} bytes"
                ));
            }
            Some(_) => {}
            None => boxes.push((self.param, bytes.into())),
        }
    }

    /// This map, or at an edge another one of the same tensor, whose box has fewer rows: those inside of the tensor. Rows outside cost
    /// the copy engine more than others, and this way there are none. What the box does not fill stays as it is; whoever
    /// waits expects that many bytes less ([`BulkProducer::fill_less`](crate::BulkProducer::fill_less)).
    #[must_use]
    #[track_caller]
    pub fn or_edge(self, at_edge: Val<'k, bool>, edge: TensorMapRef<'k, T, D>) -> Self {
        self.k.require(Feature::ParamGeneric);
        let [own, edge] = [self, edge].map(|map| Val::<u64>::from_reg(self.k, map.address));
        let address = at_edge.select(edge, own).register();
        TensorMapRef { address, ..self }
    }

    /// The same, whose copies into shared memory take place only where this holds: for boxes that would lie outside. Whoever waits
    /// expects that many bytes less ([`BulkProducer::fill_less`](crate::BulkProducer::fill_less)).
    #[must_use]
    pub fn only_if(self, inside: Val<'k, bool>) -> Self {
        let only = Some(inside.register());
        TensorMapRef { only, ..self }
    }

    /// Fetches the map itself ahead of its first use.
    #[track_caller]
    pub fn prefetch(&self) {
        self.k.require(Feature::TensormapPrefetch);
        self.k.require(Feature::ParamGeneric);
        self.k.effect(
            "prefetch.tensormap",
            vec![Opnd::Address(Base::Reg(self.address), 0)],
        );
    }

    /// One thread starts writing a box from shared memory to the tensor. What
    /// the block wrote must have been made visible before:
    /// [`Kernel::fence_async_shared`] in every writer, then a barrier.
    #[track_caller]
    pub fn store(
        &self,
        from: crate::SharedArray<'k, T>,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        self.store_from(from.ptr(), from.bytes() as u32, coordinates)
    }

    /// The same from a tile without gaps between its rows.
    #[track_caller]
    pub fn store_tile(
        &self,
        from: crate::SharedTile<'k, T>,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        let bytes = from.rows() * from.pitch() * T::BYTES;
        self.store_from(from.ptr(), bytes, coordinates)
    }

    #[track_caller]
    fn store_from(
        &self,
        from: Ptr<'k, Shared, T>,
        bytes: u32,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        self.k.require(Feature::TensorCopy);
        self.box_has(bytes);
        self.k.effect(
            format!("cp.async.bulk.tensor.{D}d.global.shared::cta.tile.bulk_group"),
            vec![self.operand(coordinates), from.operand()],
        );
        PendingStore::commit(self.k)
    }
}
