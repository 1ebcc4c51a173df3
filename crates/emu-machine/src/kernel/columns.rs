//! Matrices of random numbers, stored by columns.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::larger;

/// Column `column` of the matrix that `seed` stands for: as many numbers as `to` has room for, uniform in
/// [-0.5, 0.5) as HPL's. Each column can be made again by itself.
pub(super) fn fill(seed: u64, column: usize, to: &mut [f64]) {
    let mut random = Pcg64::new(u128::from(seed), column as u128);
    for number in to {
        *number = random.random::<f64>() - 0.5;
    }
}

pub(super) fn matrix(seed: u64, rows: usize, columns: usize) -> Vec<f64> {
    let mut all = vec![0.0; rows * columns];
    for (number, column) in all.chunks_exact_mut(rows.max(1)).enumerate() {
        fill(seed, number, column);
    }
    all
}

/// The largest magnitude; not a number where one of them is not.
pub(super) fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, number| larger(most, number.abs()))
}

pub(super) fn add_multiple(sum: &mut [f64], factor: f64, column: &[f64]) {
    for (sum, number) in sum.iter_mut().zip(column) {
        *sum += factor * number;
    }
}

pub(super) fn times(matrix: &[f64], rows: usize, vector: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; rows];
    for (column, factor) in matrix.chunks_exact(rows.max(1)).zip(vector) {
        add_multiple(&mut product, *factor, column);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_random_of_their_own_and_can_be_made_again() {
        let (all, mut second) = (matrix(7, 1000, 3), vec![0.0; 1000]);
        fill(7, 1, &mut second);
        assert_eq!(all[1000..2000], second);
        assert_ne!(all[..1000], second[..]);
        assert_ne!(matrix(8, 1000, 1)[..], all[..1000]);
        let mean = all.iter().sum::<f64>() / 3000.0;
        assert!(mean.abs() < 0.03 && largest(&all) <= 0.5 && largest(&all) > 0.49);
    }

    #[test]
    fn a_product_with_a_vector_is_made_by_columns() {
        assert_eq!(times(&[1.0, 2.0, 3.0, 4.0], 2, &[10.0, 100.0]), [310.0, 420.0]);
    }

    #[test]
    fn the_largest_of_what_is_not_a_number_is_not_a_number() {
        assert!(largest(&[1.0, f64::NAN]).is_nan());
        assert!(largest(&[f64::NAN, 1.0]).is_nan());
        assert_eq!(largest(&[-3.0, 2.0]).to_bits(), 3f64.to_bits());
    }
}
