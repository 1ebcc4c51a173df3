//! Tables of records for documents.

use std::path::{Path, PathBuf};

use emu_bench::report::{Quoted, Results, spliced};
use emu_core::{Error, ErrorKind, Result, input_file};

use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn table(records: &[PathBuf], table: Quoted) -> Result<Exit, Failure> {
    output::print(&table.markdown(&apart(records)?))?;
    Ok(Exit::Success)
}

pub(super) fn splice(documents: &[PathBuf], only_check: bool) -> Result<Exit, Failure> {
    for path in documents {
        let text =
            input_file::read(path, input_file::SIZE_MAX).map_err(|cause| Error::file("read", path, cause))?;
        let new =
            spliced(&text, &apart).map_err(|why| why.during(format!("cannot splice {}", path.display())))?;
        if new == text {
            continue;
        }
        if only_check {
            return Err(differs(path, &text, &new).into());
        }
        output::write(path, &new)?;
    }
    Ok(Exit::Success)
}

/// Each record by itself: a table may be of several machines, and of methods at several periods.
fn apart(folders: &[PathBuf]) -> Result<Vec<Results>> {
    folders.iter().map(|folder| Results::read(&[folder])).collect()
}

fn differs(path: &Path, text: &str, new: &str) -> Error {
    let number = text.lines().zip(new.lines()).take_while(|(old, new)| old == new).count() + 1;
    let what = format!("{}, line {number}: the table is not what its records show", path.display());
    Error::new(ErrorKind::WrongResult, what)
        .hint(format!("write it anew: emu report --splice {}", path.display()))
}
