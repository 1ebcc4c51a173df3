//! The host, when what killed emus have left is undone: a clock that one of them has set would pass for the CPU's own.

use emu_core::{Error, Host, Result, Roots};

use crate::reporter::Reporter;

/// For a caller that is about to change the host; with notes of what was undone.
pub(crate) fn restored() -> Result<(Host, Vec<String>)> {
    let (roots, notes) = restored_roots();
    Ok((Host::detect(&roots)?, notes))
}

/// The same for a caller that reads the files itself.
pub(crate) fn restored_roots() -> (Roots, Vec<String>) {
    let roots = Roots::system();
    // What begins to change the host meets the same errors.
    let notes = undo(&roots).unwrap_or_default();
    (roots, notes)
}

/// For a caller that only looks at the host; what was undone is said on stderr.
pub(crate) fn detect() -> Result<Host> {
    Host::detect(&roots())
}

pub(crate) fn roots() -> Roots {
    let roots = Roots::system();
    for note in undo(&roots).unwrap_or_else(|why| vec![not_undone(&why)]) {
        Reporter::new(false).note(&note);
    }
    roots
}

pub(crate) fn not_undone(why: &Error) -> String {
    format!("what killed emus may have left was not undone: {}", why.in_words())
}

/// Returns what was undone, and what was not.
fn undo(roots: &Roots) -> Result<Vec<String>> {
    let report = emu_core::restore(roots)?;
    let restored = report.restored.iter().map(|what| format!("restored {what}"));
    Ok(restored.chain(report.notes).chain(report.problems).collect())
}
