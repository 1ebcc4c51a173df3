//! Records: a dated folder with what was run, on what, every raw sample, and the summary.
//!
//! A record does not tell whose machine it is: it has no host name, no user name and no path of a command.

mod machine;
mod read;

pub use machine::Machine;
pub(crate) use read::unusable;
pub use read::{Line, Lines, read};

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use emu_core::{Error, ErrorKind, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;

/// Version of the files' form.
pub const SCHEMA: u32 = 2;

const ABOUT: &str = "record.json";
const SAMPLES: &str = "samples.jsonl";
/// What `gzip` makes of [`SAMPLES`].
const COMPRESSED: &str = "samples.jsonl.gz";

const SLUG_MAX: usize = 40;

/// Records of one day and machine that can be told apart.
const SAME_DAY_MAX: u32 = 1000;

/// A start for random numbers that differs from run to run: the time in seconds.
pub fn seed_from_clock() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs())
}

/// What was run, when and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct About {
    /// Version of the files' form: [`SCHEMA`].
    pub schema: u32,
    /// When it was begun, in UTC: `2026-01-31T12:00:00Z`.
    pub date: String,
    /// The command that takes the same measurements again.
    pub command: String,
    /// The emu that measured.
    pub version: String,
    /// Start of the random numbers.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// The experiment; `None` for the record of something else, such as a benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    /// The measurement of the machine; `None` for the record of something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
}

/// A measurement of the machine, such as `emu noise`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The subcommand: `noise`, `measure cpu`.
    pub name: String,
    /// What was to be measured, in the form of that measurement.
    pub plan: serde_json::Value,
}

impl About {
    /// Something that begins now.
    pub fn new(machine: Machine, command: impl Into<String>, seed: u64) -> Self {
        Self {
            schema: SCHEMA,
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: command.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            seed,
            machine,
            experiment: None,
            measurement: None,
        }
    }

    fn folder_name(&self) -> String {
        let day = self.date.split('T').next().unwrap_or(&self.date);
        format!("{day}-{}", slug(&self.machine.model))
    }
}

/// A record being written. What has been written stays, should the run be cut short.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    /// Locked, so that nobody else writes.
    samples: File,
}

impl Record {
    /// Makes `<below>/<date>-<machine>`, with a number where that exists: a record is never written over.
    pub fn below(below: &Path, about: &About) -> Result<Self> {
        let name = about.folder_name();
        Self::fill(below, about, &|made| {
            for number in 1..=SAME_DAY_MAX {
                let folder = below.join(if number == 1 { name.clone() } else { format!("{name}-{number}") });
                if appear(made, &folder)? {
                    return Ok(folder);
                }
            }
            let error = Error::usage(format!("there are {SAME_DAY_MAX} records {name} already"));
            Err(error.hint("give another --out"))
        })
    }

    /// Whether a folder can be made a record, as far as can be told without making it: usage where it exists.
    pub fn check(folder: &Path) -> Result<()> {
        if folder.symlink_metadata().is_ok() { Err(exists(folder)) } else { Ok(()) }
    }

    /// Makes this folder: usage where it exists.
    pub fn at(folder: &Path, about: &About) -> Result<Self> {
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::fill(parent.unwrap_or(Path::new(".")), about, &|made| {
            if appear(made, folder)? { Ok(folder.to_owned()) } else { Err(exists(folder)) }
        })
    }

    /// Makes the files in a temporary folder beside, which is `named` when it is whole: a run that is killed before leaves no
    /// record that cannot be continued.
    fn fill(beside: &Path, about: &About, named: &dyn Fn(&Path) -> Result<PathBuf>) -> Result<Self> {
        // As any new folder: the umask decides who may read it.
        let everybody = fs::Permissions::from_mode(0o777);
        let made = fs::create_dir_all(beside)
            .and_then(|()| {
                tempfile::Builder::new().prefix(".emu-record-").permissions(everybody).tempdir_in(beside)
            })
            .map_err(|cause| unmade(beside, cause))?;
        let text = serde_json::to_string_pretty(about).map_err(unwritable)?;
        write(&made.path().join(ABOUT), &format!("{text}\n"))?;
        let path = made.path().join(SAMPLES);
        let samples = File::create_new(&path).map_err(|cause| Error::file("make", &path, cause))?;
        lock(&samples, made.path())?;
        let folder = named(made.path())?;
        // It has another name now.
        let _ = made.keep();
        Ok(Self { folder, samples })
    }

    /// Opens a record to be continued, and removes a last line that was cut short. One process may write to it.
    pub fn resume(folder: &Path) -> Result<(Self, About, Lines)> {
        let path = folder.join(SAMPLES);
        // What is no record is not touched.
        read(folder)?;
        if !path.exists() {
            return Err(unusable(folder, "its samples are compressed")
                .hint(format!("expand them before: gunzip {COMPRESSED}")));
        }
        let failed = |cause| Error::file("continue", &path, cause);
        let samples = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        lock(&samples, folder)?;
        let (about, lines) = read(folder)?;
        if lines.torn {
            samples.set_len(lines.whole_bytes).map_err(failed)?;
        }
        Ok((Self { folder: folder.to_owned(), samples }, about, lines))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds one sample to a row, by a single write: a run that is killed has it whole or not at all.
    pub fn sample(&mut self, row: &str, sample: &impl Serialize) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a, S> {
            row: &'a str,
            sample: &'a S,
        }
        let line = serde_json::to_string(&Line { row, sample }).map_err(unwritable)? + "\n";
        self.samples
            .write_all(line.as_bytes())
            .map_err(|cause| Error::file("write to", &self.folder.join(SAMPLES), cause))
    }

    /// Adds a new file with what the samples show.
    pub fn add(&self, name: &str, text: &str) -> Result<()> {
        write(&self.folder.join(name), text)
    }

    /// Removes a record without samples, as nothing was measured; one with samples stays. Tells whether it stays.
    pub fn discard_if_empty(self) -> bool {
        if !self.samples.metadata().is_ok_and(|samples| samples.len() == 0) {
            return true;
        }
        // Files of others keep the folder.
        for name in [ABOUT, SAMPLES] {
            let _ = fs::remove_file(self.folder.join(name));
        }
        fs::remove_dir(&self.folder).is_err()
    }
}

fn exists(folder: &Path) -> Error {
    Error::usage(format!("cannot make the record {}: it exists", folder.display()))
        .hint("a record is never written over; name a new folder, or complete that one with --resume")
}

fn lock(samples: &File, folder: &Path) -> Result<()> {
    samples.try_lock().map_err(|refused| match refused {
        TryLockError::WouldBlock => {
            Error::usage(format!("cannot write to the record {}: another emu does", folder.display()))
                .hint("wait until that one has ended")
        }
        TryLockError::Error(cause) => Error::file("lock", folder, cause),
    })
}

fn unwritable(cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Failed, "cannot write a sample as JSON").caused_by(cause)
}

/// A folder cannot be made, which is mostly a slip of whoever named it.
fn unmade(folder: &Path, cause: std::io::Error) -> Error {
    let error = Error::file("make the folder", folder, cause);
    match error.kind() {
        ErrorKind::NotPermitted => error.hint("name a folder that can be written with --out"),
        _ => error.with_kind(ErrorKind::Usage).hint("name another folder with --out"),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    File::create_new(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|cause| Error::file("write", path, cause))
}

/// Renames a whole folder; tells whether the name was free.
fn appear(made: &Path, folder: &Path) -> Result<bool> {
    match renameat_with(CWD, made, CWD, folder, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // Some network file systems have no NOREPLACE.
        Err(Errno::INVAL | Errno::NOSYS) if folder.symlink_metadata().is_ok() => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::rename(made, folder).map(|()| true).map_err(|cause| unmade(folder, cause))
        }
        Err(cause) => Err(unmade(folder, cause.into())),
    }
}

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
pub(crate) mod testing {
    use super::*;
    use emu_core::CgroupLayout;

    /// A machine that is not this one.
    pub(crate) fn machine() -> Machine {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::machine;

    fn about() -> About {
        About::new(machine(), "cargo bench", 7)
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
        let mut record = Record::below(dir.path(), &about()).unwrap();
        record.sample("row", &[1, 2]).unwrap();
        record.sample("row", &[3]).unwrap();
        record.add("summary.md", "# Summary\n").unwrap();
        assert!(record.add("summary.md", "another").is_err());
        let text = fs::read_to_string(record.folder().join(SAMPLES)).unwrap();
        assert_eq!(text, "{\"row\":\"row\",\"sample\":[1,2]}\n{\"row\":\"row\",\"sample\":[3]}\n");
        let second = Record::below(dir.path(), &about()).unwrap();
        assert!(second.folder().to_string_lossy().ends_with("-2"));
        let again = Record::at(record.folder(), &about()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Usage);
        assert!(again.hint_text().unwrap().contains("--resume"));
    }

    #[test]
    fn a_record_is_continued_after_its_last_whole_line_by_one_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("record");
        let mut record = Record::at(&folder, &about()).unwrap();
        record.sample("row", &1).unwrap();
        assert!(Record::resume(&folder).unwrap_err().to_string().contains("another emu"));
        record.samples.write_all(b"{\"row\":\"row\",\"sam").unwrap();
        drop(record);
        let (mut record, read_back, lines) = Record::resume(&folder).unwrap();
        assert_eq!((read_back, lines.lines.len(), lines.torn), (about_of(&folder), 1, true));
        record.sample("row", &2).unwrap();
        let text = fs::read_to_string(folder.join(SAMPLES)).unwrap();
        assert_eq!(text, "{\"row\":\"row\",\"sample\":1}\n{\"row\":\"row\",\"sample\":2}\n");
    }

    #[test]
    fn a_record_without_samples_can_be_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("record");
        assert!(!Record::at(&folder, &about()).unwrap().discard_if_empty());
        assert!(!folder.exists());
        let mut record = Record::at(&folder, &about()).unwrap();
        record.sample("row", &1).unwrap();
        record.add("noise.csv", "a\r\n").unwrap();
        assert!(record.add("noise.csv", "b\r\n").is_err(), "a file is never written over");
        assert!(record.discard_if_empty());
        assert_eq!(fs::read_to_string(folder.join("noise.csv")).unwrap(), "a\r\n");
    }

    #[test]
    fn what_was_measured_is_told_and_older_records_do_without() {
        let mut measured = about();
        measured.measurement =
            Some(Measurement { name: "noise".into(), plan: serde_json::json!({"blocks": 5}) });
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<About>(&text).unwrap(), measured);
        let text = serde_json::to_string(&about()).unwrap();
        assert!(!text.contains("measurement"), "{text}");
    }

    fn about_of(folder: &Path) -> About {
        read(folder).unwrap().0
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Record::at(&file.join("record"), &about()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.hint_text().unwrap().contains("--out"));
    }
}
