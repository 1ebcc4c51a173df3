use super::*;
use crate::testing::host_of;
use emu_core::Roots;

fn host() -> Host {
    Host::detect(&Roots::system()).unwrap()
}

fn plan() -> CpuPlan {
    CpuPlan { threads: vec![1, 2], sample_ns: 100_000, rounds: 3, seed: 4 }
}

#[test]
fn every_operation_is_measured_in_bulk_and_in_a_chain() {
    let host = host();
    let mut told = 0;
    let cpu = run(&plan(), &host, &mut |event| {
        told += usize::from(matches!(event, Event::Sample { .. }));
        Ok(())
    })
    .unwrap();
    assert_eq!((cpu.rates.len(), cpu.waits.len()), (22, 11));
    assert_eq!(told, 33);
    let names: Vec<_> = cpu.waits.iter().map(|wait| wait.work).collect();
    assert_eq!(names, Work::ALL);
    for rate in &cpu.rates {
        assert!(rate.operations_per_s > 0.0 && rate.samples.len() == 3, "{rate:?}");
    }
    for peak in &cpu.peaks {
        assert!(peak.alike || !peak.units.documented, "{peak:?}");
        assert_eq!(
            (peak.theoretical_per_s.is_some(), peak.share.is_some()),
            (peak.units.documented, peak.units.documented)
        );
        if let Some((share, theoretical)) = peak.share.zip(peak.theoretical_per_s) {
            assert!((share * theoretical / peak.best_per_s - 1.0).abs() < 1e-9 && share <= 1.021, "{peak:?}");
        }
    }
    let text = serde_json::to_string(&cpu).unwrap();
    assert_eq!(serde_json::from_str::<Cpu>(&text).unwrap(), cpu);
}

#[test]
fn what_threads_add_is_told_by_rounds() {
    let rate = |threads, samples: &[f64]| {
        let samples = samples.to_vec();
        Rate { work: Work::PEAK, threads, operations_per_s: 1.0, samples, disturbed: false }
    };
    let cpu = Cpu {
        instruction_set: String::new(),
        lanes: 1,
        optimised: true,
        clock: None,
        rates: vec![rate(1, &[1e9, 2e9, 4e9, 9e9]), rate(4, &[2e9, 4e9, 8e9, 18e9])],
        waits: vec![],
        peaks: vec![],
        notes: vec![],
    };
    let growth = cpu.growth(4).unwrap();
    assert!((growth.low - 2.0).abs() < 1e-9 && (growth.high - 2.0).abs() < 1e-9, "{growth:?}");
}

#[test]
fn a_steady_work_has_a_rate() {
    let work = Steady::new(&host(), Number::Integer, 2);
    assert!(work.rate(Duration::from_micros(100)).unwrap() > 0.0);
}

#[test]
fn a_rate_that_no_cpu_has_is_an_error() {
    let rate = |operations_per_s| Rate {
        work: Work::PEAK,
        threads: 1,
        operations_per_s,
        samples: vec![],
        disturbed: false,
    };
    // 8 doubles, 2 units, fused: 32 operations in a cycle.
    assert!(check_bound(&rate(32e9), 1e9, 8).is_ok());
    assert!(check_bound(&rate(1e12), 1e9, 8).unwrap_err().to_string().contains("more than any CPU"));
}

#[test]
fn threads_that_share_a_core_share_its_units() {
    let host = host_of(&["0-1", "2-3"], "0-3");
    let chosen = |cpus: &str| cores(&host, &cpus.parse().unwrap()).to_string();
    assert_eq!(chosen("0-3"), "0,2");
    assert_eq!(chosen("1,3"), "1,3", "only CPUs that are used");
    assert_eq!(chosen("0-1"), "0");
}

#[test]
fn the_clock_of_several_kinds_of_cpus_is_that_of_all_of_them() {
    let cpus: CpuList = "0-3".parse().unwrap();
    let clock = |cpu: CpuId| if cpu < 2 { 5e9 } else { 3e9 };
    assert!((mean(&cpus, |cpu| Some(clock(cpu))).unwrap() / 4e9 - 1.0).abs() < 1e-12);
    assert_eq!(mean(&cpus, |cpu| (cpu != 2).then(|| clock(cpu))), None);
}

#[test]
fn plans_that_measure_nothing_are_refused() {
    assert!(plan().check().is_ok());
    for bad in [
        CpuPlan { threads: vec![], ..plan() },
        CpuPlan { threads: vec![0], ..plan() },
        CpuPlan { rounds: 0, ..plan() },
        CpuPlan { sample_ns: 0, ..plan() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
