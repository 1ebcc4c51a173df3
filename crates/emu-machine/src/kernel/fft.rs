//! FFT: a large one-dimensional complex transform in double precision, with HPCC's count of work and its check.
//!
//! Each thread transforms numbers of its own, as in HPCC's "star" runs, so that the rate of several is their sum.

use emu_core::{CpuList, Error, Result};
use rand::RngExt;
use rand_pcg::Pcg64;
use rustfft::num_complex::Complex;
use rustfft::{FftDirection, FftPlanner};

use super::{Outcome, RESIDUAL_MAX, Span, larger, timed};

/// Floating-point operations of a transform of so many numbers: 5 n log₂ n.
pub fn operations(length: usize) -> f64 {
    5.0 * length as f64 * (length as f64).log2()
}

/// Bytes that the transform of one thread takes: numbers, result, scratch and what is kept for the check.
pub fn bytes(length: usize) -> u64 {
    4 * 16 * length as u64
}

/// Bytes that one thread goes over while it is timed, at least: numbers and result.
pub(crate) fn timed_bytes(length: usize) -> u64 {
    2 * 16 * length as u64
}

/// Transforms random numbers once on a thread for each list of CPUs, bound to it, and checks each by its inverse.
pub fn run(length: usize, seed: u64, threads: &[CpuList]) -> Result<Outcome> {
    if length < 2 {
        return Err(Error::usage(format!("cannot transform {length} numbers")).hint("at least 2 are needed"));
    }
    let (seconds, errors) = timed("FFT", threads, |number, all| {
        let mut random = Pcg64::new(u128::from(seed), number as u128);
        let mut uniform = || random.random::<f64>() - 0.5;
        let before: Vec<_> = (0..length).map(|_| Complex::new(uniform(), uniform())).collect();
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft(length, FftDirection::Forward);
        let mut numbers = before.clone();
        let mut spectrum = vec![Complex::default(); length];
        let mut scratch = vec![Complex::default(); forward.get_outofplace_scratch_len()];
        // So that no page is first touched in the timed span.
        spectrum.iter_mut().chain(&mut scratch).for_each(|number| *number = Complex::new(1.0, 0.0));
        let (span, ()) = Span::of(all, || {
            forward.process_outofplace_with_scratch(&mut numbers, &mut spectrum, &mut scratch);
        });
        // What follows would disturb those who still transform.
        all.wait();
        planner.plan_fft(length, FftDirection::Inverse).process(&mut spectrum);
        Ok((span, error(&before, &spectrum)))
    })?;
    let worst = errors.into_iter().reduce(larger);
    Ok(Outcome {
        seconds,
        work: operations(length) * threads.len() as f64,
        error: worst.unwrap_or(f64::NAN),
        error_max: RESIDUAL_MAX,
    })
}

/// HPCC's scaled error of what came back: max |x − x₀| / (ln n · ε). The inverse is not scaled yet.
fn error(before: &[Complex<f64>], back: &[Complex<f64>]) -> f64 {
    let length = before.len() as f64;
    let worst = before
        .iter()
        .zip(back)
        .fold(0.0, |most: f64, (before, back)| larger(most, (back / length - before).norm()));
    worst / (length.ln() * f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn transforms_come_back_on_any_number_of_threads() {
        for length in [2, 3, 1 << 10, 1000] {
            for count in [1, 3] {
                let outcome = run(length, 42, &threads(count)).unwrap();
                assert!(outcome.passes() && outcome.seconds > 0.0, "{length}: {outcome:?}");
                assert!((outcome.work / operations(length) - count as f64).abs() < 1e-12);
            }
        }
        assert!(run(1, 42, &threads(1)).is_err());
        assert!(run(8, 42, &[]).is_err());
        assert!((operations(8) - 120.0).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_number_is_found() {
        let before = [Complex::new(1.0, 2.0); 4];
        let mut back = before.map(|number| number * 4.0);
        assert_eq!(error(&before, &back).to_bits(), 0f64.to_bits());
        back[2].im += 1e-13;
        assert!(error(&before, &back) > RESIDUAL_MAX);
        back[2].im = f64::NAN;
        assert!(error(&before, &back).is_nan());
    }

    #[test]
    fn the_forward_transform_is_a_fourier_transform() {
        // A check by the inverse alone would let pass whatever does nothing twice.
        let mut wave: Vec<_> =
            (0..16).map(|i| Complex::cis(std::f64::consts::TAU * 3.0 * f64::from(i) / 16.0)).collect();
        FftPlanner::new().plan_fft(16, FftDirection::Forward).process(&mut wave);
        for (i, number) in wave.iter().enumerate() {
            assert!((number.norm() - if i == 3 { 16.0 } else { 0.0 }).abs() < 1e-12, "{i}");
        }
    }
}
