//! The parameters that the scheduler appends to a kernel's own.

use heist_builder::{
    DevicePtr, Global, Kernel, KernelParams, Param, ParamShape, ParamValue, ParamsWith, Passed,
    Ptr, Val,
};
use std::fmt;

/// A kernel's own parameters and, behind them, the scheduler's.
///
/// [`TiledKernel::arguments`](crate::TiledKernel::arguments) fills them in; a program that keeps
/// its own device memory between launches fills in this struct.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled<A> {
    /// The kernel's own.
    pub args: A,
    /// The scheduler's.
    pub hidden: Hidden,
}

/// The scheduler's parameters on the host.
#[derive(Clone, Copy, Debug)]
pub struct Hidden {
    /// [`CONTROL_WORDS`](crate::CONTROL_WORDS) of the launch's own, zero before the
    /// first launch that uses them. A launch leaves them as it found them (unless a
    /// policy was overruled), so the next one can use them as they are; launches
    /// that may overlap need different ones.
    pub control: DevicePtr<u64>,
    /// Where a watched kernel writes its records.
    pub watch: DevicePtr<u64>,
    /// The order's table.
    pub table: DevicePtr<u32>,
    /// The numbers, in order.
    pub numbers: Numbers,
}

/// The same for a runner that owns memory: a `B` in place of every address.
#[derive(Clone, Debug)]
pub struct ScheduledWith<O, B> {
    /// The kernel's own.
    pub args: O,
    /// The scheduler's.
    pub hidden: HiddenWith<B>,
}

/// The scheduler's parameters for a runner that owns memory: see [`Hidden`].
#[derive(Clone, Debug)]
pub struct HiddenWith<B> {
    /// The four control words.
    pub control: B,
    /// The records.
    pub watch: B,
    /// The order's table.
    pub table: B,
    /// The numbers, in order.
    pub numbers: Numbers,
}

impl<O: ParamsWith<B>, B: Clone + fmt::Debug> ParamsWith<B> for ScheduledWith<O, B> {
    fn passed(self) -> Vec<Passed<B>> {
        let HiddenWith {
            control,
            watch,
            table,
            numbers,
        } = self.hidden;
        let mut passed = self.args.passed();
        passed.push(<Global<u64> as Param>::pass("heist_control", control));
        passed.push(<Global<u64> as Param>::pass("heist_watch", watch));
        passed.push(<Global<u32> as Param>::pass("heist_table", table));
        let numbers = NUMBERS.into_iter().zip(numbers.to_array());
        passed.extend(numbers.map(|(name, number)| <u32 as Param>::pass(name, number)));
        passed
    }
}

/// The scheduler's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Tiles along x, y and z.
    pub tiles: [u32; 3],
    /// Clusters of tiles along x and y.
    pub clusters: [u32; 2],
    /// Clusters of tiles in all.
    pub count: u32,
    /// Clusters that the GPU runs at a time.
    pub resident: u32,
}

impl Numbers {
    /// As the kernel takes them.
    pub fn to_array(self) -> [u32; 7] {
        let ([x, y, z], [cx, cy]) = (self.tiles, self.clusters);
        [x, y, z, cx, cy, self.count, self.resident]
    }
}

/// The scheduler's parameters inside a kernel.
#[derive(Clone, Copy, Debug)]
pub struct HiddenOn<'k> {
    pub(crate) control: Ptr<'k, Global, u64>,
    pub(crate) watch: Ptr<'k, Global, u64>,
    pub(crate) table: Ptr<'k, Global, u32>,
    pub(crate) tiles: [Val<'k, u32>; 3],
    pub(crate) clusters: [Val<'k, u32>; 2],
    pub(crate) count: Val<'k, u32>,
    pub(crate) resident: Val<'k, u32>,
}

impl<'k> HiddenOn<'k> {
    /// How many clusters start with the tile of their own number where as many do as the GPU runs at a time.
    pub(crate) fn first(&self) -> Val<'k, u32> {
        self.resident.min(self.count)
    }
}

const NUMBERS: [&str; 7] = [
    "heist_tiles_x",
    "heist_tiles_y",
    "heist_tiles_z",
    "heist_clusters_x",
    "heist_clusters_y",
    "heist_tiles",
    "heist_resident",
];

impl<A: KernelParams> KernelParams for Scheduled<A> {
    type Device<'k> = (A::Device<'k>, HiddenOn<'k>);
    type With<B: Clone + fmt::Debug> = ScheduledWith<A::With<B>, B>;

    fn shapes() -> Vec<(&'static str, ParamShape)> {
        let mut shapes = A::shapes();
        shapes.push(("heist_control", <Global<u64> as Param>::shape()));
        shapes.push(("heist_watch", <Global<u64> as Param>::shape()));
        shapes.push(("heist_table", <Global<u32> as Param>::shape()));
        shapes.extend(NUMBERS.map(|name| (name, <u32 as Param>::shape())));
        shapes
    }

    fn read<'k>(k: &Kernel<'k>) -> Self::Device<'k> {
        let args = A::read(k);
        let first = A::shapes().len() as u32;
        let number = |at: usize| <u32 as Param>::read(k, first + 3 + at as u32, NUMBERS[at]);
        let hidden = HiddenOn {
            control: <Global<u64> as Param>::read(k, first, "heist_control"),
            watch: <Global<u64> as Param>::read(k, first + 1, "heist_watch"),
            table: <Global<u32> as Param>::read(k, first + 2, "heist_table"),
            tiles: [number(0), number(1), number(2)],
            clusters: [number(3), number(4)],
            count: number(5),
            resident: number(6),
        };
        (args, hidden)
    }

    fn values(&self) -> Vec<ParamValue> {
        let mut values = self.args.values();
        let mut push = |name, bytes, shape: ParamShape| {
            values.push(ParamValue {
                name,
                bytes,
                kind: shape.kind,
            });
        };
        let hidden = &self.hidden;
        let wide = <Global<u64> as Param>::shape();
        push("heist_control", Global::<u64>::bytes(&hidden.control), wide);
        push("heist_watch", Global::<u64>::bytes(&hidden.watch), wide);
        let table = Global::<u32>::bytes(&hidden.table);
        push("heist_table", table, <Global<u32> as Param>::shape());
        for (name, number) in NUMBERS.into_iter().zip(hidden.numbers.to_array()) {
            push(name, number.to_le_bytes().to_vec(), <u32 as Param>::shape());
        }
        values
    }
}
