//! Parameters of kernels that change scores: their own, and tables behind them.

use heist_builder::{
    Global, Kernel, KernelParams, On, Param, ParamShape, ParamValue, ParamsWith, Passed, With,
    kernel_params,
};
use heist_launch::Arg;
use std::fmt;

kernel_params! {
    /// Tables that changes of scores read. What a problem has no use for is some other
    /// buffer.
    pub struct ScoreArgs {
        /// A slope for each query head.
        slopes: Global<f32>,
        /// A score of no key for each query head.
        sinks: Global<f32>,
        /// How many keys of each sequence all of its queries see.
        prefixes: Global<u32>,
        /// The document of each key.
        documents: Global<u32>,
        /// Of a change of one's own.
        custom: Global<f32>,
        /// A number for each query and key.
        pairs: Global<u8>,
        /// How many of them from one sequence to the next.
        pairs_sequence: u32,
        /// From one query head to the next.
        pairs_head: u32,
        /// From one query to the next.
        pairs_row: u32,
    }
}

/// The parameters `A` of a kernel, and tables behind them.
#[derive(Debug)]
pub(in crate::attention) struct Modified<A> {
    args: A,
    score: ScoreArgs,
}

/// The same with a `B` for every address.
#[derive(Clone, Debug)]
pub(in crate::attention) struct ModifiedWith<W, B: Clone + fmt::Debug> {
    args: W,
    score: ScoreArgs<With<B>>,
}

impl<W: ParamsWith<B>, B: Clone + fmt::Debug> ParamsWith<B> for ModifiedWith<W, B> {
    fn passed(self) -> Vec<Passed<B>> {
        let mut passed = self.args.passed();
        passed.extend(self.score.passed());
        passed
    }
}

impl<A: KernelParams> KernelParams for Modified<A> {
    type Device<'k> = (A::Device<'k>, ScoreArgs<On<'k>>);
    type With<B: Clone + fmt::Debug> = ModifiedWith<A::With<B>, B>;

    fn shapes() -> Vec<(&'static str, ParamShape)> {
        [A::shapes(), ScoreArgs::shapes()].concat()
    }

    fn read<'k>(k: &Kernel<'k>) -> Self::Device<'k> {
        let args = A::read(k);
        let mut index = A::shapes().len() as u32..;
        let mut next = || index.next().unwrap_or_default();
        let score = ScoreArgs {
            slopes: <Global<f32> as Param>::read(k, next(), "slopes"),
            sinks: <Global<f32> as Param>::read(k, next(), "sinks"),
            prefixes: <Global<u32> as Param>::read(k, next(), "prefixes"),
            documents: <Global<u32> as Param>::read(k, next(), "documents"),
            custom: <Global<f32> as Param>::read(k, next(), "custom"),
            pairs: <Global<u8> as Param>::read(k, next(), "pairs"),
            pairs_sequence: <u32 as Param>::read(k, next(), "pairs_sequence"),
            pairs_head: <u32 as Param>::read(k, next(), "pairs_head"),
            pairs_row: <u32 as Param>::read(k, next(), "pairs_row"),
        };
        (args, score)
    }

    fn values(&self) -> Vec<ParamValue> {
        let mut values = self.args.values();
        values.extend(self.score.values());
        values
    }
}

/// The parameters of an attention kernel: `A` alone, or with tables behind them.
pub(in crate::attention) trait Parameters<A: KernelParams>:
    KernelParams
{
    /// Both inside of a kernel.
    fn parts<'k>(device: Self::Device<'k>) -> (A::Device<'k>, Option<ScoreArgs<On<'k>>>);
    /// Both for a launch.
    fn join(args: A::With<Arg>, score: ScoreArgs<With<Arg>>) -> Self::With<Arg>;
}

impl<A: KernelParams> Parameters<A> for A {
    fn parts<'k>(device: A::Device<'k>) -> (A::Device<'k>, Option<ScoreArgs<On<'k>>>) {
        (device, None)
    }

    fn join(args: A::With<Arg>, _: ScoreArgs<With<Arg>>) -> A::With<Arg> {
        args
    }
}

impl<A: KernelParams> Parameters<A> for Modified<A> {
    fn parts<'k>(device: Self::Device<'k>) -> (A::Device<'k>, Option<ScoreArgs<On<'k>>>) {
        (device.0, Some(device.1))
    }

    fn join(args: A::With<Arg>, score: ScoreArgs<With<Arg>>) -> Self::With<Arg> {
        ModifiedWith { args, score }
    }
}
