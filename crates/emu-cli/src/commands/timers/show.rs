//! The clocks of a machine as tables and figures.

use emu_bench::numbers::{nanos, percent};
use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::table::{Column, Table, Value, paragraph};
use emu_bench::{fields, row, table};
use emu_machine::timers::clock::Counts;
use emu_machine::timers::{Backwards, Change, Disparity, Drift, Ledger, Measured, OfSize, Quality, Relative};

use crate::output::Shown;

/// Every so many sizes are in the tables; all are in the CSV and the figures.
const EVERY: usize = 4;

/// The columns of the CSV. A line is of a clock, of a clock at a size, of a size, or of a sample.
const COLUMNS: &str = "what,name,steps,samples,cost_ns,step_ns,declared_ns,reads_within,backwards_within,\
backwards_within_ns,reads_across,backwards_across,backwards_across_ns,wall_ns,disparity,disparity_low,disparity_high,\
inverted±,inverted_beyond_error±,descending±,random±,best_hz,sd_hz,reference_share,reference_sd,run_ns,queue_ns,\
own_throttle_ns,outer_throttle_ns,stolen_ns,sleep_ns";

pub(crate) fn shown(measured: &Measured) -> Shown {
    let mut figures = vec![("", disparity_chart(measured)), ("drift", drift_chart(measured))];
    figures.extend(measured.relative.as_ref().map(|relative| ("reference", reference_chart(relative))));
    Shown { text: text(measured), csv: csv(measured), figures }
}

fn text(measured: &Measured) -> String {
    let relative = measured.relative.as_ref().map(|Relative { sizes, reference, .. }| {
        let best = sizes
            .last()
            .map_or_else(String::new, |size| format!("{} ± {}", percent(size.share), percent(size.sd)));
        paragraph(format!("Of the performance of the reference ({reference}) this machine has {best}."))
    });
    [
        clocks(&measured.clocks).text(),
        inversions(&measured.disparities),
        sizes(measured),
        ledger(&measured.ledgers) + &relative.unwrap_or_default(),
        paragraph(&measured.conclusion),
    ]
    .join("\n")
}

fn clocks(clocks: &[Quality]) -> Table {
    table! {
        for clock in clocks;
        text "CLOCK" = &clock.clock,
        text "COUNTS" = match clock.counts {
            Counts::Wall => "time",
            Counts::Process => "process",
            Counts::Thread => "thread",
        },
        time "READ" = clock.cost_ns,
        number "STEP" = clock.step_ns.map_or_else(|| "none".into(), nanos),
        time "DECLARED" = clock.declared_ns,
        number "RAN BACK" = backwards(clock.within.iter().copied().reduce(sum)),
        number "ACROSS CPUS" = backwards(clock.across),
    }
}

fn sum(a: Backwards, b: Backwards) -> Backwards {
    Backwards {
        cpu: a.cpu,
        reads: a.reads + b.reads,
        count: a.count + b.count,
        worst_ns: a.worst_ns.max(b.worst_ns),
    }
}

fn backwards(seen: Option<Backwards>) -> String {
    match seen {
        None => "one CPU".into(),
        Some(seen) if seen.count == 0 => "never".into(),
        Some(seen) => format!("{}, {}", seen.count, nanos(seen.worst_ns as f64)),
    }
}

fn inversions(disparities: &[Disparity]) -> String {
    let range = |low: f64, high: f64| format!("{} to {}", percent(low), percent(high));
    let table = table! {
        for Disparity { clock, sizes, inverted, inverted_beyond_error: beyond, .. } in disparities;
        text "CPU CLOCK" = clock,
        number "SAMPLES" = sizes.iter().map(|size| size.times.len()).sum::<usize>(),
        percent "CPU > WALL" = inverted.estimate,
        text "95%" = range(inverted.low, inverted.high),
        percent "BEYOND" = beyond.estimate,
        text "95%" = range(beyond.low, beyond.high),
    };
    let note = "Computations with more CPU time than wall time, and those of them that the steps of both clocks do not \
                explain.";
    table.text() + &paragraph(note)
}

/// |CPU/wall − 1| of each CPU clock and the drift, by size.
fn sizes(measured: &Measured) -> String {
    let clocks = measured.disparities.iter().map(|of| Column::percent(short(&of.clock)));
    let header = [Column::number("SIZE"), Column::time("TIME")].into_iter();
    let drift = ["DESC/ASC", "RANDOM/ASC"].map(Column::change);
    let mut table = Table::new(header.chain(clocks).chain(drift));
    for (place, drift) in measured.drift.iter().enumerate() {
        if !place.is_multiple_of(EVERY) && place + 1 != measured.drift.len() {
            continue;
        }
        let disparity = |of: &Disparity| {
            let size = of.sizes.iter().find(|size| size.steps == drift.steps);
            Value::from(size.and_then(OfSize::disparity))
        };
        let time = drift.steps as f64 * 1e9 / drift.best_hz.max(1.0);
        let disparities = measured.disparities.iter().map(disparity);
        let changes = row![drift.descending.median, drift.random.median];
        table.row(
            row![format!("2^{}", drift.steps.ilog2()), time].into_iter().chain(disparities).chain(changes),
        );
    }
    let note = "By size in steps: |CPU/wall - 1| of each CPU clock, and how much longer it takes when sizes descend \
                or come at random than when they ascend.";
    table.text() + &paragraph(note)
}

fn short(clock: &str) -> &str {
    clock.strip_suffix("_CPUTIME").unwrap_or(clock)
}

fn ledger(ledgers: &[Ledger]) -> String {
    let all = |part: fn(&Ledger) -> Option<u64>| ledgers.iter().map(part).sum::<Option<u64>>();
    let wall = all(|ledger| Some(ledger.wall_ns)).unwrap_or(0).max(1) as f64;
    let part = |name: &str, part: fn(&Ledger) -> Option<u64>| match all(part) {
        Some(time) => format!("{name} {}", percent(time as f64 / wall)),
        None => format!("{name} not reported"),
    };
    let words = [
        part("running", |ledger| Some(ledger.run_ns)),
        part("waiting for a CPU", |ledger| ledger.queue_ns),
        part("own throttling", |ledger| ledger.own_throttle_ns),
        part("outer throttling", |ledger| ledger.outer_throttle_ns),
        part("stolen", |ledger| Some(ledger.stolen_ns)),
        part("asleep", |ledger| Some(ledger.sleep_ns)),
    ];
    let asked = all(|ledger| Some(ledger.asked_sleep_ns)).unwrap_or(0) as f64 / wall;
    paragraph(format!(
        "Where the time of a sample went: {} ({} asked for).",
        words.join(", "),
        percent(asked)
    ))
}

fn csv(measured: &Measured) -> String {
    let mut table = Table::data(COLUMNS);
    for clock in &measured.clocks {
        let within = clock.within.iter().copied().reduce(sum);
        fields!(table;
            what = "clock", name = &clock.clock, cost_ns = clock.cost_ns, step_ns = clock.step_ns,
            declared_ns = clock.declared_ns, reads_within = within.map(|seen| seen.reads),
            backwards_within = within.map(|seen| seen.count),
            backwards_within_ns = within.map(|seen| seen.worst_ns.to_string()),
            reads_across = clock.across.map(|seen| seen.reads),
            backwards_across = clock.across.map(|seen| seen.count),
            backwards_across_ns = clock.across.map(|seen| seen.worst_ns.to_string()),
        );
    }
    for of in &measured.disparities {
        let samples: usize = of.sizes.iter().map(|size| size.times.len()).sum();
        fields!(table;
            what = "inversions", name = &of.clock, samples = samples, inverted = of.inverted,
            inverted_beyond_error = of.inverted_beyond_error,
        );
        for size in &of.sizes {
            fields!(table;
                what = "disparity", name = &of.clock, steps = size.steps, samples = size.times.len(),
                disparity = size.disparity(), disparity_low = size.quartiles().map(|(low, _)| low),
                disparity_high = size.quartiles().map(|(_, high)| high),
            );
        }
    }
    let ends = |of: &Change| Value::from((of.median, of.low, of.high));
    for drift in &measured.drift {
        let reference = measured.relative.iter().flat_map(|relative| &relative.sizes);
        let reference = reference.into_iter().find(|size| size.steps == drift.steps);
        fields!(table;
            what = "size", steps = drift.steps, descending = ends(&drift.descending), random = ends(&drift.random),
            best_hz = drift.best_hz, sd_hz = drift.sd_hz, reference_share = reference.map(|size| size.share),
            reference_sd = reference.map(|size| size.sd),
        );
    }
    for ledger in &measured.ledgers {
        fields!(table;
            what = "sample", wall_ns = ledger.wall_ns, run_ns = ledger.run_ns, queue_ns = ledger.queue_ns,
            own_throttle_ns = ledger.own_throttle_ns, outer_throttle_ns = ledger.outer_throttle_ns,
            stolen_ns = ledger.stolen_ns, sleep_ns = ledger.sleep_ns,
        );
    }
    table.csv()
}

fn disparity_chart(measured: &Measured) -> Chart {
    let series = measured.disparities.iter().map(|of| {
        let point = |size: &OfSize| {
            let (low, high) = size.quartiles()?;
            let percent = |share: f64| share * 100.0;
            let y = percent(size.disparity()?);
            Some(Point::between(size.steps as f64, y, percent(low), percent(high)))
        };
        Series::curve(of.clock.clone(), of.sizes.iter().filter_map(point).collect())
    });
    let (x, y) = (Axis::log("size, steps"), Axis::log("|CPU time / wall time - 1|, %"));
    Chart::new("CPU time against wall time", x, y, series.collect())
}

/// What the order of sizes does, with the least and the most of all rounds.
fn drift_chart(measured: &Measured) -> Chart {
    let series = |name: &str, of: fn(&Drift) -> Change| {
        let point = |drift: &Drift| {
            let Change { median, low, high, .. } = of(drift);
            Point::between(drift.steps as f64, median * 100.0, low * 100.0, high * 100.0)
        };
        Series::curve(name, measured.drift.iter().map(point).collect())
    };
    let series = vec![series("descending", |drift| drift.descending), series("random", |drift| drift.random)];
    let (x, y) = (Axis::log("size, steps"), Axis::linear("time above that of ascending order, %"));
    let ends = [measured.drift.first(), measured.drift.last()];
    let line = ends.into_iter().flatten().map(|drift| (drift.steps as f64, 0.0)).collect();
    Chart::new("what the order of sizes changes", x, y, series).with_ideal("ascending", line)
}

fn reference_chart(relative: &Relative) -> Chart {
    let points = relative.sizes.iter().map(|size| {
        let [y, low, high] =
            [size.share, size.share - size.sd, size.share + size.sd].map(|share| share * 100.0);
        Point::between(size.steps as f64, y, low, high)
    });
    let ends = [relative.sizes.first(), relative.sizes.last()];
    let line = ends.into_iter().flatten().map(|size| (size.steps as f64, 100.0)).collect();
    let y = Axis::linear("performance in that of the reference, %");
    let series = vec![Series::curve("this machine", points.collect())];
    Chart::new("against the reference", Axis::log("size, steps"), y, series).with_ideal("reference", line)
}
