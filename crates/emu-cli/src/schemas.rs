//! The schemas in `schemas/`: what each `--json` writes, as its types and their documentation say.

use std::fs;
use std::path::PathBuf;

use emu_bench::experiment::{End, Failure, Seen, Taken};
use emu_machine::{cpu, disk, hpcc, memory, noise, series, timers};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::commands::measure::reference::Referred;
use crate::commands::{calibrate, ci, doctor, info, measure, methods, node, report, restore, top, verify};
use crate::measuring::Document;
use crate::zone::record::Record;

/// Set to write the files anew.
const WRITE: &str = "EMU_WRITE_SCHEMAS";

// What is written is put together from its parts: these forms are of the schema alone.

/// A line of the samples of a record.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, clippy::large_enum_variant, reason = "no value of it is made")]
enum Line {
    OfBench(OfBench),
    /// Of a measurement of the machine.
    OfMachine {
        /// What was measured.
        row: String,
        /// What came of it, in the form of that measurement.
        sample: OfMachine,
    },
}

/// Of `emu bench`.
#[derive(JsonSchema)]
#[serde(tag = "row", content = "sample", rename_all = "kebab-case")]
#[expect(dead_code, clippy::large_enum_variant, reason = "no value of it is made")]
enum OfBench {
    Pair(Taken),
    Spectrum(Seen),
    Failure(Failure),
    End(End),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "no value of it is made")]
enum OfMachine {
    /// `emu noise`: the runs of a block.
    Block(Vec<noise::Run>),
    /// `emu noise`.
    Gaps(noise::CpuGaps),
    /// `emu timers`: what a clock is worth.
    Clock(timers::Quality),
    /// `emu timers`: what a clock tells of one size, beside the wall clock.
    OfSize(timers::OfSize),
    /// `emu timers`: all sizes in one order.
    Pass(timers::Pass),
    /// `emu timers`: where the time of a sample goes.
    Ledger(timers::Ledger),
    /// `emu calibrate`.
    Calibrate(emu_machine::calibrate::Sample),
    /// `emu doctor tune --measure`.
    Tune(emu_machine::doctor::effects::Windows),
    /// `emu measure cpu`: how often something can be done.
    Rate(cpu::Rate),
    /// `emu measure cpu`: how long a result takes.
    Wait(cpu::Wait),
    /// `emu measure memory`.
    Copy(memory::Copy),
    /// `emu measure memory`.
    Stream(memory::Stream),
    /// `emu measure memory`.
    Latency(memory::Latency),
    /// `emu measure disk`.
    Disk(disk::Told<'static>),
    /// `emu measure hpcc`.
    Hpcc(hpcc::Run),
    /// `emu measure hpcc`.
    HpccStream(hpcc::ToldOfStream<'static>),
    /// `emu measure` with `--for`.
    Step(series::Told),
}

fn schema<T: JsonSchema>(title: &str) -> Schema {
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema
}

#[test]
fn the_schemas_are_those_of_what_is_written() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas"));
    let all = [
        ("calibrate", schema::<Document<emu_machine::calibrate::Measured>>("emu calibrate --json")),
        (
            "calibrate-compare",
            schema::<calibrate::show::Document<'_, calibrate::show::Comparison<'_>>>(
                "emu calibrate compare --json",
            ),
        ),
        (
            "calibrate-map",
            schema::<calibrate::show::Document<'_, emu_machine::calibrate::Equivalent>>(
                "emu calibrate map --json",
            ),
        ),
        ("ci", schema::<ci::result::Report>("emu ci --json")),
        ("doctor", schema::<doctor::show::Report>("emu doctor --json")),
        (
            "doctor-tune",
            schema::<Document<emu_machine::doctor::effects::Measured>>("emu doctor tune --measure --json"),
        ),
        ("info", schema::<info::show::Info>("emu info --json")),
        (
            "measure-cpu",
            schema::<Document<measure::beside::Compared<Referred<emu_machine::cpu::Cpu>>>>(
                "emu measure cpu --json",
            ),
        ),
        (
            "measure-disk",
            schema::<Document<measure::beside::Compared<emu_machine::disk::Disk>>>("emu measure disk --json"),
        ),
        ("measure-hpcc", schema::<Document<measure::hpcc::Outcome>>("emu measure hpcc --json")),
        (
            "measure-memory",
            schema::<Document<measure::beside::Compared<Referred<emu_machine::memory::Memory>>>>(
                "emu measure memory --json",
            ),
        ),
        (
            "measure-series",
            schema::<Document<emu_machine::series::Series>>("emu measure cpu, memory or disk --for --json"),
        ),
        ("methods", schema::<methods::show::Listing>("emu methods --json")),
        ("node-apply", schema::<node::apply::Applied>("emu node apply --json")),
        ("node-list", schema::<node::show::NodeList>("emu node list --json")),
        ("noise", schema::<Document<emu_machine::noise::Measured>>("emu noise --json")),
        ("profile", schema::<emu_machine::profile::Profile>("emu profile")),
        ("record", schema::<emu_bench::record::About>("record.json of a record")),
        ("report-hosts", schema::<report::hosts::Hosts>("emu report --json of hosts")),
        ("report", schema::<emu_bench::report::Results>("emu report --json and emu bench --json")),
        ("restore", schema::<restore::show::Document<'_>>("emu restore --json")),
        ("run", schema::<Record>("emu run --json and emu attach --json")),
        ("samples", schema::<Line>("a line of samples.jsonl of a record")),
        ("timers", schema::<Document<emu_machine::timers::Measured>>("emu timers --json")),
        ("top", schema::<top::show::Line<'_>>("a line of emu top --json")),
        ("verify", schema::<verify::show::Report>("emu verify --json")),
    ];
    for (name, schema) in all {
        let file = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            fs::write(&file, &text).unwrap();
        }
        let is_kept = fs::read_to_string(&file).is_ok_and(|kept| kept == text);
        assert!(is_kept, "{} is of another form: {WRITE}=1 cargo test schemas writes it", file.display());
    }
}
