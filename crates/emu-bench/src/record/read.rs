//! Reading a record back, trusting nothing in it.

use std::fs;
use std::io::Read;
use std::path::Path;

use emu_core::{Error, Result};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;

use super::{ABOUT, About, COMPRESSED, SAMPLES, SCHEMA};

/// A line of the samples.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The name of the row it belongs to.
    pub row: String,
    /// The sample, in the form of that row.
    pub sample: Value,
}

/// The samples of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Each line that was written to its end, in the order of time.
    pub lines: Vec<Line>,
    /// Whether the last line was cut short, as by a killed run.
    pub torn: bool,
    /// Length of the whole lines.
    pub whole_bytes: u64,
}

/// Reads what was run and the samples.
pub fn read(folder: &Path) -> Result<(About, Lines)> {
    let (about, samples) = (text(bytes(folder, ABOUT)?, folder, ABOUT)?, samples(folder)?);
    Ok((parse_about(&about, folder)?, parse_lines(samples, folder)?))
}

fn samples(folder: &Path) -> Result<Vec<u8>> {
    if folder.join(SAMPLES).exists() || !folder.join(COMPRESSED).exists() {
        return bytes(folder, SAMPLES);
    }
    let mut samples = Vec::new();
    MultiGzDecoder::new(&*bytes(folder, COMPRESSED)?).read_to_end(&mut samples).map_err(|cause| {
        unusable(folder, format_args!("{COMPRESSED} cannot be expanded"))
            .caused_by(cause)
            .hint("it was cut short or damaged; take it from where it was copied")
    })?;
    Ok(samples)
}

pub(crate) fn unusable(folder: &Path, what: impl std::fmt::Display) -> Error {
    Error::usage(format!("cannot use the record {}: {what}", folder.display()))
}

fn bytes(folder: &Path, name: &str) -> Result<Vec<u8>> {
    fs::read(folder.join(name)).map_err(|cause| {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        match cause.kind() {
            NotFound | NotADirectory if !folder.exists() => unusable(folder, "it does not exist")
                .hint("name a folder that emu has made for a record; it prints which"),
            NotFound | NotADirectory => unusable(folder, format_args!("it has no {name}"))
                .hint("name the folder itself that emu has made, not one above or in it"),
            _ => Error::file("read", &folder.join(name), cause),
        }
    })
}

fn text(bytes: Vec<u8>, folder: &Path, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| {
        unusable(folder, format_args!("{name} is not text")).hint("it was not written by emu, or is damaged")
    })
}

fn parse_about(text: &str, folder: &Path) -> Result<About> {
    #[derive(Deserialize)]
    struct Schema {
        schema: u32,
    }
    let damaged = |cause: serde_json::Error| {
        unusable(folder, format_args!("{ABOUT} cannot be understood"))
            .caused_by(cause)
            .hint("it was not written by emu, or is damaged")
    };
    let Schema { schema } = serde_json::from_str(text).map_err(damaged)?;
    if schema != SCHEMA {
        return Err(unusable(folder, format_args!("its form is version {schema}, this emu reads {SCHEMA}"))
            .hint("use the emu that made it"));
    }
    serde_json::from_str(text).map_err(damaged)
}

fn parse_lines(mut written: Vec<u8>, folder: &Path) -> Result<Lines> {
    let whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    // A line may be cut inside of a character: cut it off before the rest is taken for text.
    let torn = written.len() > whole;
    written.truncate(whole);
    let lines = text(written, folder, SAMPLES)?
        .lines()
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|cause| {
                unusable(folder, format_args!("line {} of {SAMPLES} is no sample", number + 1))
                    .caused_by(cause)
                    .hint("it was changed or damaged; measure again")
            })
        })
        .collect::<Result<_>>()?;
    Ok(Lines { lines, torn, whole_bytes: whole as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::machine;

    fn record(about: &str, samples: impl AsRef<[u8]>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(ABOUT), about).unwrap();
        fs::write(dir.path().join(SAMPLES), samples).unwrap();
        dir
    }

    fn about() -> String {
        serde_json::to_string(&About::new(machine(), "emu bench", 7)).unwrap()
    }

    #[test]
    fn what_is_no_record_is_refused_with_a_hint() {
        let good = about();
        let missing = tempfile::tempdir().unwrap();
        assert!(read(missing.path()).unwrap_err().to_string().contains("has no record.json"));
        assert!(read(&missing.path().join("x")).unwrap_err().to_string().contains("does not exist"));
        for (about, samples, what) in [
            ("", "", "cannot be understood"),
            ("{}", "", "cannot be understood"),
            ("7", "", "cannot be understood"),
            (&good.replace("\"schema\":2", "\"schema\":3"), "", "version 3"),
            (&good.replace("\"seed\":7", "\"seed\":-7"), "", "cannot be understood"),
            (&good[..good.len() / 2], "", "cannot be understood"),
            (&good, "noise\n", "line 1"),
            (&good, "{\"row\":\"pair\",\"sample\":NaN}\n", "line 1"),
            (&good, "{\"row\":\"pair\",\"sample\":1}\n{}\n", "line 2"),
            (&good, "\n", "line 1"),
        ] {
            let dir = record(about, samples);
            let error = read(dir.path()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert!(error.hint_text().is_some(), "{error}");
        }
    }

    #[test]
    fn compressed_samples_are_read_as_those_that_were_written() {
        let line = "{\"row\":\"a\",\"sample\":1}\n";
        let dir = record(&about(), line);
        let plain = read(dir.path()).unwrap();
        fs::remove_file(dir.path().join(SAMPLES)).unwrap();
        let mut gzip = flate2::read::GzEncoder::new(line.as_bytes(), flate2::Compression::best());
        let mut bytes = Vec::new();
        gzip.read_to_end(&mut bytes).unwrap();
        fs::write(dir.path().join(COMPRESSED), &bytes).unwrap();
        assert_eq!(read(dir.path()).unwrap(), plain);
        fs::write(dir.path().join(COMPRESSED), &bytes[..bytes.len() - 4]).unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("cannot be expanded"));
    }

    #[test]
    fn a_last_line_without_its_end_is_told_and_left_out() {
        let whole = "{\"row\":\"a\",\"sample\":1}\n";
        let umlaut = "{\"row\":\"a\",\"sample\":\"ü\"}".as_bytes();
        let cuts = [&umlaut[..umlaut.len() - 3], "{\"row\":\"a\",\"sam".as_bytes(), umlaut];
        assert!(std::str::from_utf8(cuts[0]).is_err(), "in the middle of a character");
        for cut in cuts {
            let dir = record(&about(), [whole.as_bytes(), cut].concat());
            let (_, lines) = read(dir.path()).unwrap();
            assert_eq!((lines.lines.len(), lines.torn), (1, true));
            assert_eq!(lines.whole_bytes, whole.len() as u64);
        }
    }
}
