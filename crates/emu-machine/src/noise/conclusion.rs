//! What the noise of a machine means for those who measure on it.

use emu_bench::listed;
use emu_bench::numbers::{percent, significant};
use emu_core::CpuList;

use super::{CpuGaps, OfKind};

/// Runs within this range may be compared one by one. The published work reached about 5 % with all that it tuned.
const SINGLE_RUNS: f64 = 0.05;

/// Where half of the runs lie within this share, medians of many may be compared.
const MEDIANS: f64 = 0.05;

/// What takes less of the time is not worth naming.
const LITTLE: f64 = 0.0005;

/// A clock that moves by more is a cause of noise itself.
const CLOCK: f64 = 0.02;

pub(super) fn of(kinds: &[OfKind], cpus: &[CpuGaps], clock_range: Option<f64>) -> String {
    let names = |is_meant: &dyn Fn(&OfKind) -> bool| {
        let names: Vec<_> = kinds.iter().filter(|of| is_meant(of)).map(|of| of.kind.name()).collect();
        (!names.is_empty()).then(|| listed(&names))
    };
    let single = |of: &OfKind| of.noise.range <= SINGLE_RUNS;
    let medians = |of: &OfKind| !single(of) && of.noise.iqr <= MEDIANS;
    let parts = [
        (names(&single), "may be trusted in single runs"),
        (names(&medians), "may be trusted in medians of many runs only"),
        (names(&|of| !single(of) && !medians(of)), "may not be trusted at all"),
    ];
    let trusted: Vec<_> = parts
        .iter()
        .filter_map(|(names, how)| names.as_ref().map(|names| format!("{names} {how}")))
        .collect();
    let mut sentences = vec![format!("On this machine {}.", trusted.join(", ")), cause(cpus, clock_range)];
    sentences.extend(cut_short(cpus));
    sentences.join(" ")
}

fn cut_short(cpus: &[CpuGaps]) -> Option<String> {
    let cut = || cpus.iter().filter(|cpu| cpu.is_cut_short());
    let shortest_ns = cut().map(|cpu| cpu.span_ns).min()?;
    let names: CpuList = cut().map(|cpu| cpu.cpu).collect();
    Some(format!(
        "Looking for gaps ended early on CPUs {names}, after {} s at the earliest, as no more of them are kept: a \
         longer --threshold leaves short ones out.",
        significant(shortest_ns as f64 / 1e9)
    ))
}

fn cause(cpus: &[CpuGaps], clock_range: Option<f64>) -> String {
    let mean =
        |share: &dyn Fn(&CpuGaps) -> f64| cpus.iter().map(share).sum::<f64>() / cpus.len().max(1) as f64;
    let most = cpus.iter().max_by(|a, b| a.periodic.total_cmp(&b.periodic));
    let tick = most.and_then(|cpu| cpu.period.as_ref()).map(|period| match period.tick_hz() {
        Some(hz) => format!("the timer tick ({hz} Hz)"),
        None => format!("something that comes {} times a second", significant(period.rate_hz())),
    });
    let causes = [
        (mean(&|cpu| cpu.stolen), "the hypervisor (steal)".to_owned()),
        (mean(&|cpu| cpu.preempted), "other tasks".to_owned()),
        (mean(&|cpu| cpu.periodic), tick.unwrap_or_default()),
        (mean(&CpuGaps::unexplained), "something that the kernel does not account for".to_owned()),
    ];
    let clock = clock_range.filter(|range| *range > CLOCK);
    let worst = causes.iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share >= LITTLE);
    match (worst, clock) {
        (Some((share, name)), None) => {
            format!("What disturbs most is {name}: it takes {} of each CPU's time.", percent(*share))
        }
        (Some((share, name)), Some(range)) => format!(
            "What disturbs most is {name}, which takes {} of each CPU's time, and a core clock that moves by {}.",
            percent(*share),
            percent(range)
        ),
        (None, Some(range)) => {
            format!("Hardly anything takes time from the CPUs, but their clock moves by {}.", percent(range))
        }
        (None, None) => "Hardly anything takes time from the CPUs.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Gap, Kind, Period, gap};
    use emu_bench::stats::Noise;

    fn kind(kind: Kind, range: f64, iqr: f64) -> OfKind {
        let noise = Noise { range, iqr, mad: iqr / 2.0 };
        OfKind { kind, operations: 1, median_ns: 1.0, noise, preempted: 0, blocks: vec![] }
    }

    fn cpu() -> CpuGaps {
        CpuGaps {
            cpu: 0,
            counter: "tsc".into(),
            span_ns: 1,
            step_ns: 1.0,
            threshold_ns: 1.0,
            lost: 0.0,
            preempted: 0.0,
            stolen: 0.0,
            longest_ns: 0,
            period: None,
            periodic: 0.0,
            gaps: vec![],
        }
    }

    #[test]
    fn each_kind_is_judged_by_its_own_noise() {
        let kinds = [
            kind(Kind::CpuBound, 0.04, 0.01),
            kind(Kind::Sleep1Ms, 0.05, 0.01),
            kind(Kind::NoOp, 0.3, 0.02),
            kind(Kind::UdpPingPong, 0.9, 0.3),
        ];
        let text = of(&kinds, &[cpu()], Some(0.001));
        let expected = "On this machine cpu-bound and sleep-1ms may be trusted in single runs, no-op may be \
                        trusted in medians of many runs only, udp-ping-pong may not be trusted at all. Hardly anything takes time from the CPUs.";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_combination_of_outcomes_is_a_sentence() {
        let outcomes = [(0.04, 0.01), (0.3, 0.02), (0.9, 0.3)];
        for chosen in 1_u32..8 {
            let is_meant = |place: usize| chosen & 1 << place != 0;
            let kinds = [Kind::CpuBound, Kind::NoOp, Kind::UdpPingPong].into_iter().zip(outcomes).enumerate();
            let kinds = kinds.filter(|(place, _)| is_meant(*place));
            let kinds: Vec<_> = kinds.map(|(_, (of, (range, iqr)))| kind(of, range, iqr)).collect();
            let text = of(&kinds, &[cpu()], None);
            let (sentence, _) = text.split_once(". ").unwrap();
            let fragments = sentence.split(", ");
            assert!(fragments.clone().all(|one| one.contains(" be trusted ")), "{sentence}");
            assert_eq!(fragments.count(), kinds.len(), "{sentence}");
        }
    }

    #[test]
    fn a_look_that_ended_early_is_told() {
        let gaps = vec![Gap { at_ns: 0, length_ns: 1, preempted: false }; gap::ROOM];
        let cut = CpuGaps { cpu: 2, span_ns: 420_000_000, gaps, ..cpu() };
        let text = of(&[kind(Kind::NoOp, 0.1, 0.1)], &[cpu(), cut], None);
        assert!(text.contains("ended early on CPUs 2, after 0.42 s"), "{text}");
        assert!(!of(&[kind(Kind::NoOp, 0.1, 0.1)], &[cpu()], None).contains("early"));
    }

    #[test]
    fn the_cause_that_takes_most_is_named() {
        let period = Period { length_ns: 4e6, parts: [true; 20], covered: 1.0, power: 99.0 };
        let ticking = CpuGaps { lost: 0.01, periodic: 0.008, period: Some(period), ..cpu() };
        // What was stolen is lost as well, and must not count as unexplained again.
        let stolen = CpuGaps { lost: 0.3, stolen: 0.2, preempted: 0.05, ..cpu() };
        let busy = CpuGaps { lost: 0.3, preempted: 0.3, ..cpu() };
        let interrupted = CpuGaps { lost: 0.02, ..cpu() };
        let other = CpuGaps { period: Some(Period { length_ns: 1e8, ..period }), ..ticking.clone() };
        for (cpu, clock, words) in [
            (&ticking, None, "the timer tick (250 Hz): it takes 0.8%"),
            (&other, None, "something that comes 10 times a second: it takes"),
            (&stolen, None, "the hypervisor (steal): it takes 20%"),
            (&busy, None, "other tasks: it takes 30%"),
            (&interrupted, None, "is something that the kernel does not account for: it takes 2%"),
            (&interrupted, Some(0.1), "and a core clock that moves by 10%"),
            (&CpuGaps { cpu: 1, ..self::cpu() }, Some(0.1), "but their clock moves by 10%"),
        ] {
            let text = cause(std::slice::from_ref(cpu), clock);
            assert!(text.contains(words), "{text}");
        }
    }
}
