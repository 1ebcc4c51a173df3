//! What can be done about a refusal or a failure. Typed where the words depend on who asks: a caller with a command line names
//! its options, and knows whether it is root.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// What can be done about a refusal or a failure. [`Display`](fmt::Display) has it in the library's own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Words that are right for every caller; methods of other crates have them, too.
    Text(Cow<'static, str>),
    /// One of these is enough.
    AnyOf(Vec<Self>),
    /// Leave this out.
    LeaveOut(Setting),
    /// Ask for a period in this range, or for none.
    Period(RangeInclusive<Duration>),
    /// Have the limit for real-time tasks lifted, for the time of the zone.
    LiftRtLimit,
    /// Have CPUs outside the zone slowed, too, where they share a clock with it.
    WidenPolicies,
    /// Choose other CPUs.
    OtherCpus,
    /// Take the CPUs that are named into the zone.
    AddCpus,
    /// Start the program in its zone instead of attaching to it.
    StartInZone,
    /// Be root.
    Root,
    /// Have `CAP_SYS_NICE`, or an `RLIMIT_RTPRIO` of at least this.
    RealTime(u64),
    /// Be root, or have a cgroup of one's own in which these controllers, by the kernel's names, are delegated.
    OwnGroup(Vec<&'static str>),
    /// End the tuning of the machine, or have it leave the frequency alone.
    EndTuning,
    /// Undo what is left, when the cause is removed.
    Restore,
    /// Ask each method what is missing.
    Judge,
}

/// What can be left out of a [`Demand`](crate::Demand).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// The CPUs, where the speed names them.
    Cpus,
    /// The period.
    Period,
    /// That the background load is excluded.
    ExcludeBackground,
    /// How to round a frequency.
    Round,
}

impl Hint {
    /// This, or else the other.
    #[must_use]
    pub fn or(self, other: impl Into<Self>) -> Self {
        let mut hints = match self {
            Self::AnyOf(hints) => hints,
            one => vec![one],
        };
        hints.push(other.into());
        Self::AnyOf(hints)
    }

    /// In the words that a caller has for it, else in the library's.
    pub fn in_words(&self, words: &dyn Fn(&Self) -> Option<String>) -> String {
        let Self::AnyOf(hints) = self else { return words(self).unwrap_or_else(|| self.to_string()) };
        let mut said: Vec<_> = hints.iter().map(|hint| hint.in_words(words)).collect();
        let last = said.pop().unwrap_or_default();
        if said.is_empty() { last } else { format!("{}, or {last}", said.join(", ")) }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::AnyOf(_) => f.write_str(&self.in_words(&|_| None)),
            Self::LeaveOut(setting) => write!(f, "leave out `{setting}`"),
            Self::Period(range) => {
                write!(f, "ask for a `period` from {:?} to {:?}, or leave it out", range.start(), range.end())
            }
            Self::LiftRtLimit => f.write_str("set `lift_rt_limit`"),
            Self::WidenPolicies => f.write_str("set `widen_policies` to have them slowed, too"),
            Self::OtherCpus => f.write_str("choose other CPUs"),
            Self::AddCpus => f.write_str("take them into the zone"),
            Self::StartInZone => f.write_str("start the program in its zone instead of attaching to it"),
            Self::Root => f.write_str("be root"),
            Self::RealTime(priority) => {
                write!(f, "have CAP_SYS_NICE, or an RLIMIT_RTPRIO of at least {priority}")
            }
            Self::OwnGroup(controllers) if controllers.is_empty() => {
                f.write_str("be root, or have a cgroup of your own")
            }
            Self::OwnGroup(controllers) => {
                write!(f, "be root, or have `{}` delegated to a cgroup of your own", controllers.join(" "))
            }
            Self::EndTuning => f.write_str("end that tuning first, or have it leave the frequency alone"),
            Self::Restore => f.write_str("call `restore` when the cause is removed"),
            Self::Judge => f.write_str("`judge` tells for each method what is missing"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpus => "cpus",
            Self::Period => "period",
            Self::ExcludeBackground => "exclude_background",
            Self::Round => "round",
        })
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Hint {
    fn schema_name() -> Cow<'static, str> {
        "Hint".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_caller_words_what_it_knows_better() {
        let hint = Hint::from("ask for more").or(Hint::LeaveOut(Setting::Period)).or(Hint::Root);
        assert_eq!(hint.to_string(), "ask for more, leave out `period`, or be root");
        let words = |hint: &Hint| (*hint == Hint::Root).then(|| "use sudo".to_owned());
        assert_eq!(hint.in_words(&words), "ask for more, leave out `period`, or use sudo");
    }

    /// The lines of code, without comments and tests, of every file of the library below `folder`.
    fn for_each_line(folder: &Path, act: &mut dyn FnMut(&Path, &str)) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap();
            if name == "tests" || name == "testing" {
                continue;
            }
            if path.is_dir() {
                for_each_line(&path, act);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
            code.lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .for_each(|line| act(&path, line));
        }
    }

    #[test]
    fn no_text_names_an_option_or_a_subcommand() {
        const SUBCOMMANDS: &[&str] = &[
            "run",
            "attach",
            "methods",
            "info",
            "verify",
            "bench",
            "report",
            "measure",
            "calibrate",
            "noise",
            "timers",
            "doctor",
            "restore",
            "node",
            "top",
            "profile",
            "…",
        ];
        let begins_lowercase = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
        let names_option = |line: &str| line.split("--").skip(1).any(begins_lowercase);
        let names_subcommand = |line: &str| {
            line.split("emu ").skip(1).any(|rest| {
                let word = rest.split(|c: char| !c.is_alphabetic() && c != '…').next().unwrap_or_default();
                SUBCOMMANDS.contains(&word)
            })
        };
        assert!(names_option("leave out --period") && names_subcommand("see `emu run`"));
        let mut lines = 0;
        for_each_line(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |path, line| {
            lines += 1;
            assert!(!names_option(line) && !names_subcommand(line), "{}: {line}", path.display());
        });
        assert!(lines > 10_000, "{lines} lines");
    }
}
