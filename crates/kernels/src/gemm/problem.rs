//! The problem of a multiplication: shapes, types, layouts, and the epilogue.

use super::mx::mx_count;
use super::scales::BLOCK;
use crate::error::KernelError;
use crate::job::Work;
use heist_launch::ElementType;
use std::fmt;
use std::str::FromStr;

/// An enum with a word for each case.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident: $what:literal { $($(#[$case_meta:meta])* $case:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$case_meta])* $case,)*
        }

        impl $name {
            /// All there are.
            pub const ALL: &'static [$name] = &[$($name::$case,)*];

            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$case => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = KernelError;
            fn from_str(text: &str) -> Result<$name, KernelError> {
                let known = [$($word,)*];
                $name::ALL.iter().copied().find(|case| case.as_str() == text).ok_or_else(|| {
                    KernelError::unfit(format!("`{text}` is no {}: there are {}", $what, known.join(", ")))
                })
            }
        }
    };
}

words! {
    /// The type of the two matrices that are multiplied.
    Input: "type of inputs" {
        /// IEEE half precision.
        F16 = "f16",
        /// The upper half of an f32.
        Bf16 = "bf16",
        /// f32 in memory, of which the tensor cores take the upper 19 bits.
        Tf32 = "tf32",
        /// Eight bits, three of them fraction: up to 448.
        E4m3 = "e4m3",
        /// Eight bits, two of them fraction: up to 57344.
        E5m2 = "e5m2",
    }
}

words! {
    /// The type of the result.
    Output: "type of results" {
        /// IEEE half precision.
        F16 = "f16",
        /// The upper half of an f32.
        Bf16 = "bf16",
        /// Single precision, as it is summed.
        F32 = "f32",
    }
}

words! {
    /// Which of the matrices are stored transposed: A is m x k and B is k x n,
    /// row after row, each the other way around where there is a `t`.
    Layout: "layout" {
        /// A m x k, B k x n.
        Nn = "nn",
        /// A m x k, B n x k.
        Nt = "nt",
        /// A k x m, B k x n.
        Tn = "tn",
        /// A k x m, B n x k.
        Tt = "tt",
    }
}

words! {
    /// What the elements of A and B are multiplied by: factors in memory, f32 unless it says otherwise.
    Scales: "kind of scales" {
        /// Nothing.
        None = "none",
        /// One for each matrix.
        Tensor = "tensor",
        /// One for each row of A and one for each column of B.
        Rows = "rows",
        /// One for each row of A and 128 elements of the depth, and one for each block of
        /// 128 columns of B and 128 elements of the depth: of 8-bit floats.
        Blocks = "blocks",
        /// A power of two (ue8m0, an exponent of eight bits) for each row of A, and each column of B,
        /// and 32 elements of the depth: of 8-bit floats, on Blackwell. They lie in blocks of 128
        /// rows by 4 powers ([`mx_place`](super::mx_place)).
        Mx = "mx",
    }
}

words! {
    /// How products of 8-bit floats are added. Tensor cores keep 13 bits of fraction
    /// when they do; all other types are added in f32.
    Summing: "way to sum" {
        /// Two levels: tensor cores accumulate up to 512 elements of the depth (128 where blocks have
        /// scales), threads add these sums in f32.
        Levels = "levels",
        /// By the tensor cores alone: faster, and less exact for a larger depth.
        Fast = "fast",
    }
}

words! {
    /// What of C there is in memory: the others of its elements are the same again.
    Spread: "form of C" {
        /// All of it.
        Matrix = "matrix",
        /// One row.
        Row = "row",
        /// One column.
        Column = "column",
        /// One element.
        One = "one",
    }
}

words! {
    /// What is done to an element before it is stored.
    Activation: "activation" {
        /// Nothing.
        None = "none",
        /// The positive part.
        Relu = "relu",
        /// `x * Phi(x)`, by its approximation with tanh.
        Gelu = "gelu",
        /// `x / (1 + exp(-x))`.
        Silu = "silu",
    }
}

impl Input {
    /// As it lies in memory.
    pub const fn element(self) -> ElementType {
        match self {
            Input::F16 => ElementType::F16,
            Input::Bf16 => ElementType::Bf16,
            Input::Tf32 => ElementType::F32,
            Input::E4m3 => ElementType::E4m3,
            Input::E5m2 => ElementType::E5m2,
        }
    }

    /// Whether it is a float of eight bits.
    pub const fn is_tiny(self) -> bool {
        matches!(self, Input::E4m3 | Input::E5m2)
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        self.element().bytes() as u32
    }
}

impl Output {
    /// As it lies in memory.
    pub const fn element(self) -> ElementType {
        match self {
            Output::F16 => ElementType::F16,
            Output::Bf16 => ElementType::Bf16,
            Output::F32 => ElementType::F32,
        }
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        self.element().bytes() as u32
    }
}

/// Along which axis an operand's elements are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// Along the depth, k.
    Depth,
    /// Along the other one: m for A, n for B.
    Outer,
}

impl Layout {
    /// Of A.
    pub const fn a(self) -> Major {
        match self {
            Layout::Nn | Layout::Nt => Major::Depth,
            Layout::Tn | Layout::Tt => Major::Outer,
        }
    }

    /// Of B.
    pub const fn b(self) -> Major {
        match self {
            Layout::Nt | Layout::Tt => Major::Depth,
            Layout::Nn | Layout::Tn => Major::Outer,
        }
    }
}

/// The epilogue: `activation(alpha * sum + beta * C + bias)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of C, which is not read where this is zero.
    pub beta: f32,
    /// What of C is stored. A part of it is one for all products of a batch, its elements follow each other.
    pub spread: Spread,
    /// Whether a vector of n elements is added to every row.
    pub bias: bool,
    /// What is done last.
    pub activation: Activation,
}

impl Default for Epilogue {
    fn default() -> Epilogue {
        Epilogue {
            alpha: 1.0,
            beta: 0.0,
            spread: Spread::Matrix,
            bias: false,
            activation: Activation::None,
        }
    }
}

impl Epilogue {
    /// What of C is stored, where it is added.
    pub fn added(&self) -> Option<Spread> {
        (self.beta != 0.0).then_some(self.spread)
    }
}

/// The most elements from one stored row to the next.
const MOST_PITCH: u32 = 1 << 23;

/// A multiplication: `D = activation(alpha * A * B + beta * C + bias)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// The depth.
    pub k: u32,
    /// How many such products there are. Their matrices follow each other in memory, and
    /// the bias is one for all.
    pub batch: u32,
    /// The type of A and B.
    pub input: Input,
    /// The type of C, D and the bias.
    pub output: Output,
    /// Which of A and B are transposed.
    pub layout: Layout,
    /// What A and B are multiplied by.
    pub scales: Scales,
    /// How products of 8-bit floats are added.
    pub sums: Summing,
    /// What becomes of the sums.
    pub epilogue: Epilogue,
    /// Elements from one stored row of A to the next.
    pub lda: u32,
    /// Of B.
    pub ldb: u32,
    /// Of C and D.
    pub ldc: u32,
    /// Whether A, and B, begin at any element, and not at a multiple of 16 bytes: as views in the middle of a matrix may.
    pub anywhere: [bool; 2],
}

impl Gemm {
    /// Of matrices without gaps between their rows.
    pub fn new(m: u32, n: u32, k: u32, input: Input, output: Output, layout: Layout) -> Gemm {
        Gemm {
            m,
            n,
            k,
            batch: 1,
            input,
            output,
            layout,
            scales: Scales::None,
            sums: Summing::Levels,
            epilogue: Epilogue::default(),
            lda: match layout.a() {
                Major::Depth => k,
                Major::Outer => m,
            },
            ldb: match layout.b() {
                Major::Depth => k,
                Major::Outer => n,
            },
            ldc: n,
            anywhere: [false; 2],
        }
    }

    /// The same with another epilogue.
    #[must_use]
    pub fn epilogue(mut self, epilogue: Epilogue) -> Gemm {
        self.epilogue = epilogue;
        self
    }

    /// The same with scales.
    #[must_use]
    pub fn scales(mut self, scales: Scales) -> Gemm {
        self.scales = scales;
        self
    }

    /// As many of them, one after the other.
    #[must_use]
    pub fn batch(mut self, batch: u32) -> Gemm {
        self.batch = batch;
        self
    }

    /// Whether products are accumulated in two levels.
    pub(crate) fn in_levels(&self) -> bool {
        self.input.is_tiny() && (self.scales == Scales::Blocks || self.sums == Summing::Levels)
    }

    /// How many scales A and B have.
    pub fn scale_counts(&self) -> [usize; 2] {
        let [m, n, k] = [self.m, self.n, self.k].map(|extent| extent as usize);
        let blocks = |extent: usize| extent.div_ceil(BLOCK as usize);
        match self.scales {
            Scales::None => [0, 0],
            Scales::Tensor => [1, 1],
            Scales::Rows => [m, n],
            Scales::Blocks => [m * blocks(k), blocks(n) * blocks(k)],
            Scales::Mx => [self.m, self.n].map(|outer| mx_count(outer, self.k)),
        }
    }

    /// The type of these scales.
    pub const fn scale_element(&self) -> ElementType {
        match self.scales {
            Scales::Mx => ElementType::U8,
            _ => ElementType::F32,
        }
    }

    /// Rows that A is stored in.
    pub fn rows_of_a(&self) -> u32 {
        match self.layout.a() {
            Major::Depth => self.m,
            Major::Outer => self.k,
        }
    }

    /// Rows that B is stored in.
    pub fn rows_of_b(&self) -> u32 {
        match self.layout.b() {
            Major::Depth => self.n,
            Major::Outer => self.k,
        }
    }

    /// How many elements of C there are, where a matrix like the result has so many.
    pub fn stored_of_c(&self, result: u64) -> u64 {
        match self.epilogue.added() {
            None => 0,
            Some(Spread::Matrix) => result,
            Some(Spread::Row) => self.n.into(),
            Some(Spread::Column) => self.m.into(),
            Some(Spread::One) => 1,
        }
    }

    /// What it costs at least.
    pub fn work(&self) -> Work {
        let [m, n, k] = [self.m, self.n, self.k].map(f64::from);
        let result = self.output.element().bytes() as f64;
        let times = match self.epilogue.added() {
            Some(Spread::Matrix) => 2.0,
            _ => 1.0,
        };
        let one = (m + n) * k * f64::from(self.input.bytes()) + m * n * result * times;
        Work {
            flops: 2.0 * m * n * k * f64::from(self.batch),
            bytes: one * f64::from(self.batch),
        }
    }

    /// Fails where there is nothing to compute, or a row does not fit its pitch.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), KernelError> {
        if self.m == 0 || self.n == 0 || self.batch == 0 {
            return Err(KernelError::unfit(format!(
                "m={}, n={}, batch={}: a result with no elements; each must be at least 1",
                self.m, self.n, self.batch
            )));
        }
        if self.batch > 1 && !matches!(self.scales, Scales::None | Scales::Tensor) {
            return Err(KernelError::unfit(format!(
                "scales={} is for one product, not a batch of {}: take none or tensor",
                self.scales, self.batch
            )));
        }
        if matches!(self.scales, Scales::Blocks | Scales::Mx) && !self.input.is_tiny() {
            return Err(KernelError::unfit(format!(
                "scales of blocks are for e4m3 and e5m2, not {}: take rows or tensor",
                self.input
            )));
        }
        let row = |major, outer| match major {
            Major::Depth => self.k,
            Major::Outer => outer,
        };
        for (name, pitch, row) in [
            ("A", self.lda, row(self.layout.a(), self.m)),
            ("B", self.ldb, row(self.layout.b(), self.n)),
            ("C", self.ldc, self.n),
        ] {
            // Offsets inside of a tile have 32 bits.
            if pitch > MOST_PITCH {
                return Err(KernelError::unfit(format!(
                    "rows of {name} that start {pitch} elements apart are too far: at most {MOST_PITCH}"
                )));
            }
            if pitch < row {
                return Err(KernelError::unfit(format!(
                    "a row of {name} has {row} elements, and the next starts {pitch} further"
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gemm { m, n, k, .. } = self;
        if self.batch > 1 {
            write!(f, "{} of ", self.batch)?;
        }
        write!(
            f,
            "{m}x{n}x{k} {} {}->{}",
            self.layout, self.input, self.output
        )?;
        if self.scales != Scales::None {
            write!(f, " scales={}", self.scales)?;
        }
        if self.input.is_tiny() && !self.in_levels() {
            f.write_str(" fast")?;
        }
        for (name, anywhere) in ["a", "b"].into_iter().zip(self.anywhere) {
            if anywhere {
                write!(f, " {name}-anywhere")?;
            }
        }
        Ok(())
    }
}
