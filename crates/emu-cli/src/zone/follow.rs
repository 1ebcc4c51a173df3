//! An emulation that may follow a trace.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use emu_core::{CpuList, Error, ErrorKind, Host, Player, Result, Session, Trace};
use serde::{Deserialize, Serialize};

use crate::control::Asked;
use crate::zone::ZoneArgs;
use crate::zone::trace_end::at_end_name;

/// Which trace: equal ones are followed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// The file.
    pub(crate) file: PathBuf,
    /// What comes after its end.
    pub(crate) at_end: String,
    /// Of what it had in it.
    digest: String,
}

/// A trace that a zone follows, or is to follow.
#[derive(Debug, Clone)]
pub(crate) struct Follow {
    pub(crate) source: Source,
    pub(crate) player: Player,
    /// When the speed was set last.
    changed: Option<Instant>,
    /// How often it was set.
    pub(crate) changes: u64,
    /// Why a speed was not set, the first time.
    refused: Option<String>,
}

impl Follow {
    /// The trace that is asked for, if one is.
    ///
    /// # Errors
    /// The file cannot be read, is no trace, or not one for this zone.
    pub(crate) fn read(host: &Host, args: &ZoneArgs) -> Result<Option<Self>> {
        let Some((source, trace)) = read(args)? else { return Ok(None) };
        let at_end = args.trace_end.unwrap_or_default();
        let player = Player::new(host, trace, args.demand.cpus.as_ref(), at_end);
        let player = player.map_err(|e| e.during(format!("cannot follow {}", source.file.display())))?;
        Ok(Some(Self { source, player, changed: None, changes: 0, refused: None }))
    }

    /// Does what is due.
    pub(crate) fn play(&mut self, session: &mut Session) {
        let before = session.targets().clone();
        if let Err(error) = self.player.play(session) {
            self.refused
                .get_or_insert_with(|| format!("a speed of the trace was not set: {}", error.in_words()));
        }
        if before != *session.targets() {
            self.changed = Some(Instant::now());
            self.changes += 1;
        }
    }

    /// When the speed was set last, if it was.
    pub(crate) fn changed(&self) -> Option<Instant> {
        self.changed
    }

    /// What went wrong.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Which trace is asked for, if one is.
///
/// # Errors
/// The file cannot be read, or is no trace.
pub(crate) fn source(args: &ZoneArgs) -> Result<Option<Source>> {
    Ok(read(args)?.map(|(source, _)| source))
}

/// The CPUs that would follow the trace that is asked for.
///
/// # Errors
/// The file cannot be read, or is no trace.
pub(crate) fn cpus(host: &Host, args: &ZoneArgs) -> Result<CpuList> {
    let cpus = |(_, trace): (Source, Trace)| trace.cpus_of(host, args.demand.cpus.as_ref());
    Ok(read(args)?.map(cpus).unwrap_or_default())
}

fn read(args: &ZoneArgs) -> Result<Option<(Source, Trace)>> {
    let Some(path) = args.wanted.trace.as_deref() else {
        let without = "--trace-end is for a trace, and there is none";
        return match args.trace_end {
            Some(_) => {
                Err(Error::usage(without).hint("pass --trace FILE instead of --speed, or leave it out"))
            }
            None => Ok(None),
        };
    };
    let unreadable = |e| {
        let hint = "name a file with the columns time_s,cpu,speed";
        Error::file("read", path, e).with_kind(ErrorKind::Usage).hint(hint)
    };
    let file = fs::canonicalize(path).map_err(unreadable)?;
    let text = fs::read_to_string(&file).map_err(unreadable)?;
    let trace = text.parse().map_err(|e: Error| e.during(format!("cannot follow {}", path.display())))?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let digest = format!("{:016x}", hasher.finish());
    Ok(Some((Source { file, at_end: at_end_name(args.trace_end.unwrap_or_default()).into(), digest }, trace)))
}

/// A session, and what it follows.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) session: Session,
    pub(crate) follow: Option<Follow>,
}

impl Following {
    /// Begins to follow now.
    pub(crate) fn begin(session: Session, mut follow: Option<Follow>) -> Self {
        if let Some(follow) = &mut follow {
            follow.player.begin();
        }
        Self { session, follow }
    }

    /// Whether the trace has ended, and full speed came after it.
    pub(crate) fn is_over(&self) -> bool {
        self.follow.as_ref().is_some_and(|follow| follow.player.is_over())
    }

    /// When the speed is to be set next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.follow.as_ref()?.player.due()
    }

    /// Sets the speed that is due.
    pub(crate) fn play(&mut self) {
        let Self { session, follow } = self;
        if let Some(follow) = follow {
            follow.play(session);
        }
    }
}

impl Asked for Following {
    fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    fn follows(&self) -> Option<&Source> {
        self.follow.as_ref().map(|follow| &follow.source)
    }
}

/// For how long to wait for something else, so that what is due comes in time.
pub(crate) fn until(due: Option<Instant>, most: Duration) -> Duration {
    due.map_or(most, |due| due.saturating_duration_since(Instant::now()).min(most))
}
