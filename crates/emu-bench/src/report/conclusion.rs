//! Which method to use on this machine for what, in a sentence.

use emu_core::MethodId;

use super::results::{Judged, Results};
use crate::listed;
use crate::numbers::signed;
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
    let mut good: Vec<(MethodId, Vec<String>)> = Vec::new();
    let (mut bad, mut unknown) = (Vec::new(), Vec::new());
    for (kind, workloads) in CLASSES {
        let candidates = candidates(results, workloads);
        match judge(&candidates, results.tolerance) {
            Some(Judgement::Use(best)) => {
                let text = format!("{kind} ({})", words(best));
                match good.iter_mut().find(|(contender, _)| *contender == best.contender) {
                    Some((_, kinds)) => kinds.push(text),
                    None => good.push((best.contender, vec![text])),
                }
            }
            Some(Judgement::None(nearest)) => {
                bad.push(format!(
                    "{kind} ({}, the nearest, is off by {})",
                    nearest.contender,
                    words(nearest)
                ));
            }
            None if !candidates.is_empty() => unknown.push(kind.to_owned()),
            None => {}
        }
    }
    let mut parts: Vec<_> =
        good.iter().map(|(contender, kinds)| format!("use {contender} for {}", listed(kinds))).collect();
    if !bad.is_empty() {
        parts.push(format!("no method measured is right for {}", listed(&bad)));
    }
    if !unknown.is_empty() {
        parts.push(format!("there is not enough data for {}", listed(&unknown)));
    }
    if parts.is_empty() {
        return "Nothing was measured that tells which method to use.".into();
    }
    format!("On this host {}.", parts.join("; "))
}

/// A method on the ground of a kind where it is furthest off.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    contender: MethodId,
    /// Over all grounds of the kind.
    verdict: Verdict,
    /// The mean error on that ground, and how far its worst speed is from the ideal, on the logarithmic scale; `None`
    /// where a ground has no undisturbed pairs.
    off: Option<(f64, f64)>,
}

/// What is said of a kind of work.
#[derive(Debug)]
enum Judgement {
    /// This method is right, or nothing shows that it is not.
    Use(Candidate),
    /// No method is right; this one is nearest.
    None(Candidate),
}

/// Chooses by verdict first: what passes is better than what may be nearer. Where nothing is right, the nearest is told
/// by how far it is off alone. `None` where there is not enough data of any method.
fn judge(candidates: &[Candidate], tolerance: f64) -> Option<Judgement> {
    let magnitude = |one: &&Candidate| one.off.map_or(f64::INFINITY, |(_, magnitude)| magnitude);
    let nearest = |verdict: fn(&Verdict) -> bool| {
        let of_it = candidates.iter().filter(|one| one.off.is_some() && verdict(&one.verdict));
        of_it.min_by(|a, b| magnitude(a).total_cmp(&magnitude(b))).copied()
    };
    let is_near = |one: &Candidate| magnitude(&one) <= tolerance.ln_1p();
    nearest(|verdict| *verdict == Verdict::Pass)
        .or_else(|| nearest(|verdict| matches!(verdict, Verdict::NotEnoughData { .. })).filter(is_near))
        .map(Judgement::Use)
        .or_else(|| nearest(|_| true).map(Judgement::None))
}

/// `+2.3%`, or `+2.3%, not enough data`.
fn words(candidate: Candidate) -> String {
    let error = candidate.off.map_or_else(|| "-".into(), |(bias, _)| signed(bias));
    match candidate.verdict {
        Verdict::NotEnoughData { .. } => format!("{error}, {}", candidate.verdict.as_str()),
        Verdict::Pass | Verdict::Fail => error,
    }
}

/// The methods that were measured on all grounds of a kind.
fn candidates(results: &Results, workloads: &[&str]) -> Vec<Candidate> {
    let of_kind = |one: &&Judged| workloads.contains(&one.workload.as_str());
    let grounds =
        results.grounds.iter().filter(|ground| workloads.contains(&ground.workload.as_str())).count();
    let candidate = |contender: MethodId| {
        let of_one: Vec<_> =
            results.fidelity.iter().filter(of_kind).filter(|one| one.contender == contender).collect();
        let off = |one: &&Judged| {
            let fidelity = one.fidelity?;
            Some((fidelity.bias.estimate, fidelity.worst.estimate.ln_1p()))
        };
        let offs: Option<Vec<_>> = of_one.iter().map(off).collect();
        let verdict = Verdict::of_all(of_one.iter().map(|judged| judged.verdict))?;
        let off = offs.and_then(|offs| offs.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)));
        (of_one.len() == grounds).then_some(Candidate { contender, verdict, off })
    };
    results.methods().into_iter().filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTOLD: Verdict = Verdict::NotEnoughData { pairs_needed: None };

    fn candidate(method: &str, verdict: Verdict, error: f64) -> Candidate {
        let off = Some((error, (1.0 + error).ln().abs()));
        Candidate { contender: method.parse().unwrap(), verdict, off }
    }

    fn told(candidates: &[Candidate]) -> String {
        match judge(candidates, 0.05) {
            Some(Judgement::Use(one)) => format!("use {} {}", one.contender, words(one)),
            Some(Judgement::None(one)) => format!("nearest {} {}", one.contender, words(one)),
            None => "nothing".into(),
        }
    }

    #[test]
    fn of_methods_that_are_all_wrong_the_least_off_is_the_nearest() {
        let far = candidate("fracas", UNTOLD, -0.99);
        let near = candidate("cpu-lim", Verdict::Fail, -0.56);
        assert_eq!(told(&[far, near]), "nearest cpu-lim -56.0%");
        assert_eq!(told(&[far]), "nearest fracas -99.0%, not enough data");
    }

    #[test]
    fn what_passes_is_better_than_what_may_be_nearer() {
        let passed = candidate("cpu-hogs", Verdict::Pass, 0.03);
        let nearer = candidate("fracas", UNTOLD, 0.01);
        assert_eq!(told(&[nearer, passed]), "use cpu-hogs +3.0%");
        assert_eq!(told(&[nearer]), "use fracas +1.0%, not enough data");
    }

    #[test]
    fn a_method_with_only_disturbed_data_is_neither_used_nor_near() {
        let unknown = Candidate { off: None, ..candidate("cpu-lim", UNTOLD, 0.0) };
        assert_eq!(told(&[unknown]), "nothing");
        assert_eq!(told(&[unknown, candidate("fracas", Verdict::Fail, 0.3)]), "nearest fracas +30.0%");
    }
}
