//! DGEMM: the product of two dense matrices, `C ← αAB + βC`, with HPCC's count of work and its check.

use emu_core::{CpuList, Error, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::columns::{add_multiple, fill, largest, matrix, times};
use super::{Outcome, RESIDUAL_MAX, ROUNDING, Span, timed};

const ALPHA: f64 = 0.734_375;
const BETA: f64 = -0.390_625;

/// Floating-point operations of a product of this order: 2 n³.
pub fn operations(order: usize) -> f64 {
    2.0 * (order as f64).powi(3)
}

/// Bytes of the three matrices.
pub fn bytes(order: usize) -> u64 {
    24 * (order as u64).saturating_mul(order as u64)
}

/// One thread's columns: B's, and C's before and after.
struct Part {
    b: Vec<f64>,
    before: Vec<f64>,
    c: Vec<f64>,
}

/// Multiplies random matrices once, each thread its columns, bound to its list of CPUs, and checks the product.
pub fn run(order: usize, seed: u64, threads: &[CpuList]) -> Result<Outcome> {
    if order == 0 {
        return Err(Error::usage("DGEMM needs matrices of at least one row"));
    }
    let count = threads.len();
    let a = matrix(seed, order, order);
    let (seconds, parts) = timed("DGEMM", threads, |number, all| {
        let columns = order * number / count..order * (number + 1) / count;
        let width = columns.len();
        let fresh = |matrix: usize| {
            let mut numbers = vec![0.0; order * width];
            for (column, to) in columns.clone().zip(numbers.chunks_exact_mut(order)) {
                fill(seed, matrix * order + column, to);
            }
            numbers
        };
        let (b, before) = (fresh(1), fresh(2));
        let mut c = before.clone();
        let (span, ()) = Span::of(all, || {
            for number in &mut c {
                *number *= BETA;
            }
            matmul(
                MatMut::from_column_major_slice_mut(&mut c, order, width),
                Accum::Add,
                MatRef::from_column_major_slice(&a, order, order),
                MatRef::from_column_major_slice(&b, order, width),
                ALPHA,
                Par::Seq,
            );
        });
        Ok((span, Part { b, before, c }))
    })?;
    Ok(Outcome {
        seconds,
        work: operations(order),
        error: residual(order, seed, &a, &parts),
        error_max: RESIDUAL_MAX,
    })
}

/// HPCC's scaled residual: ‖Cx − (αA(Bx) + βC₀x)‖∞ / (‖C‖∞ ‖x‖∞ n ε) for a random x.
fn residual(order: usize, seed: u64, a: &[f64], parts: &[Part]) -> f64 {
    let mut x = vec![0.0; order];
    fill(seed, 3 * order, &mut x);
    let (mut bx, mut cx, mut before_x, mut sums) =
        (vec![0.0; order], vec![0.0; order], vec![0.0; order], vec![0.0; order]);
    let mut rest = x.as_slice();
    for Part { b, before, c } in parts {
        let (own, others) = rest.split_at(b.len() / order);
        rest = others;
        for (sum, numbers) in [(&mut bx, b), (&mut cx, c), (&mut before_x, before)] {
            add_multiple(sum, 1.0, &times(numbers, order, own));
        }
        for column in c.chunks_exact(order) {
            sums.iter_mut().zip(column).for_each(|(sum, number)| *sum += number.abs());
        }
    }
    add_multiple(&mut cx, -ALPHA, &times(a, order, &bx));
    add_multiple(&mut cx, -BETA, &before_x);
    largest(&cx) / (largest(&sums) * largest(&x) * order as f64 * ROUNDING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn products_of_all_sizes_are_right_with_any_number_of_threads() {
        for order in [1, 2, 65, 200, 513] {
            for count in [1, 2, 5] {
                let outcome = run(order, 42, &threads(count)).unwrap();
                assert!(outcome.passes() && outcome.seconds > 0.0, "{order}, {count}: {outcome:?}");
            }
        }
        assert!(run(0, 42, &threads(1)).is_err());
        assert!(run(5, 42, &[]).is_err());
        assert_eq!((operations(10).to_bits(), bytes(10)), (2000f64.to_bits(), 2400));
    }

    #[test]
    fn a_wrong_element_is_found() {
        let (order, seed) = (50, 9);
        let a = matrix(seed, order, order);
        let fresh = |number| {
            let mut numbers = vec![0.0; order * order];
            for (column, to) in numbers.chunks_exact_mut(order).enumerate() {
                fill(seed, number * order + column, to);
            }
            numbers
        };
        let (b, before) = (fresh(1), fresh(2));
        let mut c: Vec<f64> = before.iter().map(|number| number * BETA).collect();
        for (column, from) in c.chunks_exact_mut(order).zip(b.chunks_exact(order)) {
            add_multiple(column, ALPHA, &times(&a, order, from));
        }
        let mut parts = [Part { b, before, c }];
        assert!(residual(order, seed, &a, &parts) < RESIDUAL_MAX);
        parts[0].c[77] += 1e-9;
        assert!(residual(order, seed, &a, &parts) > RESIDUAL_MAX);
        parts[0].c[77] = f64::NAN;
        assert!(residual(order, seed, &a, &parts).is_nan());
    }
}
