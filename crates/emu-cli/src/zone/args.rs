use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use emu_core::{AtEnd, CpuList, Demand, Round, SpeedSpec, Targets};
use emu_machine::profile::Metric;

use crate::options::{flag, option};
use crate::values::{self, MethodChoice};

/// What to emulate, for `run`, `attach` and `node create`.
#[derive(Debug, Args)]
pub(crate) struct ZoneArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,

    /// What comes after the end of the trace [default: hold]
    #[arg(long, value_name = "WHAT", value_parser = values::at_end())]
    pub(crate) trace_end: Option<AtEnd>,

    /// By what --like compares: loop, int, fp, linpack, memory, latency, geomean or command:'…' [default: loop]
    #[arg(long)]
    pub(crate) metric: Option<Metric>,

    /// How to slow the CPUs down; `emu methods` shows what works here
    #[arg(short, long, default_value = "auto", value_parser = values::method_or_auto())]
    pub(crate) method: MethodChoice,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,
}

/// How fast.
#[derive(Debug, Clone, PartialEq, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WantedArgs {
    /// Speed of the CPUs: 40%, 0.4, 1.2GHz, or one for each: 0-1=1.2GHz,2=40%
    #[arg(short, long, allow_hyphen_values = true)]
    pub(crate) speed: Option<SpeedSpec>,

    /// A speed that changes with time: a CSV file (`emu trace --help`)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// As fast as another machine: a profile that `emu profile` has written there, or the JSON of `emu calibrate map`
    #[arg(long, value_name = "FILE")]
    pub(crate) like: Option<PathBuf>,
}

/// What is asked of a method beside the speed, for `run`, `attach`, `methods` and `verify`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct DemandArgs {
    /// An old name of what is part of the method's name now
    #[arg(long, hide = true, value_name = "NAME", value_parser = values::variant)]
    pub(crate) variant: Option<()>,

    /// CPUs to slow down and to run on, as 0-2,5 [default: those that --speed names, else all allowed]
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuList>,

    /// Length of one on/off cycle, 500us to 1s [default: the method's own]
    #[arg(short, long, value_name = "DURATION", value_parser = values::period, allow_hyphen_values = true)]
    pub(crate) period: Option<Duration>,

    /// Lift the kernel's limit for real-time tasks while it is in the way of the speed
    #[arg(long)]
    pub(crate) lift_rt_limit: bool,

    /// cpu-hogs: leave tasks outside the zone the time that they use, and slow the zone by the rest
    #[arg(long)]
    pub(crate) exclude_background: bool,

    /// An old name of --exclude-background
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "",
          value_parser = values::spare_others)]
    pub(crate) spare_others: Option<()>,

    /// cpu-freq: how to round a frequency that the hardware lacks
    #[arg(long, default_value = "nearest", value_parser = values::round())]
    pub(crate) round: Round,

    /// cpu-freq, cpu-gov: slow other CPUs too where they share a clock with those of the zone
    #[arg(long)]
    pub(crate) widen: bool,

    /// Leave the clock to the governor, which may lower it where the method leaves CPUs idle
    #[arg(long)]
    pub(crate) no_hold_clock: bool,
}

impl DemandArgs {
    pub(crate) fn demand(&self, targets: Targets) -> Demand {
        Demand {
            period: self.period,
            lift_rt_limit: self.lift_rt_limit,
            exclude_background: self.exclude_background,
            round: self.round,
            widen_policies: self.widen,
            hold_clock: !self.no_hold_clock,
            ..Demand::new(targets)
        }
    }

    /// The options as a part of a command line, each behind a space.
    pub(crate) fn options(&self) -> String {
        let round = (self.round != Round::default()).then(|| values::round_name(self.round));
        [
            option("cpus", &self.cpus),
            option("period", self.period.map(values::exact)),
            flag("lift-rt-limit", self.lift_rt_limit),
            flag("exclude-background", self.exclude_background),
            option("round", round),
            flag("widen", self.widen),
            flag("no-hold-clock", self.no_hold_clock),
        ]
        .concat()
    }
}

/// What to say about it, for `run` and `attach`.
#[derive(Debug, Args)]
pub(crate) struct TellArgs {
    /// Measure first that the speed is delivered; do not start when it is off by more than --tolerance
    #[arg(long)]
    pub(crate) verify: bool,

    /// Largest error that --verify passes
    #[arg(long, value_name = "SHARE", default_value = values::TOLERANCE, value_parser = values::share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Write the request and the result to FILE at the end
    #[arg(long, value_name = "FILE", value_parser = values::output_file)]
    pub(crate) json: Option<PathBuf>,
}
