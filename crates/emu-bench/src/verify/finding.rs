//! From pairs to a judgement.

use emu_core::{CpuId, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::doubt::Doubt;
use super::fairness::Fairness;
use super::ideal::Ideals;
use super::outliers::Outliers;
use super::pair::{Pair, counting, undisturbed};
use super::window::Window;
use super::{Plan, Trial};
use crate::stats::{
    self, AaTest, Band, Bootstrap, Centre, Interval, Level, PairedRatios, Sample, Verdict, pairs_for_a_median,
};
use crate::workload::{Workload, workload};

/// How faithful an emulation was for one job at one speed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Finding {
    /// The workload.
    pub workload: String,
    /// The CPU concerned, where each has its own speed.
    pub cpu: Option<CpuId>,
    /// The share asked for.
    pub asked: f64,
    /// The ratio that a perfect emulation gives this workload, the median over the pairs; see
    /// [`Workload::ideal`](crate::workload::Workload::ideal). Where a clock is asked for, it moves with the CPU's own.
    pub ideal: f64,
    /// Median of emulated / native.
    pub ratio: Interval,
    /// Median of emulated / native / ideal: 1 is perfect, 0.99 is one percent too slow. Where a share is asked for, work
    /// is counted per core cycle where its steps follow the core clock: a clock that others on the machine move between
    /// two windows is no error of an emulation. Where a clock is asked for, it is one not to hold that.
    pub relative: Interval,
    /// The mean of the same, on the logarithmic scale: what a program gets that runs through many windows.
    pub mean: f64,
    /// Median of the core clock under emulation / native, where steps follow it.
    pub clock: Option<f64>,
    /// Whether that is within the tolerance; see [`within`](Self::within).
    pub verdict: Verdict,
    /// Why it decides nothing, where that is not the interval alone.
    pub doubt: Option<Doubt>,
    /// Pairs that count: those that were not disturbed. Where there is none, figures are of those that were.
    pub pairs: usize,
    /// Pairs that were disturbed and taken again.
    pub repeated: usize,
    /// Pairs that were disturbed to the last, and so do not count.
    pub tainted: usize,
    /// By how much two native windows differ, as a share: the mean over the controls.
    pub floor: Option<f64>,
    /// The smallest error that the run would have found four times in five.
    pub detectable: Option<f64>,
    /// By how much native windows differ although nothing is engaged, as a share; see [`AaTest::bias`].
    pub control_bias: Option<f64>,
    /// Pairs that count and are far from the median.
    pub outliers: Outliers,
    /// The longest time without progress under emulation, in nanoseconds.
    pub longest_stall_ns: u64,
    /// Emulated windows that opened before all of their work was under way, as the emulation stopped it.
    pub late: usize,
    /// Periods of the emulation in all windows.
    pub periods: u64,
    /// Periods that it missed.
    pub missed: u64,
    /// CPU time of emu itself as a share of one CPU, for each emulated CPU; median over the windows.
    pub own_cpu: Option<f64>,
    /// How evenly the threads or processes shared the work; `None` where there is one, where they are bound to CPUs, and
    /// where windows are short.
    pub fairness: Option<Fairness>,
}

impl Finding {
    /// Relative error of the speed: −0.01 is one percent too slow.
    pub fn error(&self) -> f64 {
        self.relative.estimate - 1.0
    }

    /// Whether the pairs do not decide.
    pub fn is_undecided(&self) -> bool {
        matches!(self.verdict, Verdict::NotEnoughData { .. })
    }

    /// Whether the verdict would be the same if the interval were wider by this factor.
    pub fn decides_widened(&self, factor: f64, band: Band) -> bool {
        let Interval { estimate, low, high, .. } = self.relative;
        let (low, high) = (estimate - (estimate - low) * factor, estimate + (high - estimate) * factor);
        match self.verdict {
            Verdict::Pass => band.low() <= low && high <= band.high(),
            Verdict::Fail => high < band.low() || band.high() < low,
            Verdict::NotEnoughData { .. } => false,
        }
    }

    /// Whether so many pairs were disturbed that the others decide nothing.
    pub fn is_disturbed(&self) -> bool {
        matches!(self.doubt, Some(Doubt::Disturbed { .. }))
    }

    /// Judged with what the controls of a run showed, where they are no pairs of this trial.
    ///
    /// # Errors
    /// As [`within`](Self::within).
    pub fn with_controls(mut self, controls: &AaTest, plan: &Plan) -> Result<Self> {
        self.control_bias = controls.bias();
        (self.verdict, self.doubt) = self.judge(plan.tolerance, plan.level)?;
        Ok(self)
    }

    /// [`relative`](Self::relative) with an interval that is wider, on either side, by what controls saw where there is
    /// nothing: the same may be in these pairs or not.
    pub fn relative_beside_controls(&self) -> Interval {
        let factor = self.control_bias.map_or(1.0, |bias| bias.ln_1p().abs().exp());
        Interval { low: self.relative.low / factor, high: self.relative.high * factor, ..self.relative }
    }

    /// Whether the error is within `band`.
    ///
    /// A pass needs more than the median: the mean must be within the band as well, and no more than one pair in eight
    /// may be far from the median. An emulation that is wrong in a fifth of its windows has the right median.
    ///
    /// # Errors
    /// Usage, when the interval was made for a lower level.
    pub fn within(&self, band: Band, level: Level) -> Result<Verdict> {
        self.judge(band, level).map(|(verdict, _)| verdict)
    }

    fn judge(&self, band: Band, level: Level) -> Result<(Verdict, Option<Doubt>)> {
        const UNDECIDED: Verdict = Verdict::NotEnoughData { pairs_needed: None };
        // What disturbs windows with and without emulation unequally is taken for an error of it, or makes up for one.
        if self.tainted > 0 && self.pairs < pairs_for_a_median(level) {
            let (disturbed, pairs) = (self.tainted, self.pairs + self.tainted);
            return Ok((UNDECIDED, Some(Doubt::Disturbed { disturbed, pairs })));
        }
        let verdict = Verdict::of(&self.relative, self.pairs, band, level)?;
        let decided = matches!(verdict, Verdict::Pass | Verdict::Fail);
        if let Some(bias) = self.control_bias.filter(|_| decided)
            && Verdict::of(&self.relative_beside_controls(), self.pairs, band, level)? != verdict
        {
            return Ok((UNDECIDED, Some(Doubt::Controls(bias))));
        }
        if verdict != Verdict::Pass {
            return Ok((verdict, None));
        }
        Ok(self.doubt_of_median(band).map_or((Verdict::Pass, None), |doubt| (UNDECIDED, Some(doubt))))
    }

    fn doubt_of_median(&self, band: Band) -> Option<Doubt> {
        let (outliers, pairs) = (self.outliers, self.pairs);
        if outliers.are_many_of(pairs) {
            return Some(Doubt::Outliers { outliers, pairs });
        }
        let is_within = (band.low()..=band.high()).contains(&self.mean);
        (!is_within).then_some(Doubt::Mean(self.mean - 1.0))
    }
}

/// Judges the pairs of a trial: once, or for each CPU where parts are bound to CPUs of different speeds.
pub fn findings(trial: &Trial, pairs: &[Pair], plan: &Plan) -> Result<Vec<Finding>> {
    if trial.job.pinned {
        return trial
            .shares
            .iter()
            .enumerate()
            .map(|(index, &(cpu, share))| {
                // Parts are bound to the CPUs in turn.
                let cpus = trial.shares.len();
                let rate = move |window: &Window| {
                    window.done.parts.iter().skip(index).step_by(cpus).sum::<f64>() / window.done.wall_s()
                };
                finding(trial, pairs, plan, share, Some(cpu), &rate)
            })
            .collect();
    }
    Ok(vec![finding(trial, pairs, plan, trial.lowest_share(), None, &|window| window.done.rate())?])
}

fn finding(
    trial: &Trial,
    pairs: &[Pair],
    plan: &Plan,
    asked: f64,
    cpu: Option<CpuId>,
    rate: &dyn Fn(&Window) -> f64,
) -> Result<Finding> {
    let workload = workload(&trial.job.workload)?;
    let rate = |window: &Window| above_nothing(rate(window), workload, window);
    let clock = |window: &Window, other: &Window| clock_ratio(workload, plan, window, other);
    let counting = counting(pairs);
    let sides = || counting.iter().filter_map(|pair| pair.sides());
    let wanted = trial.clock_of(cpu);
    let ideals = Ideals::new(workload, asked, wanted, &counting);
    let (mut measured, mut relative, mut ideal, mut clocks) = (vec![], vec![], vec![], vec![]);
    for (native, emulated) in sides() {
        let (own, moved) = (ideals.of(native), clock(emulated, native));
        ideal.push(own);
        clocks.push(moved);
        measured.push(stats::Pair::new(rate(emulated), rate(native))?);
        // A wanted clock has the move of the clock in its ideal.
        let moved = if wanted.is_some() { 1.0 } else { moved };
        relative.push(stats::Pair::new(rate(emulated) / moved, rate(native) * own)?);
    }
    let controls = undisturbed(pairs).filter(|pair| pair.sides().is_none());
    let controls = controls
        .map(|Pair { windows: [a, b], .. }| stats::Pair::new(rate(b) / clock(b, a), rate(a)))
        .collect::<Result<Vec<_>>>()?;
    let centre = Centre::Median(Bootstrap::new(plan.seed));
    let count = undisturbed(pairs).filter(|pair| pair.sides().is_some()).count();
    let outliers = Outliers::of(&relative, &controls, plan.tolerance)?;
    // Where figures are of disturbed pairs, none of these counts.
    let outliers = if count == 0 { Outliers { pairs: 0, ..outliers } } else { outliers };
    let ratio = PairedRatios::new(&measured)?.ratio(centre, plan.level)?;
    let ratios = PairedRatios::new(&relative)?;
    let differences: Vec<_> = controls.iter().map(|pair: &stats::Pair| pair.log_ratio().abs()).collect();
    let floor = sample(differences)?.map(|differences| differences.mean().exp_m1());
    // Too few controls say nothing about what can be detected.
    let test = AaTest::of(&controls, centre, plan.level).ok();
    let windows = || sides().map(|(_, emulated)| emulated);
    let deliveries = || windows().filter_map(|window| window.delivery.as_ref());
    let cpus = trial.shares.len().max(1) as f64;
    let tainted = pairs.iter().filter(|pair| pair.kept && pair.sides().is_some() && !pair.is_undisturbed());
    let own = deliveries().map(|delivery| delivery.own_cpu_s / delivery.wall_s / cpus);
    let median = |values: Vec<f64>| sample(values).map(|sample| sample.map(|sample| sample.median()));
    let clock = if workload.follows_clock() && !plan.clock_is_emulated { median(clocks)? } else { None };
    let mut finding = Finding {
        workload: trial.job.workload.clone(),
        cpu,
        asked,
        ideal: Sample::new(ideal)?.median(),
        verdict: Verdict::NotEnoughData { pairs_needed: None },
        doubt: None,
        ratio,
        relative: ratios.ratio(centre, plan.level)?,
        mean: ratios.logs().mean().exp(),
        clock,
        pairs: count,
        repeated: pairs.iter().filter(|pair| !pair.kept).count(),
        tainted: tainted.count(),
        floor,
        detectable: test.map(|test| test.detectable),
        control_bias: test.and_then(|test| test.bias()),
        outliers,
        longest_stall_ns: windows().map(|window| window.done.longest_stall_ns).max().unwrap_or(0),
        late: windows().filter(|window| window.done.late_ns > 0).count(),
        periods: deliveries().map(|delivery| delivery.periods).sum(),
        missed: deliveries().map(|delivery| delivery.missed).sum(),
        own_cpu: median(own.collect())?,
        fairness: if trial.job.pinned { None } else { Fairness::of(sides()) },
    };
    (finding.verdict, finding.doubt) = finding.judge(plan.tolerance, plan.level)?;
    Ok(finding)
}

/// `None` where there is nothing.
fn sample(values: Vec<f64>) -> Result<Option<Sample>> {
    if values.is_empty() { Ok(None) } else { Sample::new(values).map(Some) }
}

/// Without a single quantum, less than one was done; half of one stands for that.
fn above_nothing(rate: f64, workload: &dyn Workload, window: &Window) -> f64 {
    rate.max(workload.quantum() / 2.0 / window.done.wall_s())
}

/// The ratio of the core clocks of two windows; 1 where it is not known, or where the emulation is what moves it.
fn clock_ratio(workload: &dyn Workload, plan: &Plan, window: &Window, other: &Window) -> f64 {
    let ratio = other.done.quantum_ns / window.done.quantum_ns;
    let is_known = workload.follows_clock() && ratio.is_finite() && ratio > 0.0;
    if is_known && !plan.clock_is_emulated { ratio } else { 1.0 }
}

/// The rates of the undisturbed pairs of a trial, with the numbers of the pairs, as in [`Finding::relative`] and as if
/// each had the ideal of [`Finding::ideal`]: the ideal of work that sleeps moves from pair to pair with what it sleeps.
pub fn rates(trial: &Trial, pairs: &[Pair], plan: &Plan) -> Result<Vec<(usize, stats::Pair)>> {
    let workload = workload(&trial.job.workload)?;
    let wanted = trial.clock_of(None);
    let rate = |window: &Window| above_nothing(window.done.rate(), workload, window);
    let pairs: Vec<_> = undisturbed(pairs).collect();
    let ideals = Ideals::new(workload, trial.lowest_share(), wanted, &pairs);
    let sides = || pairs.iter().filter_map(|pair| Some((pair.number, pair.sides()?)));
    let all: Vec<_> = sides().map(|(_, (native, _))| ideals.of(native)).collect();
    let Some(all) = sample(all)? else { return Ok(Vec::new()) };
    let middle = all.median();
    sides()
        .map(|(number, (native, emulated))| {
            let moved = if wanted.is_some() { 1.0 } else { clock_ratio(workload, plan, emulated, native) };
            let native_rate = rate(native) * ideals.of(native) / middle;
            Ok((number, stats::Pair::new(rate(emulated) / moved, native_rate)?))
        })
        .collect()
}

#[cfg(test)]
mod tests;
