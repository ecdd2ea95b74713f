//! Types that results are stored in.

use heist_builder::{Half, Ptr, Space, Storable, Val, bf16, f16};

/// A type that results are stored in.
pub(crate) trait Stored: Storable {
    /// Rounded.
    fn round(value: Val<'_, f32>) -> Val<'_, Self>;
    /// Two neighbours in one store.
    fn store_pair<'k, S: Space>(at: Ptr<'k, S, Self>, pair: [Val<'k, f32>; 2]);
    /// Two neighbours in one word, where they fit into it.
    fn word<'k>(pair: [Val<'k, f32>; 2]) -> Option<Val<'k, u32>>;
    /// The two neighbours that a word has.
    fn pair(word: Val<'_, u32>) -> Option<[Val<'_, f32>; 2]>;
}

macro_rules! halves {
    ($($ty:ty),*) => {$(
        impl Stored for $ty {
            fn round(value: Val<'_, f32>) -> Val<'_, $ty> {
                value.cast()
            }
            fn store_pair<'k, S: Space>(at: Ptr<'k, S, $ty>, [low, high]: [Val<'k, f32>; 2]) {
                at.cast::<<$ty as Half>::Pair>().store(Val::pack_as::<$ty>(low, high));
            }
            fn word<'k>([low, high]: [Val<'k, f32>; 2]) -> Option<Val<'k, u32>> {
                Some(Val::pack_as::<$ty>(low, high).bitcast())
            }
            fn pair(word: Val<'_, u32>) -> Option<[Val<'_, f32>; 2]> {
                Some([word, word >> 16].map(|half| half.cast::<u16>().bitcast::<$ty>().cast()))
            }
        }
    )*};
}
halves!(f16, bf16);

impl Stored for f32 {
    fn round(value: Val<'_, f32>) -> Val<'_, f32> {
        value
    }
    fn store_pair<'k, S: Space>(at: Ptr<'k, S, f32>, pair: [Val<'k, f32>; 2]) {
        at.store_vec(pair);
    }
    fn word<'k>(_: [Val<'k, f32>; 2]) -> Option<Val<'k, u32>> {
        None
    }
    fn pair(_: Val<'_, u32>) -> Option<[Val<'_, f32>; 2]> {
        None
    }
}
