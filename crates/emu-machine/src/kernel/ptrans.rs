//! PTRANS: a matrix is transposed and added to another, C ← Aᵀ + C, with HPCC's count of bytes and its check.

use emu_core::{CpuList, Error, Result};

use super::columns::{fill, matrix};
use super::{Outcome, RESIDUAL_MAX, Span, larger, timed};

/// Rows and columns of a tile: both matrices' tiles fit a first-level cache.
const TILE: usize = 16;

/// Bytes that are moved, as HPCC counts them: those of one matrix.
pub fn moved(order: usize) -> f64 {
    8.0 * (order as f64).powi(2)
}

/// Bytes of the matrices, and of one to check by.
pub fn bytes(order: usize) -> u64 {
    24 * (order as u64).saturating_mul(order as u64)
}

/// Bytes that all threads go over while they are timed: both matrices.
pub(crate) fn timed_bytes(order: usize) -> u64 {
    16 * (order as u64).saturating_mul(order as u64)
}

/// Transposes a random matrix once, each thread its columns, bound to its list of CPUs, and checks every element.
pub fn run(order: usize, seed: u64, threads: &[CpuList]) -> Result<Outcome> {
    if order == 0 {
        return Err(Error::usage("PTRANS needs matrices of at least one row"));
    }
    let count = threads.len();
    let a = matrix(seed, order, order);
    let (seconds, errors) = timed("PTRANS", threads, |number, all| {
        let first = order * number / count;
        let width = order * (number + 1) / count - first;
        let mut c = vec![0.0; order * width];
        for (column, to) in c.chunks_exact_mut(order).enumerate() {
            fill(seed, order + first + column, to);
        }
        let (span, ()) = Span::of(all, || add_transposed(&a, &mut c, first, order));
        // What follows would disturb those who still transpose.
        all.wait();
        Ok((span, worst(&a, &c, first, order, seed)))
    })?;
    let error = errors.into_iter().fold(0.0, larger) / (f64::EPSILON * order as f64);
    Ok(Outcome { seconds, work: moved(order), error, error_max: RESIDUAL_MAX })
}

/// Adds to the columns from `first` on, of which `c` has some, the rows of `a` of these numbers.
fn add_transposed(a: &[f64], c: &mut [f64], first: usize, order: usize) {
    for (strip, columns) in c.chunks_mut(order * TILE).enumerate() {
        let row = first + strip * TILE;
        for from in (0..order).step_by(TILE) {
            let to = (from + TILE).min(order);
            for (offset, column) in columns.chunks_exact_mut(order).enumerate() {
                let part = column.get_mut(from..to).unwrap_or_default();
                let across = a.get(from * order + row + offset..).unwrap_or_default();
                for (sum, number) in part.iter_mut().zip(across.iter().step_by(order)) {
                    *sum += number;
                }
            }
        }
    }
}

fn worst(a: &[f64], c: &[f64], first: usize, order: usize, seed: u64) -> f64 {
    let mut expected = vec![0.0; order];
    c.chunks_exact(order).enumerate().fold(0.0, |most, (offset, column)| {
        let row = first + offset;
        fill(seed, order + row, &mut expected);
        let across = a.get(row..).unwrap_or_default().iter().step_by(order);
        let errors =
            column.iter().zip(&expected).zip(across).map(|((is, own), number)| (is - (own + number)).abs());
        errors.fold(most, larger)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn matrices_of_all_sizes_are_transposed_by_any_threads() {
        for order in [1, 2, 15, 16, 17, 100, 333] {
            for count in [1, 2, 5] {
                let outcome = run(order, 42, &threads(count)).unwrap();
                assert!(
                    outcome.error.to_bits() == 0 && outcome.seconds > 0.0,
                    "{order}, {count}: {outcome:?}"
                );
            }
        }
        assert!(run(0, 42, &threads(1)).is_err());
        assert!(run(5, 42, &[]).is_err());
        assert_eq!((moved(10).to_bits(), bytes(10)), (800f64.to_bits(), 2400));
    }

    #[test]
    fn a_small_matrix_is_transposed_as_by_hand() {
        let (a, mut c) = ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]);
        add_transposed(&a, &mut c, 0, 2);
        assert_eq!(c.map(f64::to_bits), [11.0, 23.0, 32.0, 44.0].map(f64::to_bits));
    }

    #[test]
    fn one_wrong_element_is_found() {
        let order = 40;
        let a = matrix(5, order, order);
        let mut c = vec![0.0; order * order];
        for (column, to) in c.chunks_exact_mut(order).enumerate() {
            fill(5, order + column, to);
        }
        add_transposed(&a, &mut c, 0, order);
        assert_eq!(worst(&a, &c, 0, order, 5).to_bits(), 0);
        c[123] += 1.0;
        assert!((worst(&a, &c, 0, order, 5) - 1.0).abs() < 1e-12);
        c[123] = f64::NAN;
        assert!(worst(&a, &c, 0, order, 5).is_nan());
    }
}
