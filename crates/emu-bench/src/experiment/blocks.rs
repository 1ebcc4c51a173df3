//! The order of samples: randomised blocks.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::{Cell, Experiment, NONE};
use crate::distinct;
use crate::verify::{Side, schedule::schedule};

/// Where a run has a budget, pairs are taken until they decide: the most for one cell.
pub(super) const UNTIL_DECIDED: usize = 60;

/// One pair to be taken; `cell` is its place in the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// The block, which is a repetition of the whole matrix.
    pub(super) block: usize,
    pub(super) cell: usize,
    pub(super) repetition: usize,
    pub(super) sides: [Side; 2],
}

/// The steps for cells of (repetitions, CPUs). Each block has one pair of every cell, in an order of its own, so that a machine
/// that drifts favours no cell (randomised multiple interleaved trials: Abedi & Brecht, ICPE 2017). Cells with as many CPUs are
/// neighbours: other CPUs have to be [balanced](super::harness) first. Cells with fewer repetitions skip blocks evenly.
fn steps(cells: &[(usize, usize)], seed: u64) -> Vec<Step> {
    let repetitions: Vec<_> = cells.iter().map(|(count, _)| *count).collect();
    let blocks = repetitions.iter().copied().max().unwrap_or(0);
    let mut cores = distinct(cells.iter().map(|(_, cores)| *cores));
    cores.sort_unstable();
    let mut rng = Pcg64::seed_from_u64(seed);
    let order = |(cell, &count): (usize, &usize)| schedule(count, 0, seed.wrapping_add(cell as u64));
    let orders: Vec<_> = repetitions.iter().enumerate().map(order).collect();
    let mut steps = Vec::new();
    for block in 0..blocks {
        let mut order: Vec<_> = (0..repetitions.len()).collect();
        order.shuffle(&mut rng);
        cores.shuffle(&mut rng);
        order.sort_by_key(|cell| {
            cores.iter().position(|count| cells.get(*cell).is_some_and(|(_, of)| of == count))
        });
        steps.extend(order.into_iter().filter_map(|cell| {
            let count = *repetitions.get(cell)?;
            let repetition = block * count / blocks;
            let is_in = (block + 1) * count / blocks > repetition;
            let sides = *orders.get(cell)?.get(repetition)?;
            is_in.then_some(Step { block, cell, repetition, sides })
        }));
    }
    steps
}

/// The steps that are planned; where the run has a budget, followed by those of cells that these do not decide.
pub(super) fn all_steps(experiment: &Experiment) -> Vec<Step> {
    let of = |count: &dyn Fn(&Cell) -> usize| {
        experiment.cells.iter().map(|cell| (count(cell), cell.cores())).collect::<Vec<_>>()
    };
    let planned = of(&|cell| cell.repetitions);
    let mut all = steps(&planned, experiment.seed);
    if !experiment.budget.is_zero() {
        let more = |cell: &Cell| match cell.contender {
            NONE => 0,
            _ => UNTIL_DECIDED.saturating_sub(cell.repetitions),
        };
        all.extend(steps(&of(&more), experiment.seed.wrapping_add(1)).into_iter().map(|step| Step {
            block: experiment.repetitions + step.block,
            repetition: planned.get(step.cell).map_or(0, |(count, _)| count + step.repetition),
            ..step
        }));
    }
    all
}

/// Repeats a step at the end of its block: a disturbance of some seconds would spoil it again at once.
pub(super) fn again_in_block(steps: &mut Vec<Step>, number: usize) {
    let Some(step) = steps.get(number).copied() else { return };
    let later = steps.iter().skip(number).take_while(|later| later.block == step.block).count();
    steps.insert(number + later, step);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_pair_of_every_cell_is_taken_once_and_in_order(
            cells in proptest::collection::vec((0usize..30, 1usize..4), 0..8), seed: u64,
        ) {
            let steps = steps(&cells, seed);
            for (cell, &(count, _)) in cells.iter().enumerate() {
                let seen: Vec<_> = steps.iter().filter(|s| s.cell == cell).map(|s| s.repetition).collect();
                prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
                let first = |side| steps.iter().filter(|s| s.cell == cell && s.sides[0] == side).count();
                prop_assert!(first(Side::Native).abs_diff(first(Side::Emulated)) <= 1);
            }
            prop_assert!(steps.is_sorted_by_key(|step| step.block));
            let cores = |step: &Step| (step.block, cells[step.cell].1);
            let groups: BTreeSet<_> = steps.iter().map(cores).collect();
            prop_assert_eq!(steps.chunk_by(|a, b| cores(a) == cores(b)).count(), groups.len());
        }
    }

    #[test]
    fn the_seed_decides_and_blocks_differ() {
        assert_eq!(steps(&[(9, 1); 6], 1), steps(&[(9, 1); 6], 1));
        assert_ne!(steps(&[(9, 1); 6], 1), steps(&[(9, 1); 6], 2));
        let order = |block| {
            let all = steps(&[(9, 1); 6], 1);
            all.iter().filter(|step| step.block == block).map(|step| step.cell).collect::<Vec<_>>()
        };
        assert!((1..9).any(|block| order(block) != order(0)));
    }

    #[test]
    fn cells_with_fewer_repetitions_are_spread_over_the_run() {
        let blocks: Vec<_> = steps(&[(12, 1), (3, 1)], 1)
            .iter()
            .filter(|step| step.cell == 1)
            .map(|step| step.block)
            .collect();
        assert_eq!(blocks, [3, 7, 11]);
    }

    #[test]
    fn what_is_taken_again_comes_last_in_its_block() {
        let mut steps = steps(&[(2, 1); 3], 1);
        let first = steps[0];
        again_in_block(&mut steps, 0);
        assert_eq!(steps.len(), 7);
        assert_eq!((steps[3], steps[3].block, steps[4].block), (first, 0, 1));
        let last = steps[6];
        again_in_block(&mut steps, 6);
        assert_eq!((steps.len(), steps[7]), (8, last));
    }
}
