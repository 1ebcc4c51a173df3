//! Switches single corrections off, so that `benches/ablation.rs` can measure what each of them is worth. Without the feature
//! `ablation` every correction is on and the compiler leaves the question out.

macro_rules! corrections {
    ($($name:ident),* $(,)?) => {
        /// Something that the methods take into account beyond stopping and resuming tasks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(
            missing_docs,
            unreachable_pub,
            reason = "docs/INTERNALS.md tells of each what it is worth; public for the bench"
        )]
        pub enum Correction {
            $($name),*
        }

        #[cfg(feature = "ablation")]
        impl Correction {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

corrections! {
    Account,
    DetunedGrid,
    LateStart,
    VisibleWakeCost,
    HiddenWakeCost,
    HiddenScaling,
    NormalProbe,
    TimerPrearm,
    SkippedPeriods,
    BurnGaps,
    SearchAfterBurn,
    InterruptsOfOthers,
    StopCostBase,
    StopCostTick,
    OwnTime,
    SharedController,
    WayOut,
    EarlySleepers,
    Settle,
    PinApart,
    CpuAwake,
    QueuePlace,
    SearchAfterStop,
    FreezeMiddle,
    Leaked,
    RunnerSignals,
    MomentOfWork,
    TurnOrder,
    StallCost,
    StallFrequency,
    IdleQuota,
    Arrears,
    TurnEnds,
    Trim,
}

#[cfg(not(feature = "ablation"))]
pub(crate) const fn is_off(_: Correction) -> bool {
    false
}

/// The environment variable [`VARIABLE`] names it, as [`Correction::name`] does.
#[cfg(feature = "ablation")]
pub(crate) fn is_off(correction: Correction) -> bool {
    static OFF: std::sync::OnceLock<Option<Correction>> = std::sync::OnceLock::new();
    *OFF.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        Correction::ALL.iter().copied().find(|correction| correction.name() == name)
    }) == Some(correction)
}

/// Names the correction that is switched off in this process.
#[cfg(feature = "ablation")]
pub const VARIABLE: &str = "EMU_ABLATION";

#[cfg(feature = "ablation")]
impl Correction {
    /// Its name in the environment and in tables, such as `StopCostBase`.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}
