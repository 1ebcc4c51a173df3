//! How evenly something is shared out.

/// Jain's fairness index of what each of several has got: (Σx)² / (n · Σx²).
///
/// 1 when all have the same, k/n when k of n share all of it evenly. `None` for fewer than two, where nobody has got anything,
/// and for amounts below 0 or infinite.
/// (Jain, Chiu, Hawe: *A Quantitative Measure of Fairness and Discrimination*, DEC Research Report TR-301, 1984)
pub fn fairness(parts: &[f64]) -> Option<f64> {
    let largest = parts.iter().copied().fold(0.0, f64::max);
    let are_amounts = parts.iter().all(|part| part.is_finite() && *part >= 0.0);
    if parts.len() < 2 || largest <= 0.0 || !are_amounts {
        return None;
    }
    // Without a unit: squares of large counts keep their digits.
    let parts = parts.iter().map(|part| part / largest);
    let (sum, squares) =
        parts.clone().fold((0.0, 0.0), |(sum, squares), part| (sum + part, squares + part * part));
    Some(sum * sum / (parts.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_shares_with_nobody_is_neither_fair_nor_unfair() {
        for parts in [&[][..], &[1.0], &[0.0, 0.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY], &[2.0, -1.0]] {
            assert_eq!(fairness(parts), None, "{parts:?}");
        }
    }

    #[test]
    fn one_with_thrice_as_much_as_another_makes_four_fifths() {
        assert!((fairness(&[1.0, 3.0]).unwrap() - 0.8).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn it_is_the_part_of_those_that_share_everything(sharing in 1..50_usize, others in 1..50_usize) {
            let parts = [vec![7.0; sharing], vec![0.0; others]].concat();
            let expected = sharing as f64 / (sharing + others) as f64;
            prop_assert!((fairness(&parts).unwrap() - expected).abs() < 1e-12);
        }

        #[test]
        fn neither_unit_nor_order_matters(
            parts in prop::collection::vec(1e-3..1e3, 2..40), unit in 1e-9..1e9_f64,
        ) {
            let index = fairness(&parts).unwrap();
            let other: Vec<f64> = parts.iter().rev().map(|part| part * unit).collect();
            prop_assert!((fairness(&other).unwrap() - index).abs() < 1e-9);
            prop_assert!(1.0 / parts.len() as f64 <= index + 1e-12 && index <= 1.0 + 1e-12);
        }
    }
}
