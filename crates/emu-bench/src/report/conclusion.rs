//! Which method to use on this machine for what, in a sentence.

use emu_core::MethodId;

use super::results::{CellResult, Judged, Results, missing};
use crate::experiment::NONE;
use crate::external::external;
use crate::listed;
use crate::numbers::{percent, signed};
use crate::stats::Verdict;

/// More pairs than this are no advice.
const PAIRS_MAX: usize = 1000;

/// Paced traffic is not among them: it is as fast on a slower CPU, and a method that does nothing is right for it.
const CLASSES: [(&str, &[&str]); 3] = [
    ("computing", &["cpu-loop", "multithread", "multiprocess"]),
    ("sleeping and computing in turn", &["sleep-compute"]),
    ("memory-bound work", &["stream"]),
];

pub(super) fn sentence(results: &Results) -> String {
    let (mut good, mut bad, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, workloads) in CLASSES {
        let candidates = candidates(results, workloads);
        match judge(&candidates) {
            Some(Judgement::Use(right)) => good.push(format!("for {kind} use {}", any_of(&right))),
            Some(Judgement::None(nearest)) => bad.push(format!("{kind} ({nearest} is the nearest)")),
            None if !candidates.is_empty() => unknown.push(kind.to_owned()),
            None => {}
        }
    }
    let told =
        |words: &str, kinds: &[String]| (!kinds.is_empty()).then(|| format!("{words} {}", listed(kinds)));
    let mut parts = good;
    parts.extend(told("no method measured is right for", &bad));
    parts.extend(told("there is not enough data for", &unknown));
    if parts.is_empty() {
        return "Nothing was measured that tells which method to use.".into();
    }
    let undecided = undecided(&results.cells).map_or_else(String::new, |words| format!(" {words}"));
    format!("On this host {}.{undecided}", parts.join("; "))
}

fn any_of(methods: &[String]) -> String {
    match methods {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => methods.concat(),
    }
}

fn undecided(cells: &[CellResult]) -> Option<String> {
    let cells = || cells.iter().filter(|cell| cell.contender != NONE);
    let (mut would, mut more, mut disturbed, mut border) = (Vec::new(), 0, 0, 0);
    for cell in cells() {
        match (cell.finding.verdict, cell.finding.doubt) {
            (Verdict::Pass | Verdict::Fail, _) => {}
            (Verdict::NotEnoughData { pairs_needed: Some(pairs) }, _) if pairs > PAIRS_MAX => more += 1,
            (Verdict::NotEnoughData { pairs_needed: Some(pairs) }, _) => would.push(pairs),
            (Verdict::NotEnoughData { pairs_needed: None }, Some(_)) => disturbed += 1,
            (Verdict::NotEnoughData { pairs_needed: None }, None) => border += 1,
        }
    }
    would.sort_unstable();
    let open = would.len() + more + disturbed + border;
    // The last ones lie on the border, and would take any number.
    let some = would.len().div_ceil(2);
    let few = some.checked_sub(1).and_then(|last| would.get(last));
    let of = |count: usize, words: &str| (count > 0).then(|| format!("; {count} {words}"));
    let calm = "had disturbances or windows that are far off: measure again while the machine is calm";
    let parts = [
        few.map(|pairs| format!("; {pairs} pairs of each would decide {some} of them (--reps {pairs})")),
        of(more, &format!("would take more than {PAIRS_MAX} pairs")),
        of(disturbed, calm),
        of(border, "would stay at the border of what passes, with any number of pairs like these"),
    ];
    let take: String = parts.into_iter().flatten().collect();
    (open > 0).then(|| format!("{open} of {} cells are undecided{take}.", cells().count()))
}

/// A method on the ground of a kind where it is furthest off.
#[derive(Debug, Clone)]
struct Candidate {
    contender: MethodId,
    verdict: Verdict,
    /// The error of the speed that is furthest off there; `None` where a ground has no undisturbed pairs.
    off: Option<f64>,
    /// The speeds at which only others were measured there.
    missing: Vec<f64>,
}

#[derive(Debug, PartialEq)]
enum Judgement {
    /// All that are right: which is the nearest depends on the noise.
    Use(Vec<String>),
    None(String),
}

/// By verdicts alone. `None` where no method passes and one may yet.
fn judge(candidates: &[Candidate]) -> Option<Judgement> {
    let of = |verdict: Verdict| candidates.iter().filter(move |one| one.verdict == verdict);
    if candidates.is_empty() || of(Verdict::Fail).count() < candidates.len() {
        let right: Vec<_> = of(Verdict::Pass).map(words).collect();
        return (!right.is_empty()).then_some(Judgement::Use(right));
    }
    let magnitude = |one: &Candidate| one.off.map_or(f64::INFINITY, magnitude);
    let nearest = candidates.iter().min_by(|a, b| magnitude(a).total_cmp(&magnitude(b)));
    nearest.map(words).map(Judgement::None)
}

/// `cpu-hogs (+2.3% at worst)`.
fn words(candidate: &Candidate) -> String {
    let error = candidate.off.map_or_else(|| "-".into(), |error| format!("{} at worst", signed(error)));
    let missing: Vec<_> = candidate.missing.iter().copied().map(percent).collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!("; not measured at {}", listed(&missing)) };
    format!("{} ({error}{missing})", candidate.contender)
}

/// How far an error is from none, on the logarithmic scale: twice too fast is as far as twice too slow.
fn magnitude(error: f64) -> f64 {
    error.ln_1p().abs()
}

/// The methods that were measured on all grounds of a kind; other tools are not advised.
fn candidates(results: &Results, workloads: &[&str]) -> Vec<Candidate> {
    let is_of_kind = |workload: &String| workloads.contains(&workload.as_str());
    let grounds = results.grounds.iter().filter(|ground| is_of_kind(&ground.workload)).count();
    let candidate = |contender: MethodId| {
        let is_meant = |one: &&Judged| is_of_kind(&one.workload) && one.contender == contender;
        let of_one: Vec<_> = results.fidelity.iter().filter(is_meant).collect();
        let offs = of_one.iter().map(|one| one.furthest.map(|furthest| furthest.error()));
        let offs = offs.collect::<Option<Vec<_>>>();
        let verdict = Verdict::of_all(of_one.iter().map(|judged| judged.verdict))?;
        let worst = |offs: Vec<f64>| offs.into_iter().max_by(|a, b| magnitude(*a).total_cmp(&magnitude(*b)));
        let off = offs.and_then(worst);
        let missing = missing(&results.cells, contender, |name| workloads.contains(&name));
        (of_one.len() == grounds).then_some(Candidate { contender, verdict, off, missing })
    };
    results.methods().into_iter().filter(|one| external(*one).is_none()).filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::cell;
    use super::*;

    #[test]
    fn what_would_decide_is_told_of_each_kind_of_cell() {
        let of = |verdict, disturbed| {
            let mut cell = cell(0.5, &[0.5; 12], disturbed);
            cell.finding.verdict = verdict;
            cell
        };
        let needs = |pairs| of(Verdict::NotEnoughData { pairs_needed: Some(pairs) }, 0);
        let pass = || of(Verdict::Pass, 0);
        assert_eq!(undecided(&[pass()]), None);
        let many = undecided(&[pass(), needs(1001)]).unwrap();
        assert_eq!(many, "1 of 2 cells are undecided; 1 would take more than 1000 pairs.");
        let disturbed = undecided(&[of(UNTOLD, 12), pass()]).unwrap();
        assert!(disturbed.contains("undecided; 1 had disturbances or"), "{disturbed}");
        assert!(!disturbed.contains("no number"), "{disturbed}");
        let all = undecided(&[needs(30), needs(90), of(UNTOLD, 0), of(UNTOLD, 12)]).unwrap();
        for part in ["30 pairs of each would decide 1 of", "; 1 had dist", "; 1 would stay at the border"] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }

    const UNTOLD: Verdict = Verdict::NotEnoughData { pairs_needed: None };

    fn candidate(method: &str, verdict: Verdict, error: f64) -> Candidate {
        Candidate { contender: method.parse().unwrap(), verdict, off: Some(error), missing: vec![] }
    }

    #[test]
    fn of_methods_that_are_all_wrong_the_least_off_is_the_nearest() {
        let far = candidate("fracas", Verdict::Fail, -0.99);
        let near = candidate("cpu-lim", Verdict::Fail, -0.56);
        assert_eq!(judge(&[far, near]), Some(Judgement::None("cpu-lim (-56.0% at worst)".into())));
        assert_eq!(judge(&[]), None);
    }

    #[test]
    fn all_that_pass_are_advised_and_nothing_else() {
        let passed = candidate("cpu-hogs", Verdict::Pass, 0.03);
        let nearer = candidate("cpu-lim", Verdict::Pass, 0.01);
        let untold = candidate("fracas", UNTOLD, 0.0);
        let wrong = candidate("cpu-freeze", Verdict::Fail, 0.3);
        let nearer = Candidate { missing: vec![0.25, 0.1], ..nearer };
        let right = ["cpu-hogs (+3.0% at worst)", "cpu-lim (+1.0% at worst; not measured at 25% and 10%)"];
        let right = right.map(str::to_owned).to_vec();
        assert_eq!(judge(&[passed, untold, nearer, wrong]), Some(Judgement::Use(right)));
    }

    #[test]
    fn without_a_verdict_nothing_is_advised_and_nobody_is_wrong() {
        let untold = candidate("fracas", UNTOLD, 0.01);
        let disturbed = Candidate { off: None, ..candidate("cpu-lim", UNTOLD, 0.0) };
        let wrong = candidate("cpu-hogs", Verdict::Fail, 0.3);
        let both = |one: &Candidate| vec![one.clone(), wrong.clone()];
        for candidates in [both(&untold), both(&disturbed), vec![untold], vec![disturbed]] {
            assert_eq!(judge(&candidates), None);
        }
    }
}
