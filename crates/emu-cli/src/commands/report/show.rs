//! What records of `emu bench` show, as tables.

use std::path::Path;
use std::time::Duration;

use emu_bench::distinct;
use emu_bench::experiment::NONE;
use emu_bench::numbers::{percent, signed, span};
use emu_bench::report::{Ground, Judged, Reproduced, Results};
use emu_bench::table::{notes, paragraph, wrap};
use emu_bench::verify::Doubt;
use emu_core::MethodId;

pub(crate) fn text(results: &Results) -> String {
    let mut fidelity = results.fidelity_table();
    let scores = results.methods().into_iter().map(|one| score(results, one));
    fidelity.row(["score".to_owned()].into_iter().chain(scores));
    let beside = results.beside_table();
    let beside = (!beside.is_empty()).then(|| format!("Beside other tools:\n{}\n", beside.text()));
    let parts = [Some(fidelity.text() + "\n"), beside, published(results)];
    let notes = notes(&told(results));
    format!("{}{notes}\n{}", parts.into_iter().flatten().collect::<String>(), paragraph(&results.conclusion))
}

/// What was published beside what was found here, where a preset asks for that.
fn published(results: &Results) -> Option<String> {
    let mut text = String::from("Published, and here:\n");
    for slide in results.published.chunk_by(|a, b| a.slide == b.slide) {
        text.extend(slide.first().map(|first| format!("  slide {}, {}\n", first.slide, first.ground)));
        text.extend(slide.iter().map(|one| {
            let found = match one.reproduced {
                // Why is told below.
                Reproduced::NotMeasured => String::new(),
                // With the minus of all other numbers here.
                _ => format!(" ({})", one.found.replace('−', "-")),
            };
            let (says, reproduced) = (one.says.as_str(), one.reproduced.as_str());
            wrap(&format!("{}: {says}. Reproduced: {reproduced}{found}", one.contender), 4) + "\n"
        }));
    }
    (!results.published.is_empty()).then(|| text + "\n")
}

pub(crate) fn page(path: &Path) -> String {
    format!("\nReport: {}\n", path.display())
}

fn score(results: &Results, contender: MethodId) -> String {
    let total = results.totals.iter().find(|total| total.contender == contender);
    let score = total.and_then(|total| total.score);
    score.map_or_else(|| "-".into(), |score| format!("{score:.0} of 100"))
}

fn told(results: &Results) -> Vec<String> {
    let tolerance = percent(results.tolerance);
    let speeds = speeds(results);
    let mut notes = vec![format!(
        "Cells: error of the perceived speed against the ideal where it is furthest off, of {speeds}. pass: the 95% \
         interval and the mean lie within ±{tolerance} at every speed, and few windows are far off; FAIL: the interval lies outside at \
         one; ?: not enough data. Score: of the worst row, where all have a verdict."
    )];
    notes.extend(noise(results));
    for run in &results.runs {
        let disturbed = run.retaken + run.tainted;
        if disturbed > 0 {
            let kinds: Vec<_> =
                run.disturbances.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            notes.push(format!(
                "The machine was not quiet ({}): {} pairs were taken again, {} of {} stayed disturbed and do not count.",
                kinds.join(", "),
                run.retaken,
                run.tainted,
                run.pairs
            ));
        }
        notes.extend(run.missing());
    }
    notes.extend(doubts(&results.fidelity));
    let methods = results.totals.iter().filter(|total| total.contender != NONE);
    let stalls = methods.filter_map(|total| {
        Some(format!("{} {}", total.contender, span(Duration::from_nanos(total.longest_stall_ns?))))
    });
    let stalls = stalls.collect::<Vec<_>>().join(", ");
    if !stalls.is_empty() {
        notes.push(format!("Longest stall of cpu-loop: {stalls}."));
    }
    let smooth = results.smoothness.iter().map(|one| {
        let from = one.spectrum.granularity.smooth_from_ms;
        let from = from.map_or_else(|| "none looked at".into(), |ms| format!("{ms} ms and longer"));
        format!("{} at {}: {from}", one.contender, percent(one.share))
    });
    let smooth = smooth.collect::<Vec<_>>().join("; ");
    if !smooth.is_empty() {
        notes.push(format!("Windows in which progress is smooth: {smooth}."));
    }
    notes.extend(results.grounds.iter().filter_map(Ground::doubt));
    for refusal in &results.unavailable {
        let what = if refusal.wanted.is_empty() { String::new() } else { format!(" ({})", refusal.wanted) };
        notes.push(format!("Not measured: {}{what}: {}", refusal.contender, reason(&refusal.why)));
    }
    notes
}

/// Why there is no verdict, where that is not the intervals alone. Of a machine that is not quiet, one sentence.
fn doubts(judged: &[Judged]) -> Vec<String> {
    let mut grounds: Vec<(String, Vec<String>)> = Vec::new();
    let (mut biased, mut others) = (Vec::new(), Vec::new());
    for one in judged.iter().filter(|one| one.contender != NONE) {
        let (who, ground) = (one.contender, one.ground_name());
        match (one.doubt, one.doubt_in_words()) {
            (Some((_, Doubt::Disturbed { disturbed, pairs })), _) => {
                let who = format!("{who} {disturbed} of {pairs}");
                match grounds.iter_mut().find(|(name, _)| *name == ground) {
                    Some((_, all)) => all.push(who),
                    None => grounds.push((ground, vec![who])),
                }
            }
            (Some((_, Doubt::Controls(bias))), _) => biased.push(format!("{} on {ground}", signed(bias))),
            (_, Some(doubt)) => others.push(format!("Not enough data of {who}, {ground}: {doubt}.")),
            (_, None) => {}
        }
    }
    let grounds: Vec<_> = grounds.iter().map(|(name, all)| format!("{name}: {}", all.join(", "))).collect();
    let disturbed =
        (!grounds.is_empty()).then(|| format!("Too many pairs were disturbed of {}.", grounds.join("; ")));
    let biased = (!biased.is_empty()).then(|| {
        format!(
            "Native against native is off by {}: no verdict is given that this could turn.",
            distinct(biased).join("; ")
        )
    });
    disturbed.into_iter().chain(biased).chain(others).collect()
}

/// Why a method cannot, without the method, which is named already.
fn reason(why: &str) -> &str {
    why.split_once(" cannot do this here: ").map_or(why, |(_, reason)| reason)
}

fn speeds(results: &Results) -> String {
    let cells = results.cells.iter().filter(|cell| cell.contender != NONE);
    let mut shares: Vec<f64> = cells.map(|cell| cell.share).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares.into_iter().map(percent).collect::<Vec<_>>().join(", ")
}

fn noise(results: &Results) -> Option<String> {
    let known: Vec<_> = results.grounds.iter().filter_map(|ground| Some((ground, ground.aa?))).collect();
    let worst = |of: fn(&emu_bench::stats::AaTest) -> f64| {
        known.iter().max_by(|a, b| of(&a.1).total_cmp(&of(&b.1))).map(|(ground, aa)| (*ground, of(aa)))
    };
    let ((noisiest, floor), (dullest, detectable)) = worst(|aa| aa.floor).zip(worst(|aa| aa.detectable))?;
    let alarms = known.iter().filter(|(_, aa)| aa.bias().is_some()).count();
    let (noisiest, dullest, all) = (noisiest.name(), dullest.name(), known.len());
    let [floor, detectable] = [floor, detectable].map(percent);
    Some(format!(
        "Native against native: pairs differ by up to {floor} ({noisiest}); differences from {detectable} ({dullest}) are found \
         four times in five; {alarms} of {all} comparisons saw one where there is none."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::stats::Verdict;
    use emu_core::{Reason, Unavailable};

    #[test]
    fn what_a_noisy_machine_left_undecided_is_one_sentence() {
        let judged = |method: &str, workload: &str, doubt| Judged {
            contender: method.parse().unwrap(),
            workload: workload.into(),
            cores: 2,
            verdict: Verdict::NotEnoughData { pairs_needed: None },
            doubt: Some((0.5, doubt)),
            furthest: None,
            fidelity: None,
            line: None,
        };
        let disturbed = |disturbed| Doubt::Disturbed { disturbed, pairs: 8 };
        let all = [
            judged("cpu-hogs", "stream", disturbed(3)),
            judged("cpu-lim", "stream", disturbed(4)),
            judged("cpu-lim", "udp-io", disturbed(5)),
            judged("fracas", "udp-io", Doubt::Mean(-0.06)),
            judged("cpu-hogs", "cpu-loop", Doubt::Controls(0.06)),
            judged("fracas", "cpu-loop", Doubt::Controls(0.06)),
        ];
        assert_eq!(
            doubts(&all),
            [
                "Too many pairs were disturbed of stream, 2 CPUs: cpu-hogs 3 of 8, cpu-lim 4 of 8; udp-io, 2 CPUs: \
                 cpu-lim 5 of 8.",
                "Native against native is off by +6.0% on cpu-loop, 2 CPUs: no verdict is given that this could turn.",
                "Not enough data of fracas, udp-io, 2 CPUs: at 50%: the median is right, but the mean is off by -6.0%.",
            ]
        );
        assert_eq!(doubts(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_reason_of_a_method_that_cannot_does_not_name_it_again() {
        let why = Unavailable::new(Reason::NoCpufreq, "there is no cpufreq here: kvm", "use cpu-hogs");
        let error = why.into_error(MethodId::new("cpu-gov")).to_string();
        assert!(error.starts_with("cpu-gov "), "{error}");
        assert_eq!(reason(&error), "there is no cpufreq here: kvm");
        assert_eq!(reason("there are 2 CPUs"), "there are 2 CPUs");
    }
}
