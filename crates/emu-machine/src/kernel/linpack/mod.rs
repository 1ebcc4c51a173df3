//! LINPACK: a dense system of equations solved by LU factorisation with partial pivoting, with HPL's count of work
//! and its check (Dongarra, Luszczek, Petitet 2003, *The LINPACK benchmark: past, present and future*;
//! <https://www.netlib.org/benchmark/hpl/>).

mod block;
mod elimination;

use emu_core::{CpuList, Error, Result};

use block::Block;
use elimination::Elimination;

use super::columns::{add_multiple, fill, largest};
use super::{Outcome, RESIDUAL_MAX, ROUNDING, Span, timed};

/// Floating-point operations of one solution, as HPL counts them: 2/3 n³ + 3/2 n².
pub fn operations(order: usize) -> f64 {
    let order = order as f64;
    2.0 / 3.0 * order.powi(3) + 1.5 * order.powi(2)
}

/// Bytes that a system takes while it is solved.
pub fn bytes(order: usize) -> u64 {
    8 * (order as u64).saturating_mul(order as u64)
}

/// A system of random equations, ready to be solved.
#[derive(Debug, Clone)]
pub struct System {
    order: usize,
    seed: u64,
    blocks: Vec<Block>,
}

/// What came of a system.
#[derive(Debug)]
pub struct Solution {
    order: usize,
    seed: u64,
    /// Wall time of factorisation and substitution.
    pub seconds: f64,
    x: Vec<f64>,
    /// The matrix as it is now. Freeing it takes time, which is that of whoever drops the solution.
    _factors: Elimination,
}

impl System {
    /// The system that `seed` stands for, with coefficients and right-hand side uniform in [-0.5, 0.5).
    pub fn new(order: usize, seed: u64) -> Self {
        let width = block::width(order);
        let firsts = (0..order).step_by(width).map(|first| (first, width.min(order - first)));
        // The right-hand side is eliminated with the rest, and never becomes a panel.
        let blocks = firsts.chain([(order, 1)]).map(|(first, width)| {
            let mut block = Block::new(first, width, order);
            block.columns_mut().enumerate().for_each(|(column, to)| fill(seed, first + column, to));
            block
        });
        Self { order, seed, blocks: blocks.collect() }
    }

    /// Solves it by as many threads as there are lists of CPUs, each bound to its own.
    pub fn solve(self, threads: &[CpuList]) -> Result<Solution> {
        self.solve_looking(threads, &|| ())
    }

    /// As [`solve`](Self::solve), where each thread calls `look` after each step of its work, some milliseconds apart.
    pub fn solve_looking(self, threads: &[CpuList], look: &(dyn Fn() + Sync)) -> Result<Solution> {
        let Self { order, seed, blocks } = self;
        let elimination = Elimination::new(blocks);
        let (seconds, solutions) = timed("LINPACK", threads, |number, all| {
            Ok(Span::of(all, || {
                elimination.work(look);
                if number == 0 { elimination.substitute() } else { Vec::new() }
            }))
        })?;
        // The first thread's, the others have none.
        let x = solutions.concat();
        Ok(Solution { order, seed, seconds, x, _factors: elimination })
    }
}

impl Solution {
    /// HPL's scaled residual, ‖Ax − b‖∞ / (ε (‖A‖∞ ‖x‖∞ + ‖b‖∞) n), which must be below 16.
    pub fn check(&self) -> Outcome {
        let (mut column, mut sums, mut product) =
            (vec![0.0; self.order], vec![0.0; self.order], vec![0.0; self.order]);
        for (number, x) in self.x.iter().enumerate() {
            fill(self.seed, number, &mut column);
            add_multiple(&mut product, *x, &column);
            for number in &mut column {
                *number = number.abs();
            }
            add_multiple(&mut sums, 1.0, &column);
        }
        fill(self.seed, self.order, &mut column);
        add_multiple(&mut product, -1.0, &column);
        let scale = ROUNDING * (largest(&sums) * largest(&self.x) + largest(&column)) * self.order as f64;
        Outcome {
            seconds: self.seconds,
            work: operations(self.order),
            error: largest(&product) / scale,
            error_max: RESIDUAL_MAX,
        }
    }
}

/// Solves and checks a random system.
pub fn run(order: usize, seed: u64, threads: &[CpuList]) -> Result<Outcome> {
    if order == 0 {
        return Err(Error::usage("LINPACK needs at least one equation"));
    }
    System::new(order, seed).solve(threads).map(|solution| solution.check())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn the_work_is_counted_as_hpl_does() {
        assert!((operations(1000) / 668_166_666.7 - 1.0).abs() < 1e-9);
        assert_eq!(bytes(1000), 8_000_000);
    }

    #[test]
    fn systems_of_all_sizes_are_solved_by_any_number_of_threads() {
        for order in [1, 2, 63, 64, 65, 128, 200, 333, 1501] {
            for count in [1, 2, 5] {
                let outcome = run(order, 42, &threads(count)).unwrap();
                assert!(outcome.passes() && outcome.seconds > 0.0, "{order}, {count}: {outcome:?}");
            }
        }
        assert!(run(0, 42, &threads(1)).is_err());
        assert!(run(10, 42, &[]).is_err());
    }

    #[test]
    fn the_solution_is_that_of_the_equations_and_not_of_others() {
        let mut solution = System::new(300, 1).solve(&threads(2)).unwrap();
        assert!(solution.check().passes());
        let right = solution.x[7];
        solution.x[7] += 1e-6 * right.abs().max(1.0);
        assert!(!solution.check().passes(), "one wrong unknown");
        solution.x[7] = f64::NAN;
        assert!(!solution.check().passes(), "not a number");
        solution.x[7] = right;
        solution.seed = 2;
        assert!(!solution.check().passes(), "another system");
    }

    #[test]
    fn rows_are_interchanged_for_the_largest_pivot() {
        // Without interchange the residual of a random system grows with the elements of L.
        let outcome = run(1000, 3, &threads(1)).unwrap();
        assert!(outcome.error < 1.0, "{outcome:?}");
    }
}
