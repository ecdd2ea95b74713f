//! From sums to results: scaled, added to, activated, rounded and stored.

use super::problem::{Activation, Epilogue};
use heist_build::{
    Bool, Global, Half, Kernel, Ptr, Storable, Val, WarpTile, WgmmaResult, bf16, f16,
};
use std::cell::RefCell;

/// Pairs whose addends are read before the first of them is finished.
const BATCH: usize = 8;

/// A type that results are stored in.
pub(crate) trait Stored: Storable {
    /// Rounded.
    fn round(value: Val<'_, f32>) -> Val<'_, Self>;
    /// Two neighbours in one store.
    fn store_pair<'k>(at: Ptr<'k, Global, Self>, pair: [Val<'k, f32>; 2]);
}

macro_rules! halves {
    ($($ty:ty),*) => {$(
        impl Stored for $ty {
            fn round(value: Val<'_, f32>) -> Val<'_, $ty> {
                value.cast()
            }
            fn store_pair<'k>(at: Ptr<'k, Global, $ty>, [low, high]: [Val<'k, f32>; 2]) {
                at.cast::<<$ty as Half>::Pair>().store(Val::pack_as::<$ty>(low, high));
            }
        }
    )*};
}
halves!(f16, bf16);

impl Stored for f32 {
    fn round(value: Val<'_, f32>) -> Val<'_, f32> {
        value
    }
    fn store_pair<'k>(at: Ptr<'k, Global, f32>, pair: [Val<'k, f32>; 2]) {
        at.store_vec(pair);
    }
}

/// Sums of a warp, as neighbours two by two with their row and column.
pub(crate) trait Sums<'k> {
    /// Calls `each` with all of them.
    fn pairs(&self, each: &dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, f32>; 2]));
}

impl<'k> Sums<'k> for WarpTile<'k> {
    fn pairs(&self, each: &dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, f32>; 2])) {
        self.each_pair(each);
    }
}

impl<'k> Sums<'k> for WgmmaResult<'k> {
    fn pairs(&self, each: &dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, f32>; 2])) {
        self.each_pair(each);
    }
}

/// Where a warp's results go.
#[derive(Clone, Copy)]
pub(crate) struct To<'k, T> {
    /// The first element of the warp's tile of D.
    pub(crate) d: Ptr<'k, Global, T>,
    /// Of C.
    pub(crate) c: Ptr<'k, Global, T>,
    /// The bias of the warp's first column.
    pub(crate) bias: Ptr<'k, Global, T>,
    /// Elements from one row of C and D to the next.
    pub(crate) pitch: Val<'k, u32>,
    /// Rows from there on that are inside; `None` where all of the tile's are.
    pub(crate) rows: Option<Val<'k, u32>>,
    /// Columns likewise.
    pub(crate) cols: Option<Val<'k, u32>>,
    /// The factors.
    pub(crate) alpha: Val<'k, f32>,
    /// Of C.
    pub(crate) beta: Val<'k, f32>,
}

/// What is emitted of an epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    pub(crate) scaled: bool,
    pub(crate) adds: bool,
    pub(crate) bias: bool,
    pub(crate) activation: Activation,
    /// Whether every row of C and D starts at a multiple of two elements.
    pub(crate) pairs: bool,
}

impl Finish {
    pub(crate) fn new(epilogue: &Epilogue, pitch: u32) -> Finish {
        Finish {
            scaled: epilogue.alpha != 1.0,
            adds: epilogue.beta != 0.0,
            bias: epilogue.bias,
            activation: epilogue.activation,
            pairs: pitch.is_multiple_of(2),
        }
    }

    /// Stores a warp's sums. What is added to them is read a batch at a time: were
    /// each pair read, finished and stored before the next one is read, then every
    /// read would be waited for, since it may not pass the store before it.
    pub(crate) fn store<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sums: &impl Sums<'k>,
        to: &To<'k, T>,
    ) {
        let pairs = RefCell::new(Vec::new());
        sums.pairs(&|row, col, pair| pairs.borrow_mut().push((row, col, pair)));
        for batch in pairs.into_inner().chunks(BATCH) {
            let read = batch.iter().map(|&(row, col, sums)| {
                let place = Place::new(k, row, col, to);
                (place, sums, self.addends(k, &place, to))
            });
            for (place, sums, addends) in read.collect::<Vec<_>>() {
                let [low, high] = [0, 1].map(|i| self.value(k, sums[i], addends, i, to));
                let d = to.d.at(place.at);
                place.inside(k, || self.put(d, [low, high]), || d.store(T::round(low)));
            }
        }
    }

    fn put<'k, T: Stored>(&self, at: Ptr<'k, Global, T>, pair: [Val<'k, f32>; 2]) {
        if self.pairs {
            T::store_pair(at, pair);
        } else {
            at.store(T::round(pair[0]));
            at.at(1).store(T::round(pair[1]));
        }
    }

    /// What is added to the sums of a place.
    fn addends<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        place: &Place<'k>,
        to: &To<'k, T>,
    ) -> Addends<'k> {
        Addends {
            c: self.adds.then(|| {
                let c = to.c.at(place.at);
                place.read(
                    k,
                    || match self.pairs {
                        true => c.load_vec::<2>(),
                        false => [c.load(), c.at(1).load()],
                    },
                    || c.load(),
                )
            }),
            bias: self.bias.then(|| {
                let bias = to.bias.at(place.col);
                place.read(k, || bias.load_vec_readonly::<2>(), || bias.load_readonly())
            }),
        }
    }

    /// One result in f32: the low one of a pair, or the high one.
    fn value<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sum: Val<'k, f32>,
        addends: Addends<'k>,
        which: usize,
        to: &To<'k, T>,
    ) -> Val<'k, f32> {
        let mut value = sum;
        if self.scaled {
            value = value * to.alpha;
        }
        if let Some(c) = addends.c {
            value = c[which].mul_add(to.beta, value);
        }
        if let Some(bias) = addends.bias {
            value = value + bias[which];
        }
        activate(k, value, self.activation)
    }
}

/// What is added to a pair of sums.
#[derive(Clone, Copy)]
struct Addends<'k> {
    c: Option<[Val<'k, f32>; 2]>,
    bias: Option<[Val<'k, f32>; 2]>,
}

/// Where a pair of results goes, and how much of it is inside.
#[derive(Clone, Copy)]
struct Place<'k> {
    /// From the first element of the warp's tile.
    at: Val<'k, u32>,
    col: Val<'k, u32>,
    both: Bool<'k>,
    /// Where one can be inside without the other.
    first: Option<Bool<'k>>,
}

impl<'k> Place<'k> {
    fn new<T>(k: &Kernel<'k>, row: Val<'k, u32>, col: Val<'k, u32>, to: &To<'k, T>) -> Place<'k> {
        let inside = to.rows.map_or(k.c(true), |rows| row.lt(rows));
        Place {
            at: row.mul_add(to.pitch, col),
            col,
            both: to.cols.map_or(inside, |cols| inside & (col + 1).lt(cols)),
            first: to.cols.map(|cols| inside & col.lt(cols)),
        }
    }

    /// `both` where the pair is inside, `first` where only its first element is.
    fn inside(&self, k: &Kernel<'k>, both: impl Fn(), first: impl Fn()) {
        match self.first {
            None => k.if_(self.both, both),
            Some(inside) => k.if_else(self.both, both, || k.if_(inside, &first)),
        }
    }

    /// What is there, of the elements that are inside.
    fn read<T: Stored>(
        &self,
        k: &Kernel<'k>,
        both: impl Fn() -> [Val<'k, T>; 2],
        first: impl Fn() -> Val<'k, T>,
    ) -> [Val<'k, f32>; 2] {
        let [low, high] = [k.var(0.0f32), k.var(0.0f32)];
        self.inside(
            k,
            || {
                let pair = both();
                low.set(pair[0].cast::<f32>());
                high.set(pair[1].cast::<f32>());
            },
            || low.set(first().cast::<f32>()),
        );
        [low.get(), high.get()]
    }
}

/// An activation in f32.
fn activate<'k>(k: &Kernel<'k>, x: Val<'k, f32>, activation: Activation) -> Val<'k, f32> {
    // x / (1 + exp(-y)): for a large negative y the divisor is infinite, and
    // the result zero, as it should be.
    let gate = |y: Val<'k, f32>| {
        let divisor = (y * -std::f32::consts::LOG2_E).exp2_approx() + 1.0;
        x * divisor.recip_approx()
    };
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Silu => gate(x),
        Activation::Gelu => {
            // tanh(u) = 2 / (1 + exp(-2u)) - 1, so x/2 * (1 + tanh(u)) is a gate.
            let root = 2.0 * (2.0 / std::f32::consts::PI).sqrt();
            let cubic = (x * x).mul_add(k.c(0.044_715 * root), k.c(root));
            gate(x * cubic)
        }
    }
}
