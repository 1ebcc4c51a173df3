//! Which method to use on this machine for what, in a sentence.

use super::{Judged, Results};
use crate::experiment::Contender;
use crate::stats::Verdict;

/// Kinds of work, and the workloads that stand for them.
const CLASSES: [(&str, &[&str]); 4] = [
    ("computing", &["cpu-loop", "multithread", "multiprocess"]),
    ("sleeping and computing in turn", &["sleep-compute"]),
    ("paced network traffic", &["udp-io"]),
    ("memory-bound work", &["stream"]),
];

/// The sentence.
pub(super) fn sentence(results: &Results) -> String {
    let mut good: Vec<(Contender, Vec<String>)> = Vec::new();
    let mut bad = Vec::new();
    for (kind, workloads) in CLASSES {
        let Some((worst, verdict)) = best(results, workloads) else { continue };
        let best = worst.contender;
        let error = format!("{:+.1}%", worst.fidelity.bias.estimate * 100.0);
        let is_off = magnitude(worst) > results.tolerance.ln_1p();
        let is_uncertain = matches!(verdict, Verdict::NotEnoughData { .. });
        let doubt = if is_uncertain { ", not yet certain" } else { "" };
        if verdict == Verdict::Fail || is_uncertain && is_off {
            bad.push(format!("{kind} ({best}, the nearest, is off by {error}{doubt})"));
            continue;
        }
        let text = format!("{kind} ({error}{doubt})");
        match good.iter_mut().find(|(contender, _)| *contender == best) {
            Some((_, kinds)) => kinds.push(text),
            None => good.push((best, vec![text])),
        }
    }
    let mut parts: Vec<_> =
        good.iter().map(|(contender, kinds)| format!("use {contender} for {}", in_words(kinds))).collect();
    if !bad.is_empty() {
        parts.push(format!("no method measured is right for {}", in_words(&bad)));
    }
    if parts.is_empty() {
        return "Nothing was measured that tells which method to use.".into();
    }
    format!("On this host {}.", parts.join("; "))
}

/// The worst ground of a kind, of the method that has the best one, and the verdict over all of its grounds. A method that
/// was not measured on one of them is not considered.
fn best<'a>(results: &'a Results, workloads: &[&str]) -> Option<(&'a Judged, Verdict)> {
    let of_kind = |one: &&Judged| workloads.contains(&one.workload.as_str());
    let grounds =
        results.grounds.iter().filter(|ground| workloads.contains(&ground.workload.as_str())).count();
    let candidates =
        results.contenders().into_iter().filter(|one| *one != Contender::None).filter_map(|one| {
            let of_one: Vec<_> =
                results.fidelity.iter().filter(of_kind).filter(|j| j.contender == one).collect();
            let worst = *of_one.iter().max_by(|a, b| magnitude(a).total_cmp(&magnitude(b)))?;
            let verdict = Verdict::of_all(of_one.iter().map(|judged| judged.verdict))?;
            (of_one.len() == grounds).then_some((worst, verdict))
        });
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Pass => 0,
        Verdict::NotEnoughData { .. } => 1,
        Verdict::Fail => 2,
    };
    candidates.min_by(|(a, of_a), (b, of_b)| {
        rank(of_a).cmp(&rank(of_b)).then(magnitude(a).total_cmp(&magnitude(b)))
    })
}

/// How far the worst speed is from the ideal, on the logarithmic scale.
fn magnitude(judged: &Judged) -> f64 {
    judged.fidelity.worst.estimate.ln_1p()
}

fn in_words(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_as_in_a_sentence() {
        let words =
            |words: &[&str]| in_words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!([words(&[]), words(&["a"]), words(&["a", "b", "c"])], ["", "a", "a, b and c"]);
    }
}
