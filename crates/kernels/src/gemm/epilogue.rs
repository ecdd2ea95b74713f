//! From sums to results: scaled, added to, activated, rounded and stored.

use super::problem::{Activation, Epilogue};
use heist_build::{Global, Half, Kernel, Ptr, Storable, Val, WarpTile, WgmmaResult, bf16, f16};

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

    /// Stores a warp's sums.
    pub(crate) fn store<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sums: &impl Sums<'k>,
        to: &To<'k, T>,
    ) {
        sums.pairs(&|row, col, pair| {
            let inside = match to.rows {
                None => k.c(true),
                Some(rows) => row.lt(rows),
            };
            k.if_(inside, || {
                let at = row.mul_add(to.pitch, col);
                let Some(cols) = to.cols else {
                    let pair = self.pair(k, pair, at, col, to);
                    return self.put(to.d.at(at), pair);
                };
                let both = (col + 1).lt(cols);
                k.if_else(
                    both,
                    || {
                        let pair = self.pair(k, pair, at, col, to);
                        self.put(to.d.at(at), pair);
                    },
                    || {
                        k.if_(col.lt(cols), || {
                            let value = self.value(k, pair[0], at, col, to);
                            to.d.at(at).store(T::round(value));
                        });
                    },
                );
            });
        });
    }

    fn put<'k, T: Stored>(&self, at: Ptr<'k, Global, T>, pair: [Val<'k, f32>; 2]) {
        if self.pairs {
            T::store_pair(at, pair);
        } else {
            at.store(T::round(pair[0]));
            at.at(1).store(T::round(pair[1]));
        }
    }

    fn pair<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        [low, high]: [Val<'k, f32>; 2],
        at: Val<'k, u32>,
        col: Val<'k, u32>,
        to: &To<'k, T>,
    ) -> [Val<'k, f32>; 2] {
        [
            self.value(k, low, at, col, to),
            self.value(k, high, at + 1, col + 1, to),
        ]
    }

    /// One result in f32.
    fn value<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sum: Val<'k, f32>,
        at: Val<'k, u32>,
        col: Val<'k, u32>,
        to: &To<'k, T>,
    ) -> Val<'k, f32> {
        let mut value = sum;
        if self.scaled {
            value = value * to.alpha;
        }
        if self.adds {
            value = to.c.at(at).load().cast::<f32>().mul_add(to.beta, value);
        }
        if self.bias {
            value = value + to.bias.at(col).load().cast::<f32>();
        }
        activate(k, value, self.activation)
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
