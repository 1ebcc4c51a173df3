//! What memory does, as tables and figures.

use emu_bench::numbers::{nanos, rate, size};
use emu_bench::report::{Axis, Chart, Series};
use emu_bench::stream::Kernel;
use emu_bench::table::{Column, Table, notes, paragraph};
use emu_bench::{columns, fields, row, table};
use emu_machine::memory::{Latency, Memory};

use crate::commands::measure::of_samples;
use crate::output::Shown;

pub(crate) fn shown(memory: &Memory) -> Shown {
    let figures = vec![("", latency_chart(memory)), ("copies", copy_chart(memory))];
    Shown { text: text(memory), csv: csv(memory), figures }
}

fn text(memory: &Memory) -> String {
    let mut copies = Table::new(columns![
        text "COPY OF", number "THREADS", number "SEQUENTIAL", number "A BLOCK", number "RANDOM",
        number "A BLOCK",
    ]);
    for copy in memory.copies.iter().filter(|copy| !copy.random) {
        let random = memory.copies.iter().find(|other| {
            other.random && (other.block_bytes, other.threads) == (copy.block_bytes, copy.threads)
        });
        let times = [Some(copy), random].map(|copy| {
            row![copy.map(|copy| rate(copy.bytes_per_s, "B")), copy.map(|copy| nanos(copy.block_ns))]
        });
        copies.row(row![size(copy.block_bytes), copy.threads].into_iter().chain(times.concat()));
    }
    let kernels = Kernel::ALL.map(|kernel| Column::number(kernel.name().to_uppercase()));
    let mut stream = Table::new([Column::text("STREAM")].into_iter().chain(kernels));
    for run in &memory.stream {
        let name = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
        stream.row([name].into_iter().chain(run.best_bytes_per_s.map(|best| rate(best, "B"))));
    }
    let loads = table! {
        for latency in &memory.latencies;
        number "LOADS FROM" = size(latency.working_set_bytes),
        time "A LOAD" = latency.load_ns,
        fixed(1) "CYCLES" = latency.load_cycles,
        text "FITS" = fits(memory, latency),
    };
    let rule = if memory.size.obeys_rule() {
        "four times the last-level caches, as STREAM demands"
    } else {
        "less than four times the last-level caches: caches help"
    };
    let note = format!(
        "Arrays of {} each, {rule}. Copies count the bytes copied, STREAM those read and written; copies of a few bytes \
         are mostly the time to work out where the next block lies. A load waits for the one before it, and misses of \
         the TLB count.",
        size(memory.size.array_bytes)
    );
    let tables = [copies, stream, loads].map(|table| table.text() + "\n").concat();
    format!("{tables}{}{}\n{}", paragraph(note), notes(&memory.notes), paragraph(conclusion(memory)))
}

fn fits(memory: &Memory, latency: &Latency) -> Option<String> {
    let cache = memory.caches.iter().find(|cache| latency.working_set_bytes <= cache.bytes);
    let in_none = || (!memory.caches.is_empty()).then(|| "no cache".to_owned());
    cache.map(|cache| format!("L{}", cache.level)).or_else(in_none)
}

fn conclusion(memory: &Memory) -> String {
    // What was disturbed counts only where there is nothing else.
    let is_calm = memory.stream.iter().any(|run| !run.disturbed);
    let counting = memory.stream.iter().filter(|run| !(is_calm && run.disturbed));
    let best = counting.filter_map(|run| Some((run.threads, *run.best_bytes_per_s.last()?)));
    let best = best.max_by(|a, b| a.1.total_cmp(&b.1));
    let stream = best.map_or_else(String::new, |(threads, triad)| {
        let threads = if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") };
        format!("Memory gives {threads} {} of triad. ", rate(triad, "B"))
    });
    let loads = match (memory.latencies.first(), memory.latencies.last()) {
        (Some(near), Some(far)) if near.disturbed || far.disturbed => {
            "How much longer a load from memory takes is not told: others disturbed it.".to_owned()
        }
        (Some(near), Some(far)) => format!(
            "A load takes {} from {} and {} from {}, {:.0} times as long.",
            nanos(near.load_ns),
            size(near.working_set_bytes),
            nanos(far.load_ns),
            size(far.working_set_bytes),
            far.load_ns / near.load_ns
        ),
        _ => String::new(),
    };
    stream + &loads
}

fn csv(memory: &Memory) -> String {
    let mut table = Table::data("what,name,bytes,threads,bytes_per_s,time_ns,cycles,samples");
    for copy in &memory.copies {
        fields!(table;
            what = "copy", name = if copy.random { "random" } else { "sequential" }, bytes = copy.block_bytes,
            threads = copy.threads, bytes_per_s = copy.bytes_per_s, time_ns = copy.block_ns,
            samples = copy.samples.len(),
        );
    }
    for run in &memory.stream {
        for (kernel, best) in Kernel::ALL.iter().zip(run.best_bytes_per_s) {
            fields!(table;
                what = "stream", name = kernel.name(), bytes = memory.size.array_bytes, threads = run.threads,
                bytes_per_s = best, samples = run.passes.rates(*kernel).len(),
            );
        }
    }
    for latency in &memory.latencies {
        fields!(table;
            what = "load", bytes = latency.working_set_bytes, threads = 1_u64, time_ns = latency.load_ns,
            cycles = latency.load_cycles, samples = latency.samples.len(),
        );
    }
    table.csv()
}

fn latency_chart(memory: &Memory) -> Chart {
    let point = |latency: &Latency| {
        let point = of_samples(latency.working_set_bytes as f64, latency.load_ns, &latency.samples, 1.0);
        point.open(latency.disturbed)
    };
    let series = vec![Series::curve("a load", memory.latencies.iter().map(point).collect())];
    Chart::new("memory: time of a load", Axis::log("working set, bytes"), Axis::log("ns"), series)
}

fn copy_chart(memory: &Memory) -> Chart {
    let mut threads: Vec<usize> = memory.copies.iter().map(|copy| copy.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let series = threads.into_iter().flat_map(|threads| {
        [(false, "sequential"), (true, "random")].map(|(random, name)| {
            let copies = memory.copies.iter().filter(|copy| (copy.threads, copy.random) == (threads, random));
            let point = |copy: &emu_machine::memory::Copy| {
                let point = of_samples(copy.block_bytes as f64, copy.bytes_per_s, &copy.samples, 1e6);
                point.open(copy.disturbed)
            };
            Series::curve(format!("{name}, {threads} thread(s)"), copies.map(point).collect())
        })
    });
    let (x, y) = (Axis::log("block, bytes"), Axis::log("MB/s"));
    Chart::new("memory: copies", x, y, series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::memory::{Cache, StreamSize};
    use emu_bench::report::Point;
    use emu_machine::kernel::stream::Passes;
    use emu_machine::memory::{Copy, Stream};

    fn memory() -> Memory {
        let copy = |block_bytes, random, threads| Copy {
            block_bytes,
            random,
            threads,
            bytes_per_s: 12.34e9,
            block_ns: 81.2,
            samples: vec![12.34e9; 3],
            left_out: vec![],
            disturbed: false,
        };
        let rows = [1, 1 << 20].into_iter().flat_map(|block| [(block, false), (block, true)]);
        let passes = Passes { elements: 1000, seconds: [(); 4].map(|()| vec![1e-6; 4]) };
        let latency = |working_set_bytes, load_ns: f64| Latency {
            working_set_bytes,
            load_ns,
            load_cycles: Some(load_ns * 3.0),
            samples: vec![load_ns, load_ns * 1.1],
            left_out: vec![],
            disturbed: working_set_bytes == 1 << 20,
        };
        Memory {
            size: StreamSize { array_bytes: 64 << 20, cache_bytes: Some(16 << 20), available_bytes: None },
            caches: vec![
                Cache { level: 1, bytes: 32 << 10, shared: "0".into() },
                Cache { level: 3, bytes: 16 << 20, shared: "0-1".into() },
            ],
            clock: None,
            copies: rows.map(|(block, random)| copy(block, random, 2)).collect(),
            stream: vec![Stream {
                threads: 2,
                best_bytes_per_s: [10e9, 11e9, 12e9, 13.4e9],
                passes,
                left_out: vec![],
                disturbed: false,
            }],
            latencies: vec![latency(4096, 1.5), latency(1 << 20, 20.0), latency(64 << 20, 120.0)],
            notes: vec!["The figures mean little.".into()],
        }
    }

    #[test]
    fn tables_are_narrow_and_loads_know_their_cache() {
        let text = text(&memory());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for words in ["L1\n", "L3\n", "no cache\n"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = text.replace('\n', " ");
        for words in
            ["2 threads 13.4 GB/s of triad", "80 times as long", "where the next block lies", "mean little."]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        let mut disturbed = memory();
        disturbed.latencies[0].disturbed = true;
        assert!(conclusion(&disturbed).ends_with("is not told: others disturbed it."));
        let short = Memory { size: StreamSize { cache_bytes: None, ..memory().size }, ..memory() };
        assert!(self::text(&short).replace('\n', " ").contains("caches help"));
    }

    #[test]
    fn every_line_of_the_csv_has_all_columns() {
        let csv = csv(&memory());
        assert_eq!(csv.lines().count(), 1 + 4 + 4 + 3);
        assert!(csv.lines().all(|line| line.split(',').count() == 8), "{csv}");
        assert!(copy_chart(&memory()).svg().unwrap().contains("random, 2"));
        let latencies = latency_chart(&memory());
        let bar = |x, y: f64| Point::between(x, y, y, y * 1.1);
        let points = [bar(4096.0, 1.5), bar(1_048_576.0, 20.0).open(true), bar(67_108_864.0, 120.0)];
        assert_eq!(latencies.series, [Series::curve("a load", points.into())]);
        assert!(latencies.svg().unwrap().contains("time of a load"));
    }
}
