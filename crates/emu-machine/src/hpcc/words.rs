//! What the figures mean, in words.

use std::fmt::Write as _;

use emu_bench::memory::last_level_caches;
use emu_bench::stats::Interval;
use emu_core::{CpuList, Host};

use super::super::places;
use super::{HpccPlan, Kernel, Row};
use crate::kernel::stream;

/// What is to be known of the figures by the sizes alone: which are smaller than usual, and which fit a cache.
pub(super) fn notes(plan: &HpccPlan, host: &Host) -> Vec<String> {
    let mut notes = Vec::new();
    let usual = plan.problems.iter().find(|problem| problem.order.is_none());
    let smaller = Kernel::SINGLE.into_iter().filter_map(|kernel| {
        let (is, usual) = (usual?.sizes.of(kernel)?, plan.usual.of(kernel)?);
        (is < usual).then(|| format!("{} {is} instead of {usual}", kernel.name()))
    });
    let smaller: Vec<_> = smaller.collect();
    if !smaller.is_empty() {
        notes.push(format!("Memory does not suffice for the usual sizes: {}.", smaller.join(", ")));
    }
    let mut cached = Vec::new();
    for &threads in &plan.threads {
        let cpus: CpuList = places(host, threads).iter().flat_map(CpuList::iter).collect();
        let Some(most) = last_level_caches(&host.roots, &cpus) else { continue };
        for problem in &plan.problems {
            let fits =
                |kernel: &Kernel| kernel.spread_bytes(problem, threads).is_some_and(|bytes| bytes <= most);
            let names = Kernel::SINGLE.into_iter().filter(fits).map(Kernel::name);
            let of = problem.order.map_or_else(String::new, |order| format!(" {order}"));
            cached.extend(names.map(|name| format!("{name}{of} ({threads} threads)")));
        }
    }
    if !cached.is_empty() {
        let cached = cached.join(", ");
        notes.push(format!(
            "These fit the last-level caches, so that their rates are those of a cache: {cached}."
        ));
    }
    if plan.stream.cache_bytes.is_none() {
        notes.push(
            "This host does not tell of its caches: rates of random-access, fft and ptrans may be those of one."
                .into(),
        );
    }
    notes
}

pub(super) fn conclusion(rows: &[Row], stream_obeys_rule: bool) -> String {
    let wrong: Vec<_> = rows
        .iter()
        .filter(|row| !row.passed)
        .map(|row| format!("{} ({} threads)", row.kernel.name(), row.threads))
        .collect();
    let mut text = if wrong.is_empty() {
        "Every result is right.".to_owned()
    } else {
        format!(
            "WRONG RESULTS: {}. Memory, CPU or clock speed of this machine cannot be trusted.",
            wrong.join(", ")
        )
    };
    // Of a series the largest problem.
    let largest = rows.iter().map(|row| row.order).max().flatten();
    let of = |kernel: Kernel| {
        let mut rows = rows.iter().filter(move |row| row.kernel == kernel && row.order == largest);
        Some((rows.next()?, rows.next_back()?))
    };
    let times = |kernel: Kernel, name: &str| {
        let (few, many) = of(kernel)?;
        if few.is_disturbed() || many.is_disturbed() {
            return Some(format!("{name} was disturbed too much to tell"));
        }
        let Interval { estimate, low, high, .. } = many.ratio(few)?;
        Some(format!("{name} gets {estimate:.2} ({low:.2} to {high:.2}) times as fast"))
    };
    if let (Some((few, many)), Some(linpack), Some(triad)) = (
        of(Kernel::Linpack),
        times(Kernel::Linpack, "LINPACK"),
        times(Kernel::Stream(stream::Kernel::Triad), "STREAM's triad"),
    ) {
        let at = largest.map_or_else(String::new, |order| format!(", at {order} equations"));
        let (few, many) = (few.threads, many.threads);
        let _ = write!(text, " From {few} to {many} threads{at}: {linpack}, {triad}.");
    }
    if !stream_obeys_rule {
        text +=
            " STREAM's arrays are shorter than four times the caches: its rates are partly those of a cache.";
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::plan::LARGEST_QUICK;
    use super::super::{Problem, Run};
    use super::*;
    use crate::kernel::Outcome;
    use crate::testing::host_of;
    use emu_core::Roots;

    #[test]
    fn a_size_that_is_smaller_than_usual_or_fits_a_cache_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("sys/devices/system/cpu/cpu0/cache/index3");
        fs::create_dir_all(&cache).unwrap();
        for (name, text) in [("type", "Unified"), ("level", "3"), ("size", "32M"), ("shared_cpu_list", "0")] {
            fs::write(cache.join(name), text).unwrap();
        }
        let mut host = host_of(&["0"], "0");
        host.roots = Roots::below(dir.path());
        let plan = HpccPlan::new(&host, true, 7, &[1, 2]).unwrap();
        let problem = Problem { order: None, sizes: LARGEST_QUICK, stream_bytes: 1 << 20 };
        let mut plan = HpccPlan { problems: vec![problem], usual: LARGEST_QUICK, ..plan };
        let fits = "These fit the last-level caches, so that their rates are those of a cache: \
                    fft (1 threads).";
        assert_eq!(notes(&plan, &host), [fits]);
        plan.problems[0].sizes.linpack /= 2;
        let smaller = "Memory does not suffice for the usual sizes: linpack 1000 instead of 2000.";
        assert_eq!(notes(&plan, &host), [smaller, fits]);
        host.roots.sys = dir.path().join("nothing");
        let unknown = HpccPlan::new(&host, true, 7, &[1]).unwrap();
        assert!(notes(&unknown, &host).concat().contains("does not tell of its caches"));
    }

    #[test]
    fn how_threads_scale_is_told_of_undisturbed_runs_with_its_size() {
        let problem = Problem { order: Some(5000), sizes: LARGEST_QUICK, stream_bytes: 1 << 20 };
        let text = |disturbed: bool| {
            let row = |kernel, threads: usize, rates: [f64; 3]| {
                let run = |rate| Run { seconds: 1.0, rate, error: None, passed: true, disturbed };
                Row::new(kernel, threads, &problem, rates.map(run).into()).unwrap()
            };
            let triad = Kernel::Stream(stream::Kernel::Triad);
            let rows =
                [(Kernel::Linpack, 1, 10.0), (Kernel::Linpack, 4, 38.0), (triad, 1, 10.0), (triad, 4, 11.0)];
            conclusion(&rows.map(|(of, threads, rate)| row(of, threads, [rate, rate, rate * 1.02])), true)
        };
        let calm = text(false);
        assert!(calm.contains("From 1 to 4 threads, at 5000 equations: LINPACK gets 3.80 ("), "{calm}");
        let busy = text(true);
        assert!(busy.contains("LINPACK was disturbed too much to tell") && !busy.contains("times"), "{busy}");
    }

    #[test]
    fn a_wrong_result_is_named() {
        let run = |error| Run::from(Outcome { seconds: 1.0, work: 2.0, error, error_max: 16.0 });
        let problem = Problem { order: None, sizes: LARGEST_QUICK, stream_bytes: 1 << 20 };
        let row = Row::new(Kernel::Fft, 2, &problem, vec![run(1.0), run(f64::NAN)]).unwrap();
        assert_eq!((row.passed, row.worst()), (false, None));
        assert!(conclusion(&[row], true).starts_with("WRONG RESULTS: fft (2 threads)."));
        let row = Row::new(Kernel::Fft, 2, &problem, vec![run(1.0), run(3.0)]).unwrap();
        assert_eq!(row.worst(), Some(3.0));
        assert!(conclusion(&[row], false).starts_with("Every result is right. STREAM's arrays are shorter"));
    }
}
