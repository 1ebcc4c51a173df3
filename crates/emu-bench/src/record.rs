//! Records: a dated folder with what was run, on what, every raw sample, and the summary.
//!
//! A record tells nothing of whose machine it is: no host name, no user, no path.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use emu_core::{CgroupLayout, Error, ErrorKind, Host, Result};
use serde::Serialize;

/// Version of the files' form.
pub const SCHEMA: u32 = 1;

/// Files of a record.
const ABOUT: &str = "record.json";
const SAMPLES: &str = "samples.jsonl";
const SUMMARY: &str = "summary.md";

/// The longest name of a machine in a folder's name.
const SLUG_MAX: usize = 40;

/// Records of one day and machine that can be told apart.
const SAME_DAY_MAX: u32 = 1000;

/// What of the host matters to its measurements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The processor.
    pub model: String,
    /// CPUs online.
    pub cpus: usize,
    /// Whether cores have several threads.
    pub smt: bool,
    /// Kernel release.
    pub kernel: String,
    /// The hypervisor, if one shows itself.
    pub hypervisor: Option<String>,
    /// Clock source.
    pub clocksource: Option<String>,
    /// Cgroup layout.
    pub cgroups: CgroupLayout,
    /// Driver and governor of each cpufreq policy.
    pub cpufreq: Vec<(String, String)>,
    /// Largest share of a CPU for real-time tasks.
    pub real_time_share: f64,
    /// Whether the run was privileged.
    pub root: bool,
}

impl Machine {
    /// The part of a host's description that belongs into a record.
    pub fn of(host: &Host) -> Self {
        let policies = host.cpufreq.iter().flat_map(|cpufreq| &cpufreq.policies);
        Self {
            model: host.model.clone(),
            cpus: host.online().len(),
            smt: host.cpus.iter().any(|cpu| cpu.siblings.len() > 1),
            kernel: host.kernel.clone(),
            hypervisor: host.hypervisor.clone(),
            clocksource: host.clocks.source.clone(),
            cgroups: host.cgroups.layout,
            cpufreq: policies.map(|policy| (policy.driver.clone(), policy.governor.clone())).collect(),
            real_time_share: host.real_time.largest_share(),
            root: host.privileges.uid == 0,
        }
    }
}

#[derive(Serialize)]
struct About<'a> {
    schema: u32,
    date: String,
    command: &'a str,
    version: &'a str,
    seed: u64,
    machine: &'a Machine,
}

/// A record being written. What has been written stays, should the run be cut short.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    samples: File,
}

impl Record {
    /// Makes `<below>/<date>-<machine>`, with a number where that exists: a record is never written over.
    ///
    /// `command` is what reproduces it.
    ///
    /// # Errors
    /// A folder or file cannot be made.
    pub fn create(below: &Path, machine: &Machine, command: &str, seed: u64) -> Result<Self> {
        let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let day = date.split('T').next().unwrap_or(&date);
        fs::create_dir_all(below).map_err(|cause| Error::file("make", below, cause))?;
        let folder = new_folder(below, &format!("{day}-{}", slug(&machine.model)))?;
        let about =
            About { schema: SCHEMA, command, version: env!("CARGO_PKG_VERSION"), seed, machine, date };
        let text = serde_json::to_string_pretty(&about).map_err(unwritable)?;
        write(&folder.join(ABOUT), &format!("{text}\n"))?;
        let path = folder.join(SAMPLES);
        let samples = File::create_new(&path).map_err(|cause| Error::file("make", &path, cause))?;
        Ok(Self { folder, samples })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds one sample under the name of the row it belongs to.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn sample(&mut self, row: &str, sample: &impl Serialize) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a, S> {
            row: &'a str,
            sample: &'a S,
        }
        let line = serde_json::to_string(&Line { row, sample }).map_err(unwritable)?;
        writeln!(self.samples, "{line}")
            .map_err(|cause| Error::file("write to", &self.folder.join(SAMPLES), cause))
    }

    /// Writes the summary, in Markdown.
    ///
    /// # Errors
    /// It cannot be written, or has been already.
    pub fn summary(&self, markdown: &str) -> Result<()> {
        write(&self.folder.join(SUMMARY), markdown)
    }
}

fn unwritable(cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Failed, "cannot write a sample as JSON").caused_by(cause)
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create_new(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|cause| Error::file("write", path, cause))
}

fn new_folder(below: &Path, name: &str) -> Result<PathBuf> {
    for number in 1..=SAME_DAY_MAX {
        let folder = below.join(if number == 1 { name.into() } else { format!("{name}-{number}") });
        match fs::create_dir(&folder) {
            Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(Error::file("make", &folder, cause)),
            Ok(()) => return Ok(folder),
        }
    }
    Err(Error::usage(format!("there are {SAME_DAY_MAX} records {name} already")).hint("give another --out"))
}

/// The processor's name as a part of a file name: letters, digits and single dashes.
fn slug(model: &str) -> String {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words.map(str::to_ascii_lowercase) {
        if slug.len() + word.len() >= SLUG_MAX {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word);
    }
    if slug.is_empty() { "unknown".into() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            model: "AMD EPYC(tm) 7xx3 / 32-Core  Processor".into(),
            cpus: 2,
            smt: false,
            kernel: "6.18".into(),
            hypervisor: None,
            clocksource: None,
            cgroups: CgroupLayout::V2,
            cpufreq: vec![],
            real_time_share: 0.95,
            root: true,
        }
    }

    #[test]
    fn folder_names_are_made_of_the_processors_name() {
        assert_eq!(slug(&machine().model), "amd-epyc-tm-7xx3-32-core-processor");
        assert_eq!(slug("../ / é"), "unknown");
        assert!(slug(&"word ".repeat(50)).len() <= SLUG_MAX);
    }

    #[test]
    fn a_record_keeps_every_sample_and_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::create(dir.path(), &machine(), "cargo bench", 7).unwrap();
        record.sample("row", &[1, 2]).unwrap();
        record.sample("row", &[3]).unwrap();
        record.summary("# Summary\n").unwrap();
        assert!(record.summary("another").is_err());
        let text = fs::read_to_string(record.folder().join(SAMPLES)).unwrap();
        assert_eq!(text, "{\"row\":\"row\",\"sample\":[1,2]}\n{\"row\":\"row\",\"sample\":[3]}\n");
        let about: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(record.folder().join(ABOUT)).unwrap()).unwrap();
        assert_eq!((about["schema"].as_u64(), about["seed"].as_u64()), (Some(1), Some(7)));
        let second = Record::create(dir.path(), &machine(), "cargo bench", 7).unwrap();
        assert_ne!(second.folder(), record.folder());
        assert!(second.folder().to_string_lossy().ends_with("-2"));
    }
}
