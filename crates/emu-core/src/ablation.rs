//! Switches single corrections off, so that `benches/ablation.rs` can measure what each of them is worth. Without the feature
//! `ablation` every correction is on and the compiler leaves the question out.

/// Something that the methods take into account beyond stopping and resuming tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    unreachable_pub,
    reason = "docs/INTERNALS.md tells of each what it is worth; public for the bench"
)]
pub enum Correction {
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
    CrowdedBirth,
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
        Correction::ALL.into_iter().find(|correction| correction.name() == name)
    }) == Some(correction)
}

/// Names the correction that is switched off in this process.
#[cfg(feature = "ablation")]
pub const VARIABLE: &str = "EMU_ABLATION";

#[cfg(feature = "ablation")]
impl Correction {
    /// All of them.
    pub const ALL: [Self; 34] = [
        Self::Account,
        Self::DetunedGrid,
        Self::LateStart,
        Self::VisibleWakeCost,
        Self::HiddenWakeCost,
        Self::HiddenScaling,
        Self::NormalProbe,
        Self::TimerPrearm,
        Self::SkippedPeriods,
        Self::BurnGaps,
        Self::SearchAfterBurn,
        Self::InterruptsOfOthers,
        Self::StopCostBase,
        Self::StopCostTick,
        Self::OwnTime,
        Self::SharedController,
        Self::WayOut,
        Self::EarlySleepers,
        Self::Settle,
        Self::PinApart,
        Self::CpuAwake,
        Self::QueuePlace,
        Self::SearchAfterStop,
        Self::FreezeMiddle,
        Self::Leaked,
        Self::RunnerSignals,
        Self::MomentOfWork,
        Self::TurnOrder,
        Self::StallCost,
        Self::StallFrequency,
        Self::IdleQuota,
        Self::CrowdedBirth,
        Self::TurnEnds,
        Self::Trim,
    ];

    /// Its name in the environment and in tables, such as `StopCostBase`.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}
