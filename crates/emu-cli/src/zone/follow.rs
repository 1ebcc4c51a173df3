//! An emulation that may follow a trace.

use std::time::Instant;

use emu_core::{Error, Host, Player, Result, Session, Trace, input_file};

use crate::control::{Asked, Source};
use crate::values::at_end_name;
use crate::zone::ZoneArgs;

#[derive(Debug, Clone)]
pub(crate) struct Follow {
    pub(crate) source: Source,
    pub(crate) player: Player,
    /// When the speed was set last.
    pub(crate) changed: Option<Instant>,
    pub(crate) changes: u64,
    /// Why a speed was not set, the first time.
    pub(crate) refused: Option<String>,
}

impl Follow {
    pub(crate) fn read(host: &Host, args: &ZoneArgs) -> Result<Option<Self>> {
        let Some((source, trace)) = read(args)? else { return Ok(None) };
        let at_end = args.trace_end.unwrap_or_default();
        let player = Player::new(host, trace, args.demand.cpus.as_ref(), at_end);
        let player = player.map_err(|e| e.during(format!("cannot follow {}", source.file.display())))?;
        Ok(Some(Self { source, player, changed: None, changes: 0, refused: None }))
    }

    pub(crate) fn play(&mut self, session: &mut Session) {
        match self.player.play(session) {
            Ok(true) => {
                self.changed = Some(Instant::now());
                self.changes += 1;
            }
            Ok(false) => {}
            Err(error) => {
                let why = || format!("a speed of the trace was not set: {}", error.in_words());
                self.refused.get_or_insert_with(why);
            }
        }
    }
}

pub(crate) fn read(args: &ZoneArgs) -> Result<Option<(Source, Trace)>> {
    let Some(path) = args.wanted.trace.as_deref() else {
        let without = "--trace-end is for a trace, and there is none";
        return match args.trace_end {
            Some(_) => {
                Err(Error::usage(without).hint("pass --trace FILE instead of --speed, or leave it out"))
            }
            None => Ok(None),
        };
    };
    let at_end = at_end_name(args.trace_end.unwrap_or_default());
    let (source, text) =
        Source::read(path, at_end, input_file::TRACE_MAX, "name a file with the columns time_s,cpu,speed")?;
    let trace = text.parse().map_err(|e: Error| e.during(format!("cannot follow {}", path.display())))?;
    Ok(Some((source, trace)))
}

#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) session: Session,
    pub(crate) follow: Option<Follow>,
}

impl Following {
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

    pub(crate) fn due(&self) -> Option<Instant> {
        self.follow.as_ref()?.player.due()
    }

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
