//! The file of `emu node apply`: a table for each node, with the values of the options of `emu node create`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches};
use emu_core::{CpuStatus, Error, ErrorKind, LiveSession, Result, Target};
use serde::{Deserialize, Serialize};

use super::args::CreateArgs;
use crate::control::Working;

/// Nodes by their names.
pub(super) type Specs = BTreeMap<String, Spec>;

/// What a file has of one node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "trace-end")]
    trace_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    #[serde(default)]
    node: Specs,
}

/// Reads a file; `-` is stdin.
///
/// # Errors
/// It cannot be read, or is not what such a file is: where, and what was expected.
pub(super) fn read(path: &Path) -> Result<Specs> {
    let failed = |e| {
        Error::file("read", path, e).with_kind(ErrorKind::Usage).hint("name a file of nodes, or - for stdin")
    };
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        ("stdin".into(), io::stdin().read_to_string(&mut text).map(|_| text))
    } else {
        (path.display().to_string(), fs::read_to_string(path))
    };
    let mut specs = parse(&text.map_err(failed)?).map_err(|e| {
        let message = format!("{name} does not tell of nodes: {}", e.to_string().trim_end());
        Error::usage(message).hint(
            "a node is `[node.NAME]` with `speed` or `trace`, and `cpus`, `method` and `period` if wanted",
        )
    })?;
    // A trace is named as seen from the file.
    let folder = path.parent().filter(|_| path != Path::new("-")).unwrap_or(Path::new(""));
    specs.values_mut().flat_map(|spec| &mut spec.trace).for_each(|trace| *trace = folder.join(&trace));
    Ok(specs)
}

fn parse(text: &str) -> std::result::Result<Specs, toml::de::Error> {
    toml::from_str(text).map(|nodes: Nodes| nodes.node)
}

/// The text of a file with these nodes.
///
/// # Errors
/// A value has no form in TOML.
pub(super) fn text(specs: Specs) -> Result<String> {
    toml::to_string(&Nodes { node: specs })
        .map_err(|e| Error::io("cannot write nodes as TOML", io::Error::other(e)))
}

impl Spec {
    /// A node that is there, by what it was asked for.
    pub(super) fn of(session: &LiveSession, working: &Working) -> Self {
        let (status, follows) = (&working.status, working.follows.as_ref());
        let mut speeds: Vec<_> = status.cpus.iter().map(|cpu| (cpu.cpu, speed(cpu))).collect();
        speeds.dedup_by(|a, b| a.1 == b.1);
        let each = || {
            let each = status.cpus.iter().map(|cpu| format!("{}={}", cpu.cpu, speed(cpu)));
            each.collect::<Vec<_>>().join(",")
        };
        let speed = if let [(_, all)] = &speeds[..] { all.clone() } else { each() };
        Self {
            speed: follows.is_none().then_some(speed),
            trace: follows.map(|source| source.file.clone()),
            trace_end: follows.map(|source| source.at_end.clone()),
            cpus: Some(session.cpus.to_string()),
            method: Some(session.method.clone()),
            period: None,
        }
    }

    /// The words behind `create` for this node.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let trace = self.trace.as_ref().map(|trace| trace.display().to_string());
        let options = [
            ("speed", self.speed.as_ref()),
            ("trace", trace.as_ref()),
            ("trace-end", self.trace_end.as_ref()),
            ("cpus", self.cpus.as_ref()),
            ("method", self.method.as_ref()),
            ("period", self.period.as_ref()),
        ];
        let options =
            options.into_iter().filter_map(|(option, value)| Some(format!("--{option}={}", value?)));
        [name.to_owned()].into_iter().chain(options).collect()
    }

    /// What these words mean.
    ///
    /// # Errors
    /// A name or a value is none.
    pub(super) fn args(&self, name: &str) -> Result<CreateArgs> {
        let words = ["create".to_owned()].into_iter().chain(self.words(name));
        let command = CreateArgs::augment_args(Command::new("create"));
        let matches = command.try_get_matches_from(words);
        matches.and_then(|matches| CreateArgs::from_arg_matches(&matches)).map_err(|e| {
            let text = e.to_string();
            let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Error::usage(format!("node `{name}` of the file: {why}"))
                .hint("the values are those of the options of `emu node create`")
        })
    }
}

/// The speed that a CPU was asked for, in the words of `--speed`.
fn speed(cpu: &CpuStatus) -> String {
    match cpu.asked {
        Target { clock: Some(clock), .. } => format!("{}Hz", clock.0),
        Target { share, .. } => format!("{share}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_written() {
        let text_of = "[node.a]\nspeed = \"25%\"\n\n[node.b-1]\nspeed = \"0=40%,1=1.2GHz\"\ncpus = \"0-1\"\nmethod = \"fracas\"\n";
        let specs = parse(text_of).unwrap();
        assert_eq!(text(specs.clone()).unwrap(), text_of);
        let args = specs["b-1"].args("b-1").unwrap();
        assert_eq!((args.name.as_str(), args.zone.demand.cpus.unwrap().len()), ("b-1", 2));
        assert_eq!(parse("").unwrap(), Specs::new());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, place, wrong) in [
            ("[node.a]\nspeed = \"25%\"\nsped = \"3\"\n", "line 3", "sped"),
            ("[nodes.a]\nspeed = \"25%\"\n", "line 1", "nodes"),
            ("[node.a]\nspeed = 25\n", "line 2", "string"),
            ("[node.a]\nspeed = \"2\"\n[node.a]\n", "line 3", "duplicate"),
        ] {
            let why = parse(text).unwrap_err().to_string();
            assert!(why.contains(place) && why.contains(wrong), "{text}: {why}");
        }
        let specs = parse(
            "[node.none]\ncpus = \"0\"\n[node.both]\nspeed = \"40%\"\ntrace = \"x\"\n[node.a]\nspeed = \"140%\"\n[node.\"../b\"]\nspeed = \"40%\"\n[node.c]\nspeed = \"40%\"\nmethod = \"--kill\"\n",
        );
        for (name, spec) in specs.unwrap() {
            let why = spec.args(&name).unwrap_err().to_string();
            assert!(why.contains(&format!("node `{name}`")), "{why}");
        }
    }
}
