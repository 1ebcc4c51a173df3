//! What was published of methods.

use emu_core::MethodId;
use emu_core::ids::{
    CPU_FREQ as FREQ, CPU_GOV as GOV, CPU_HOGS as HOGS, CPU_LIM_PUBLISHED as LIM, FRACAS_SHARES as FRACAS,
};
use schemars::JsonSchema;
use serde::Serialize;

/// The name of the evaluation by Buchert, Nussbaum and Gustedt.
pub const BUCHERT_2011: &str = "buchert-2011";

/// What a slide says of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// The speed is as it should be: proportional to the frequency, sleeps excepted.
    Right,
    /// It is not.
    Wrong,
    /// It runs at half of the speed.
    TwiceTooSlow,
    /// It should not change with the frequency.
    Flat,
    /// Ideally it would not change with the frequency, but does.
    Scales,
}

impl Says {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Right => "as it should be",
            Self::Wrong => "not as it should be",
            Self::TwiceTooSlow => "twice too slow",
            Self::Flat => "does not change with the frequency",
            Self::Scales => "falls with the frequency, though memory does not",
        }
    }
}

/// Whether it is so here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reproduced {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// There is not enough data to tell.
    NotEnoughData,
    /// It could not be measured.
    NotMeasured,
}

impl Reproduced {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotEnoughData => "not enough data",
            Self::NotMeasured => "not measured",
        }
    }
}

/// One published statement and what was found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Compared {
    /// The slide that says it.
    pub slide: u8,
    /// The method.
    pub contender: MethodId,
    /// The workload and the number of CPUs: `multithread, 2 CPUs`.
    pub ground: String,
    /// What it says.
    pub says: Says,
    /// What was found here.
    pub found: String,
    /// Whether that is the same.
    pub reproduced: Reproduced,
}

/// Those that were evaluated, as they were.
pub const BUCHERT_2011_METHODS: [MethodId; 5] = [LIM, HOGS, FRACAS, GOV, FREQ];

pub(super) type Statement = (&'static [MethodId], Says);

/// Slides 13 to 20 of the talk (T. Buchert, L. Nussbaum, J. Gustedt, HPCC 2011): slide, workload, CPUs, statements. Slide 14
/// states what should be, for all methods.
pub(super) const SLIDES: &[(u8, &str, usize, &[Statement])] = &[
    (13, "cpu-loop", 1, &[(&BUCHERT_2011_METHODS, Says::Right)]),
    (14, "udp-io", 1, &[(&BUCHERT_2011_METHODS, Says::Flat)]),
    (15, "stream", 1, &[(&[LIM, HOGS, FRACAS], Says::Scales)]),
    (16, "sleep-compute", 1, &[(&[LIM], Says::Wrong), (&[HOGS, FRACAS, GOV, FREQ], Says::Right)]),
    (17, "multiprocess", 1, &[(&[LIM], Says::Wrong), (&[HOGS, FRACAS, GOV, FREQ], Says::Right)]),
    (18, "multithread", 1, &[(&BUCHERT_2011_METHODS, Says::Right)]),
    (19, "multithread", 2, &[(&[LIM, FRACAS], Says::TwiceTooSlow), (&[HOGS, GOV, FREQ], Says::Right)]),
    (20, "multiprocess", 2, &[(&[LIM, FRACAS], Says::Wrong), (&[HOGS, GOV, FREQ], Says::Right)]),
];
