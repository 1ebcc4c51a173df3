//! What equals a setting of another machine, in words.

use emu_bench::numbers::{percent, significant};
use emu_bench::table::paragraph;
use emu_machine::calibrate::{Doubt, Equivalent};

pub(crate) fn text(found: &Equivalent) -> String {
    let mut words = format!(
        "Setting {} ± {} of the other machine is {:.2} GFLOPS; here that is a quota of {:.3} ± {:.3} CPUs, or a speed of \
         {} ± {} on all CPUs (± one standard deviation).",
        found.setting,
        significant(found.setting_sd),
        found.gflops,
        found.quota,
        found.quota_sd,
        percent(found.speed),
        percent(found.speed_sd)
    );
    for doubt in &found.doubts {
        words += &in_doubt(doubt);
    }
    paragraph(words)
}

fn in_doubt(doubt: &Doubt) -> String {
    let machine = if doubt.is_local { "this machine" } else { "the other machine" };
    let r_squared = doubt.r_squared.map_or_else(String::new, |r_squared| format!("R² {r_squared:.4}, "));
    let off_line = (!doubt.is_linear).then(|| {
        format!(
            " IN DOUBT: {machine} does not follow a line ({r_squared}off it by {} of the largest rate at {}): the equivalent \
             may be off by as much.",
            percent(doubt.residuals.largest_share),
            significant(doubt.residuals.at_quota)
        )
    });
    let disturbed = (doubt.disturbed_quotas > 0).then(|| {
        let quotas = doubt.disturbed_quotas;
        format!(" IN DOUBT: others disturbed every sample of {machine} at {quotas} of its quotas.")
    });
    off_line.into_iter().chain(disturbed).collect()
}
