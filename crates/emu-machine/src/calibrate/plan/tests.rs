//! What is planned.

use super::*;
use emu_core::Roots;

fn plan(cpus: &str, passes: &[Order]) -> CalibrationPlan {
    CalibrationPlan {
        seed: 5,
        cpus: cpus.parse().unwrap(),
        quotas: vec![0.5, 1.0, 1.5, 2.0],
        passes: passes.to_vec(),
        reps: 1,
        threads: Threads::EVERY.to_vec(),
        sizes: vec![100],
        solutions_max: 20,
        sample_seconds: 2.0,
        period_seconds: 0.1,
    }
}

const ORDERS: [Order; 3] = [Order::Ascending, Order::Descending, Order::Random];

/// What is measured in the passes that are meant, in order.
fn steps(plan: &CalibrationPlan, is_meant: impl Fn(&Cell) -> bool) -> Vec<(f64, usize)> {
    let cells = plan.cells();
    cells.iter().filter(|&cell| is_meant(cell)).map(|cell| (cell.quota, cell.threads)).collect()
}

#[test]
fn every_order_has_each_quota_and_number_of_threads_once() {
    let ascending = [(0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2), (1.5, 2), (2.0, 2)];
    for passes in [ORDERS.to_vec(), balanced(7)] {
        let plan = plan("0-1", &passes);
        for order in ORDERS {
            let mut steps = steps(&plan, |cell| cell.order == order);
            steps.sort_by(|a, b| a.partial_cmp(b).unwrap());
            assert_eq!(steps, ascending, "{order:?}");
        }
    }
    let alone = plan("0-1", &ORDERS);
    assert_eq!(steps(&alone, |cell| cell.pass == 0), ascending);
    assert_eq!(steps(&alone, |cell| cell.pass == 1), ascending.into_iter().rev().collect::<Vec<_>>());
    assert_ne!(steps(&alone, |cell| cell.pass == 2), ascending);
}

#[test]
fn a_pass_goes_up_or_down_through_its_share_of_the_quotas() {
    let [up, down, _] = ORDERS;
    let plan = plan("0-1", &[up, down, down, up]);
    let (odd, even) = ([(0.5, 1), (0.5, 2), (1.5, 2)], [(1.0, 1), (1.0, 2), (2.0, 2)]);
    let reversed = |steps: [(f64, usize); 3]| steps.into_iter().rev().collect::<Vec<_>>();
    assert_eq!(steps(&plan, |cell| cell.pass == 0), odd);
    assert_eq!(steps(&plan, |cell| cell.pass == 1), reversed(odd));
    assert_eq!(steps(&plan, |cell| cell.pass == 2), reversed(even));
    assert_eq!(steps(&plan, |cell| cell.pass == 3), even);
    let passes: Vec<_> = plan.cells().iter().map(|cell| cell.pass).collect();
    assert!(passes.is_sorted(), "one pass after the other: {passes:?}");
}

#[test]
fn repetitions_go_through_all_passes_again() {
    let once = plan("0-1", &balanced(7));
    let thrice = CalibrationPlan { reps: 3, ..once.clone() };
    let (once, thrice) = (once.cells(), thrice.cells());
    assert_eq!(thrice.len(), 3 * once.len());
    assert_eq!(thrice.iter().map(|cell| cell.pass).max(), Some(17));
    for cell in &once {
        let alike = |other: &&Cell| (other.order, other.threads) == (cell.order, cell.threads);
        let alike = thrice.iter().filter(alike).filter(|other| other.quota.to_bits() == cell.quota.to_bits());
        assert_eq!(alike.count(), 3, "{cell:?}");
    }
}

#[test]
fn the_published_protocol_has_its_sizes_and_repetitions() {
    let host = Host::detect(&Roots::system()).unwrap();
    let wanted = Wanted { published: true, ..Wanted::default() };
    let of = |wanted: Wanted| CalibrationPlan::without_quotas(&host, &wanted).unwrap();
    let plan = of(wanted.clone());
    assert_eq!((plan.reps, plan.sizes.as_slice()), (25, &[1000, 5000, 10_000][..]));
    assert_eq!(
        (plan.passes.as_slice(), plan.threads.as_slice()),
        (&[Order::Ascending][..], &[Threads::All][..])
    );
    let shorter = of(Wanted { reps: Some(2), sizes: vec![500], ..wanted.clone() });
    assert_eq!((shorter.reps, shorter.equations()), (2, 500));
    let quick = of(Wanted { quick: true, ..wanted.clone() });
    assert_eq!((quick.reps, quick.sizes.as_slice()), (1, SIZES_QUICK));
    let none = CalibrationPlan::without_quotas(&host, &Wanted { reps: Some(0), ..wanted }).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Usage);
}

#[test]
fn orders_are_balanced_in_time_and_the_seed_picks_the_first() {
    let mut first = Vec::new();
    for seed in 0..20 {
        let passes = balanced(seed);
        assert_eq!((passes.len(), &passes), (6, &balanced(seed)));
        for order in ORDERS {
            let places = passes.iter().enumerate().filter(|(_, other)| **other == order);
            assert_eq!(places.map(|(place, _)| place).sum::<usize>(), 5, "{order:?} in {passes:?}");
        }
        first.push(passes[0]);
    }
    assert!(ORDERS.iter().all(|order| first.contains(order)), "{first:?}");
}

#[test]
fn threads_are_as_many_as_a_quota_fills() {
    for (quota, count) in [(0.1, 1), (1.0, 1), (0.1 * 10.0, 1), (1.1, 2), (2.0, 2), (3.0, 2)] {
        assert_eq!(Threads::Ceiling.count(quota, 2), count, "{quota}");
        assert_eq!(Threads::All.count(quota, 2), 2);
    }
}

#[test]
fn a_quota_is_one_for_all_cpus() {
    let demand = plan("0-3", &[]).demand(1.0);
    assert_eq!((demand.targets.len(), demand.uniform_share()), (4, Some(0.25)));
    assert_eq!(demand.period, Some(Duration::from_millis(100)));
}

#[test]
fn samples_are_long_enough_at_every_quota() {
    let plan = plan("0-1", &[]);
    assert_eq!((plan.times(0.1, 0.5), plan.times(2.0, 0.5), plan.times(0.1, 9.0)), (1, 8, 1));
    assert_eq!(plan.times(2.0, 1e-3), 20, "memory limits");
}

#[test]
fn a_quick_calibration_has_about_20_quotas_on_any_host() {
    for (cpus, step) in [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (16, 0.8), (256, 12.8)] {
        assert!((quick_step(cpus) - step).abs() < 1e-9, "{cpus}");
    }
    for cpus in 1..=512 {
        let count = cpus as f64 / quick_step(cpus);
        assert!((10.0 - 1e-9..=20.0 + 1e-9).contains(&count), "{cpus}: {count}");
    }
}

#[test]
fn steps_that_make_no_line_are_refused() {
    let host = Host::detect(&Roots::system()).unwrap();
    for step in [0.0, -0.1, f64::NAN, f64::INFINITY, 1e6] {
        assert_eq!(
            CalibrationPlan::new(&host, &Wanted { quick: true, step: Some(step), ..Wanted::default() })
                .unwrap_err()
                .kind(),
            ErrorKind::Usage,
            "{step}"
        );
    }
}

#[test]
fn steps_below_the_kernels_least_quota_are_refused_unlisted() {
    let host = Host::detect(&Roots::system()).unwrap();
    for step in [1e-3, 1e-9, 1e-300] {
        assert!(
            CalibrationPlan::new(&host, &Wanted { quick: true, step: Some(step), ..Wanted::default() })
                .is_err(),
            "{step}"
        );
    }
}
