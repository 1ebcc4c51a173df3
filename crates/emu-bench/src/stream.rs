//! The four kernels of STREAM and the arrays that they pass over (J. D. `McCalpin` 1995, *Memory bandwidth and machine
//! balance in current high performance computers*; <https://www.cs.virginia.edu/stream/ref.html>).
//!
//! Bytes are counted as STREAM does: those that the program reads and writes, not what a cache reads before it writes.

use std::hint::black_box;
use std::ops::Range;

use emu_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The constants q of two iterations in turn. An iteration multiplies `a` by q² + 2 q, which is 2 for the first, √3 − 1, and ½
/// for √1.5 − 1: values stay of one size, where STREAM's constant 3 makes them grow fifteenfold each time, and still every pass
/// changes them, so that none can be left out without being noticed.
const FACTORS: [f64; 2] = [0.732_050_807_568_877_2, 0.224_744_871_391_589_05];

/// Largest relative error of a result, as in `stream.c` for double precision.
const ERROR_MAX: f64 = 1e-13;

fn factor(step: u64) -> f64 {
    let [even, odd] = FACTORS;
    if (step / 4).is_multiple_of(2) { even } else { odd }
}

/// One of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// c = a
    Copy,
    /// b = q · c
    Scale,
    /// c = a + b
    Add,
    /// a = b + q · c
    Triad,
}

impl Kernel {
    /// All of them, in the order of an iteration.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Scale, Self::Add, Self::Triad];

    /// The kernel that makes this step, from 0, of an endless run of iterations.
    pub fn of_step(step: u64) -> Self {
        match step % 4 {
            0 => Self::Copy,
            1 => Self::Scale,
            2 => Self::Add,
            _ => Self::Triad,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Scale => "scale",
            Self::Add => "add",
            Self::Triad => "triad",
        }
    }

    /// Bytes read and written for so many elements: two or three numbers for each.
    pub fn bytes(self, elements: usize) -> u64 {
        let numbers = match self {
            Self::Copy | Self::Scale => 2,
            Self::Add | Self::Triad => 3,
        };
        (numbers * elements * size_of::<f64>()) as u64
    }
}

#[inline(never)]
fn copy(a: &[f64], c: &mut [f64]) {
    // Without it the compiler would call the C library's copy, which writes long arrays past the caches: nearly twice as fast
    // as any program's own loop.
    let zero = black_box(0);
    for (c, a) in c.iter_mut().zip(a) {
        *c = f64::from_bits(a.to_bits() ^ zero);
    }
}

#[inline(never)]
fn scale(b: &mut [f64], c: &[f64], q: f64) {
    for (b, c) in b.iter_mut().zip(c) {
        *b = q * c;
    }
}

#[inline(never)]
fn add(a: &[f64], b: &[f64], c: &mut [f64]) {
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
}

#[inline(never)]
fn triad(a: &mut [f64], b: &[f64], c: &[f64], q: f64) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + q * c;
    }
}

/// What an element of each array holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values {
    /// Of `a`.
    pub a: f64,
    /// Of `b`.
    pub b: f64,
    /// Of `c`.
    pub c: f64,
}

impl Values {
    /// Before the first step.
    pub const START: Self = Self { a: 1.0, b: 2.0, c: 0.0 };

    fn then(self, step: u64) -> Self {
        let (Self { a, b, c }, q) = (self, factor(step));
        match Kernel::of_step(step) {
            Kernel::Copy => Self { c: a, ..self },
            Kernel::Scale => Self { b: q * c, ..self },
            Kernel::Add => Self { c: a + b, ..self },
            Kernel::Triad => Self { a: b + q * c, ..self },
        }
    }

    /// After so many steps from the start.
    pub fn after(steps: u64) -> Self {
        (0..steps).fold(Self::START, Self::then)
    }
}

/// The three arrays, or one thread's part of them.
#[derive(Debug)]
pub struct Arrays {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Arrays {
    /// Arrays of so many elements. No memory is used before values are [`set`](Self::set): the thread that
    /// does this decides where it lies.
    pub fn new(elements: usize) -> Self {
        let zeros = || vec![0.0; elements];
        Self { a: zeros(), b: zeros(), c: zeros() }
    }

    /// Elements of each array.
    pub fn len(&self) -> usize {
        self.a.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.a.is_empty()
    }

    /// Sets the elements of a range, as far as there are any.
    pub fn set(&mut self, range: Range<usize>, values: Values) {
        for (array, value) in [(&mut self.a, values.a), (&mut self.b, values.b), (&mut self.c, values.c)] {
            array.get_mut(range.clone()).unwrap_or_default().fill(value);
        }
    }

    /// Lets the kernel of a step, counted from 0 for these elements, pass over a range, as far as there are any.
    pub fn pass(&mut self, step: u64, range: Range<usize>) {
        let (a, b, c) = (
            self.a.get_mut(range.clone()).unwrap_or_default(),
            self.b.get_mut(range.clone()).unwrap_or_default(),
            self.c.get_mut(range).unwrap_or_default(),
        );
        let q = factor(step);
        match Kernel::of_step(step) {
            Kernel::Copy => copy(a, c),
            Kernel::Scale => scale(b, c, q),
            Kernel::Add => add(a, b, c),
            Kernel::Triad => triad(a, b, c, q),
        }
    }

    /// Whether the elements of a range, every `every`-th from its begin, hold what they must: else [`emu_core::ErrorKind::WrongResult`],
    /// as the memory or the CPU has erred, or a pass was left out.
    pub fn verify(&self, range: Range<usize>, every: usize, expected: Values) -> Result<()> {
        for (name, array, must) in
            [("a", &self.a, expected.a), ("b", &self.b, expected.b), ("c", &self.c, expected.c)]
        {
            let part = array.get(range.clone()).unwrap_or_default();
            // NaN is not within the error either.
            let is_right = |is: &f64| (is - must).abs() <= ERROR_MAX * must.abs();
            let wrong = part.iter().enumerate().step_by(every.max(1)).find(|(_, is)| !is_right(is));
            if let Some((place, is)) = wrong {
                let place = range.start + place;
                return Err(crate::wrong(format_args!(
                    "result in element {place} of array {name}: {is:e} instead of {must:e}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn an_iteration_is_what_stream_says() {
        let (a, q) = (1.0, FACTORS[0]);
        let steps: Vec<_> = (1..=4).map(Values::after).collect();
        assert_eq!(steps[0], Values { c: a, ..Values::START });
        assert_eq!(steps[1], Values { a, b: q * a, c: a });
        assert_eq!(steps[2], Values { a, b: q * a, c: a + q * a });
        assert!((steps[3].a - (q * a + q * (a + q * a))).abs() < 1e-15);
    }

    #[test]
    fn values_stay_of_one_size_and_never_repeat_in_a_row() {
        assert!((Values::after(4).a - 2.0).abs() < 1e-12);
        assert!((Values::after(8000).a - 1.0).abs() < 1e-10);
        let rows: Vec<_> = (0..20).map(Values::after).collect();
        assert!(rows.windows(2).all(|pair| pair[0] != pair[1]));
    }

    proptest! {
        #[test]
        fn every_element_is_what_its_steps_make_of_it(steps in 0u64..40, length in 1usize..70) {
            let mut arrays = Arrays::new(length);
            arrays.set(0..length, Values::START);
            for step in 0..steps {
                arrays.pass(step, 0..length);
            }
            prop_assert!(arrays.verify(0..length, 1, Values::after(steps)).is_ok());
            prop_assert!(arrays.verify(0..length, 1, Values::after(steps + 1)).is_err());
        }

        #[test]
        fn one_wrong_element_is_found(place in 0usize..50, which in 0..3) {
            let mut arrays = Arrays::new(50);
            arrays.set(0..50, Values::after(2));
            let array = match which { 0 => &mut arrays.a, 1 => &mut arrays.b, _ => &mut arrays.c };
            array[place] *= 1.0 + 1e-12;
            let error = arrays.verify(0..50, 1, Values::after(2)).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::WrongResult);
            let named = error.to_string().contains(&["element ", &place.to_string(), " "].concat());
            prop_assert!(named);
        }
    }

    #[test]
    fn what_is_not_a_number_is_wrong() {
        let mut arrays = Arrays::new(5);
        arrays.set(0..5, Values::START);
        arrays.a[3] = f64::NAN;
        assert!(arrays.verify(0..5, 1, Values::START).is_err());
    }

    #[test]
    fn bytes_are_counted_as_stream_counts_them() {
        assert_eq!(Kernel::ALL.map(|kernel| kernel.bytes(10)), [160, 160, 240, 240]);
    }
}
