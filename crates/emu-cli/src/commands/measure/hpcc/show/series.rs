//! Rates over a series of sizes, and percentages of a reference's.

use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::table::paragraph;
use emu_bench::{distinct, table};
use emu_machine::hpcc::{Kernel, Measured, Share};
use emu_machine::kernel::stream;

use super::super::Reference;
use super::{billions, point, size};

const EQUATIONS: &str = "equations of LINPACK; others of as much memory";

/// A figure for each unit: the best rates of the most threads over sizes, with those of all runs that count.
pub(super) fn charts(measured: &Measured) -> Vec<(&'static str, Chart)> {
    let most = measured.rows.iter().map(|row| row.threads).max().unwrap_or(1);
    let chart = |(name, unit): (&'static str, &str)| {
        let rows = || measured.rows.iter().filter(|row| row.threads == most && row.kernel.unit() == unit);
        let series = distinct(rows().map(|row| row.kernel)).into_iter().map(|kernel| {
            let points = rows()
                .filter(|row| row.kernel == kernel)
                .filter_map(|row| Some(point(row.order? as f64, row)));
            Series::curve(kernel.name(), points.collect())
        });
        let series: Vec<_> = series.collect();
        let y = Axis::linear(format!("{unit}, best of the runs, and all of them"));
        let title = format!("Kernels of the HPC Challenge by size, threads: {most}");
        (!series.is_empty()).then(|| (name, Chart::new(title, Axis::linear(EQUATIONS), y, series)))
    };
    [("gflops", "GFLOPS"), ("bandwidth", "GB/s"), ("updates", "GUPS")].into_iter().filter_map(chart).collect()
}

/// The percentages with their intervals, where there are some: over sizes, or by kernel where there is one size of each.
pub(super) fn reference_chart(reference: &Reference) -> Chart {
    let shares = &reference.shares;
    let most = shares.iter().map(|share| share.threads).max().unwrap_or(1);
    // Of the kernels of STREAM one: they would hide each other.
    let is_shown =
        |kernel: Kernel| !matches!(kernel, Kernel::Stream(other) if other != stream::Kernel::Triad);
    let all = || shares.iter().filter(|share| share.threads == most && is_shown(share.kernel));
    let kernels = distinct(all().map(|share| share.kernel));
    let point = |x: f64, share: &Share| {
        let [y, low, high] = share
            .of_means
            .map_or([share.share; 3], |of| [of.estimate, of.low, of.high])
            .map(|share| share * 100.0);
        Point::between(x, y, low, high)
    };
    let title = format!("Percentage of the reference, threads: {most}");
    let y = Axis::linear("% of its mean rate, 95% interval");
    if all().any(|share| share.order.is_some()) {
        let series = kernels.into_iter().map(|kernel| {
            let of = all().filter(|share| share.kernel == kernel);
            Series::curve(
                kernel.name(),
                of.filter_map(|share| Some(point(share.order? as f64, share))).collect(),
            )
        });
        let largest = all().filter_map(|share| share.order).max().unwrap_or(0) as f64;
        let same = vec![(0.0, 100.0), (largest, 100.0)];
        return Chart::new(title, Axis::linear(EQUATIONS), y, series.collect()).with_ideal("the same", same);
    }
    let points = kernels.iter().enumerate().filter_map(|(place, kernel)| {
        Some(point((place + 1) as f64, all().find(|share| share.kernel == *kernel)?))
    });
    let points = points.collect();
    let names = kernels.iter().map(|kernel| kernel.name().to_owned()).collect();
    Chart::new(title, Axis::of_names("", names), y, vec![Series::points("here", points)])
}

pub(super) fn reference_text(reference: &Reference) -> String {
    let table = table! {
        for share in &reference.shares;
        text "KERNEL" = share.kernel.name(),
        number "THREADS" = share.threads,
        number "SIZE" = size(share.size),
        number "THERE" = billions(share.there),
        text "UNIT" = share.kernel.unit(),
        number "OF THE REFERENCE" = format!("{:.1}%", share.share * 100.0),
        number "MEANS, 95%" = share.of_means.map(|of| format!("{:.1} to {:.1}%", of.low * 100.0, of.high * 100.0)),
    };
    let mut note = format!(
        "The reference is of {}. Best rate by best rate; beside it the interval of the ratio of mean rates, of the runs \
         that nobody has disturbed where there are some.",
        reference.model
    );
    if !reference.without_counterpart.is_empty() {
        let missing = reference.without_counterpart.join(", ");
        note.extend([" The reference has nothing of the same size and threads as ", &missing, "."]);
    }
    for disturbed in &reference.disturbed {
        note.extend([" Of the reference itself: ", disturbed]);
    }
    format!("\n{}\n{}", table.text(), paragraph(note))
}
