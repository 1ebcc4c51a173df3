//! Columns of the matrix: what is updated and factorised at once.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting::factor;
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve;
use faer::{Accum, MatMut, MatRef, Par};

/// Columns of a block in large systems. Measured: in narrower ones the product is slower, in wider ones the
/// panel takes longer, during which others may have nothing to do.
const WIDTH: usize = 128;

/// The same below [`SMALL`] equations, where a wide panel is too much of the work.
const WIDTH_SMALL: usize = 64;

const SMALL: usize = 1500;

/// Rows are this far apart at least, and never a power of two of cache lines, whose columns would compete for
/// the same places of a cache.
const LINE: usize = 8;

pub(super) fn width(order: usize) -> usize {
    if order < SMALL { WIDTH_SMALL } else { WIDTH }
}

#[derive(Debug, Clone)]
pub(super) struct Block {
    first: usize,
    width: usize,
    order: usize,
    stride: usize,
    numbers: Vec<f64>,
}

/// A block that is factorised: L below its diagonal, U above.
#[derive(Debug)]
pub(super) struct Panel {
    block: Block,
    /// Rows that get another one, and which.
    moved: Vec<(usize, usize)>,
}

impl Block {
    pub(super) fn new(first: usize, width: usize, order: usize) -> Self {
        let stride = order.next_multiple_of(LINE) | LINE;
        Self { first, width, order, stride, numbers: vec![0.0; stride * width] }
    }

    pub(super) fn columns_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let order = self.order;
        self.numbers.chunks_exact_mut(self.stride).filter_map(move |column| column.get_mut(..order))
    }

    fn as_mut(&mut self) -> MatMut<'_, f64> {
        let Self { width, order, stride, .. } = *self;
        MatMut::from_column_major_slice_with_stride_mut(&mut self.numbers, order, width, stride)
    }

    fn as_ref(&self) -> MatRef<'_, f64> {
        let Self { width, order, stride, .. } = *self;
        MatRef::from_column_major_slice_with_stride(&self.numbers, order, width, stride)
    }

    /// Factorises the rows from the block's own first on, to which all panels before it have been applied.
    pub(super) fn factorise(mut self) -> Panel {
        let (first, width) = (self.first, self.width);
        let rows = self.order - first;
        let (mut to_from, mut from_to) = (vec![0; rows], vec![0; rows]);
        let params = faer::Spec::default();
        let scratch = factor::lu_in_place_scratch::<usize, f64>(rows, width, Par::Seq, params);
        factor::lu_in_place(
            self.as_mut().subrows_mut(first, rows),
            &mut to_from,
            &mut from_to,
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(scratch)),
            params,
        );
        let moved = (0..).zip(to_from).filter(|(to, from)| to != from);
        Panel { block: self, moved: moved.map(|(to, from)| (first + to, first + from)).collect() }
    }

    /// The last column, which is the solution once all is done.
    pub(super) fn into_column(mut self) -> Vec<f64> {
        self.numbers.truncate(self.order);
        self.numbers
    }
}

impl Panel {
    /// Applies the interchange of rows, the rows of U, and the product of both with the rows below to a block further right.
    pub(super) fn apply(&self, to: &mut Block) {
        let Block { first, width, order, .. } = self.block;
        let mut moved = vec![0.0; self.moved.len()];
        for column in to.columns_mut() {
            for (value, (_, from)) in moved.iter_mut().zip(&self.moved) {
                *value = column.get(*from).copied().unwrap_or(f64::NAN);
            }
            for (value, (to, _)) in moved.iter().zip(&self.moved) {
                if let Some(place) = column.get_mut(*to) {
                    *place = *value;
                }
            }
        }
        let (l, below) = self.block.as_ref().subrows(first, order - first).split_at_row(width);
        let (mut upper, lower) = to.as_mut().subrows_mut(first, order - first).split_at_row_mut(width);
        triangular_solve::solve_unit_lower_triangular_in_place(l, upper.as_mut(), Par::Seq);
        matmul(lower, Accum::Add, below, upper.as_ref(), -1.0, Par::Seq);
    }

    /// `right` holds what is left of the right-hand side; this part of the solution is taken out of the rows above.
    pub(super) fn substitute(&self, right: &mut [f64]) {
        let Block { first, width, order, .. } = self.block;
        let right = MatMut::from_column_major_slice_mut(right, order, 1);
        let (above, own) = right.subrows_mut(0, first + width).split_at_row_mut(first);
        let mut own = own;
        let (u_above, u) = self.block.as_ref().subrows(0, first + width).split_at_row(first);
        triangular_solve::solve_upper_triangular_in_place(u, own.as_mut(), Par::Seq);
        matmul(above, Accum::Add, u_above, own.as_ref(), -1.0, Par::Seq);
    }
}
