//! Operations on 64-bit numbers: as many at a time as the CPU's vectors allow, or one after another. The instruction set is
//! chosen at run time by the crate `pulp`.
//!
//! Each round of a batch applies the operation once to every number of a set, and its result is the operand of the next
//! round, so that no round can be left out. The recurrences are chosen so that no compiler may shorten them: integers add to
//! each other in turn (Fibonacci), as a constant step would be turned into one multiplication, and doubles may not be
//! rearranged at all. Batches of many chains and of a single one must come to the same numbers, bit for bit.

#![allow(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the instruction set chosen"
)]

use std::hint::black_box;

use pulp::{Arch, Simd, WithSimd, bytemuck};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rounds of a batch: the quickest takes some 20 µs.
pub const ROUNDS: u64 = 20_000;

/// Vectors of doubles worked on at a time. Four cycles of latency and two units ask for eight; with the constants
/// twelve still fit the sixteen registers of AVX2.
const VECTORS: usize = 12;

/// Integers that are multiplied at a time: the same number of AVX-512 vectors for both operands.
const FACTORS: usize = 96;

/// Integers that are divided at a time. There is no vector instruction for it, and no division waits for another.
const DIVIDENDS: usize = 16;

/// The kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Number {
    /// Unsigned integers of 64 bits.
    Integer,
    /// IEEE 754 doubles.
    Double,
}

/// What is done to numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// +
    Add,
    /// −
    Subtract,
    /// ×
    Multiply,
    /// ÷
    Divide,
    /// + × − ÷ in turn, in equal shares.
    Mixed,
    /// × and + in one instruction, counted as two operations; of doubles only.
    MultiplyAdd,
}

/// A kind of number and what is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// The numbers.
    pub number: Number,
    /// The operation.
    pub operation: Operation,
}

impl Work {
    /// All there is.
    pub const ALL: [Self; 11] = {
        use Number::{Double, Integer};
        use Operation::{Add, Divide, Mixed, Multiply, MultiplyAdd, Subtract};
        const fn of(number: Number, operation: Operation) -> Work {
            Work { number, operation }
        }
        [
            of(Integer, Add),
            of(Integer, Subtract),
            of(Integer, Multiply),
            of(Integer, Divide),
            of(Integer, Mixed),
            of(Double, Add),
            of(Double, Subtract),
            of(Double, Multiply),
            of(Double, Divide),
            of(Double, Mixed),
            of(Double, MultiplyAdd),
        ]
    };

    /// The one whose rate is the peak.
    pub const PEAK: Self = Self { number: Number::Double, operation: Operation::MultiplyAdd };

    /// Additions, subtractions, multiplications and divisions of integers.
    pub const MIXED_INTEGERS: Self = Self { number: Number::Integer, operation: Operation::Mixed };

    /// `integer +`, `double mixed`
    pub fn name(self) -> String {
        let number = match self.number {
            Number::Integer => "integer",
            Number::Double => "double",
        };
        let operation = match self.operation {
            Operation::Add => "+",
            Operation::Subtract => "−",
            Operation::Multiply => "×",
            Operation::Divide => "÷",
            Operation::Mixed => "mixed",
            Operation::MultiplyAdd => "×+",
        };
        format!("{number} {operation}")
    }

    fn per_round(self) -> u64 {
        match (self.number, self.operation) {
            (_, Operation::Mixed) => 4,
            // Two numbers add to each other, or two factors come in turn.
            (_, Operation::MultiplyAdd | Operation::Multiply)
            | (Number::Integer, Operation::Add | Operation::Subtract) => 2,
            (_, Operation::Divide) | (Number::Double, Operation::Add | Operation::Subtract) => 1,
        }
    }

    /// Operations that wait for one another in a batch of one chain.
    pub fn steps(self) -> u64 {
        // A multiplication and addition in one instruction is one step.
        let per_round = if self.operation == Operation::MultiplyAdd { 1 } else { self.per_round() };
        per_round * ROUNDS
    }

    /// Makes one batch on as many chains as keep the CPU busy.
    #[inline(never)]
    pub fn many(self) -> Batch {
        let lanes = Arch::new().dispatch(Many(self));
        Batch { operations: self.per_round() * ROUNDS * lanes.count, digest: lanes.sum, chains: lanes.count }
    }

    /// Makes one batch on one chain: every operation waits for the one before it. Returns the bits of what it comes to.
    #[inline(never)]
    pub fn one(self) -> u64 {
        Arch::new().dispatch(One(self))
    }
}

/// What a batch of many chains has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Operations on numbers.
    pub operations: u64,
    /// Sum of the bits of what all chains came to.
    pub digest: u64,
    /// How many chains there were.
    pub chains: u64,
}

impl Batch {
    /// The digest it must have, by what a single chain came to.
    pub fn must(self, one: u64) -> u64 {
        one.wrapping_mul(self.chains)
    }
}

/// The instruction set used, and how many doubles one of its vectors holds.
pub fn instruction_set() -> (&'static str, usize) {
    struct Lanes;
    impl WithSimd for Lanes {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F64_LANES
        }
    }
    let arch = Arch::new();
    (name(arch), arch.dispatch(Lanes))
}

#[cfg(target_arch = "x86_64")]
fn name(arch: Arch) -> &'static str {
    match arch {
        Arch::V4(_) => "AVX-512",
        Arch::V3(_) => "AVX2 and FMA",
        _ => "scalar SSE2",
    }
}

#[cfg(target_arch = "aarch64")]
fn name(arch: Arch) -> &'static str {
    match arch {
        Arch::Neon(_) => "NEON",
        _ => "scalar",
    }
}

/// Whether the peak is made by fused instructions; else each multiplication and addition is two.
pub fn is_fused() -> bool {
    instruction_set().1 > 1
}

struct Sum {
    sum: u64,
    count: u64,
}

fn sum_of(bits: &[u64]) -> Sum {
    Sum { sum: bits.iter().fold(0, |sum, bits| sum.wrapping_add(*bits)), count: bits.len() as u64 }
}

// The start and constants of each recurrence, passed through `black_box`: a compiler that knew them could know results.
const HALF: f64 = 0.5;
const FACTOR: f64 = 1.7;
const INVERSE: f64 = 1.0 / 1.7;
const DIVIDEND: f64 = 3.0;
const MIXED: [f64; 4] = [1.5, 2.5, 0.5, 30.0];
const INTEGERS: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
const INTEGER_DIVIDEND: u64 = 1 << 62;
const INTEGER_START: u64 = 3_037_000_499;
const INTEGER_MIXED: [u64; 4] = [5, 3, 7, 1 << 62];

// Macros, as a closure would be compiled by itself, without the instruction set chosen.

macro_rules! rounds {
    ($start:expr, $x:ident => $step:expr) => {{
        let mut all = black_box($start);
        for _ in 0..ROUNDS {
            for one in &mut all {
                let $x = *one;
                *one = $step;
            }
        }
        all
    }};
}

/// The same as `rounds!` on pairs of numbers that work on each other in turn.
macro_rules! pairs {
    ($count:expr, $start:expr, $x:ident, $y:ident => $step:expr) => {{
        let (mut a, mut b) = (black_box([$start.0; $count]), black_box([$start.1; $count]));
        for _ in 0..ROUNDS {
            for (a, b) in a.iter_mut().zip(&mut b) {
                let ($x, $y) = (*a, *b);
                *a = $step;
                let ($x, $y) = (*b, *a);
                *b = $step;
            }
        }
        a
    }};
}

/// Nothing here divides by zero.
#[inline(always)]
fn divide(dividend: u64, divisor: u64) -> u64 {
    dividend.checked_div(divisor).unwrap_or(0)
}

/// Stays below 2⁶⁰: what divides 2⁶² is 3 x + 8.
#[inline(always)]
fn integer_mixed(number: u64, [plus, times, minus, dividend]: [u64; 4]) -> u64 {
    divide(dividend, number.wrapping_add(plus).wrapping_mul(times).wrapping_sub(minus))
}

struct Many(Work);

impl WithSimd for Many {
    type Output = Sum;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Sum {
        let all = |value: f64| [simd.splat_f64s(value); VECTORS];
        let constant = |value: f64| simd.splat_f64s(black_box(value));
        let (a, b) = INTEGERS;
        let integers = (simd.splat_u64s(a), simd.splat_u64s(b));
        let doubles = match (self.0.number, self.0.operation) {
            (Number::Integer, Operation::Add) => {
                // Half as many, as there are two of each.
                let all = pairs!(VECTORS / 2, integers, x, y => simd.add_u64s(x, y));
                return sum_of(bytemuck::cast_slice(&all));
            }
            (Number::Integer, Operation::Subtract) => {
                let all = pairs!(VECTORS / 2, integers, x, y => simd.sub_u64s(x, y));
                return sum_of(bytemuck::cast_slice(&all));
            }
            (Number::Integer, Operation::Multiply) => {
                return sum_of(&pairs!(FACTORS, INTEGERS, x, y => u64::wrapping_mul(x, y)));
            }
            (Number::Integer, Operation::Divide) => {
                let dividend = black_box(INTEGER_DIVIDEND);
                return sum_of(&rounds!([INTEGER_START; DIVIDENDS], x => divide(dividend, x)));
            }
            (Number::Integer, _) => {
                let constants = black_box(INTEGER_MIXED);
                return sum_of(&rounds!([INTEGER_START; DIVIDENDS], x => integer_mixed(x, constants)));
            }
            (Number::Double, Operation::Add) => {
                let half = constant(HALF);
                rounds!(all(1.0), x => simd.add_f64s(x, half))
            }
            (Number::Double, Operation::Subtract) => {
                let half = constant(HALF);
                rounds!(all(1.0), x => simd.sub_f64s(x, half))
            }
            (Number::Double, Operation::Multiply) => {
                let (factor, inverse) = (constant(FACTOR), constant(INVERSE));
                rounds!(all(1.0), x => simd.mul_f64s(simd.mul_f64s(x, factor), inverse))
            }
            (Number::Double, Operation::Divide) => {
                let dividend = constant(DIVIDEND);
                rounds!(all(FACTOR), x => simd.div_f64s(dividend, x))
            }
            (Number::Double, Operation::Mixed) => {
                let [a, b, c, d] = MIXED.map(constant);
                rounds!(all(1.0), x => {
                    simd.div_f64s(d, simd.sub_f64s(simd.mul_f64s(simd.add_f64s(x, a), b), c))
                })
            }
            (Number::Double, Operation::MultiplyAdd) => {
                let (half, one) = (constant(HALF), constant(1.0));
                rounds!(all(FACTOR), x => simd.mul_add_e_f64s(x, half, one))
            }
        };
        sum_of(bytemuck::cast_slice(&doubles))
    }
}

/// One chain of a work, in the same instructions but on one number.
struct One(Work);

impl WithSimd for One {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        // Vectors of which only the first number is looked at: of single integers a CPU has an instruction that shifts and
        // adds, and a compiler makes a + 2 b by it instead of the second of two additions.
        let (a, b) = INTEGERS;
        let integers = (simd.splat_u64s(a), simd.splat_u64s(b));
        let [double] = match (self.0.number, self.0.operation) {
            (Number::Integer, Operation::Add) => {
                let all = pairs!(1, integers, x, y => simd.add_u64s(x, y));
                return first(bytemuck::cast_slice(&all));
            }
            (Number::Integer, Operation::Subtract) => {
                let all = pairs!(1, integers, x, y => simd.sub_u64s(x, y));
                return first(bytemuck::cast_slice(&all));
            }
            (Number::Integer, Operation::Multiply) => {
                return first(&pairs!(1, INTEGERS, x, y => u64::wrapping_mul(x, y)));
            }
            (Number::Integer, Operation::Divide) => {
                let dividend = black_box(INTEGER_DIVIDEND);
                return first(&rounds!([INTEGER_START], x => divide(dividend, x)));
            }
            (Number::Integer, _) => {
                let constants = black_box(INTEGER_MIXED);
                return first(&rounds!([INTEGER_START], x => integer_mixed(x, constants)));
            }
            (Number::Double, Operation::Add) => {
                let half = black_box(HALF);
                rounds!([1.0], x => x + half)
            }
            (Number::Double, Operation::Subtract) => {
                let half = black_box(HALF);
                rounds!([1.0], x => x - half)
            }
            (Number::Double, Operation::Multiply) => {
                let (factor, inverse) = (black_box(FACTOR), black_box(INVERSE));
                rounds!([1.0], x => x * factor * inverse)
            }
            (Number::Double, Operation::Divide) => {
                let dividend = black_box(DIVIDEND);
                rounds!([FACTOR], x => dividend / x)
            }
            (Number::Double, Operation::Mixed) => {
                let [a, b, c, d] = black_box(MIXED);
                rounds!([1.0], x => d / ((x + a) * b - c))
            }
            (Number::Double, Operation::MultiplyAdd) => {
                // A vector of which only the first number is looked at: fused as the many are.
                let (half, one) = (simd.splat_f64s(black_box(HALF)), simd.splat_f64s(black_box(1.0)));
                let all = rounds!([simd.splat_f64s(FACTOR)], x => simd.mul_add_e_f64s(x, half, one));
                return first(bytemuck::cast_slice(&all));
            }
        };
        f64::to_bits(double)
    }
}

fn first(bits: &[u64]) -> u64 {
    bits.first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
