//! Reading a journal backwards, in a buffer of fixed size and without allocating.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};

/// The longest line that can be read, its newline included.
pub(super) const LINE_MAX: usize = 32 * 1024;

pub(super) const WINDOW: usize = 2 * LINE_MAX;

/// The last line of a journal that is completely undone.
pub(super) const DONE: &[u8] = b"done";
/// For a session that has ended although something could not be undone: another emu may try again.
pub(super) const LEFT: &[u8] = b"left";
/// For a session that has begun to undo: it takes over nothing from other sessions any more.
pub(super) const ENDING: &[u8] = b"ending";

/// The line before copies of records.
pub(super) const COPYING: &[u8] = b"copying";
/// The first character of a copied record.
pub(super) const COPY: &[u8] = b"+";
/// The line after copied records: from here on they replace all lines before them.
pub(super) const COPIED: &[u8] = b"copied";

/// The complete lines of a file except its header, the last one first; where records were copied, only the copies.
/// Text after the last newline belongs to a record whose change was not made, and is ignored.
pub(super) struct Backwards<'a> {
    file: BorrowedFd<'a>,
    window: &'a mut [u8],
    /// The window's position in the file.
    start: u64,
    /// How much of the window is not yet returned; ends with a newline or is empty.
    length: usize,
    /// Whether a complete copy is being read.
    copied: bool,
}

impl<'a> Backwards<'a> {
    /// Starts at the end of the file. The buffer must be longer than [`LINE_MAX`] bytes.
    pub(super) fn new(file: BorrowedFd<'a>, window: &'a mut [u8]) -> rustix::io::Result<Self> {
        let end = rustix::fs::fstat(file)?.st_size.max(0) as u64;
        let mut lines = Self { file, window, start: end, length: 0, copied: false };
        lines.fill()?;
        let complete = lines.text().iter().rposition(|&byte| byte == b'\n');
        if complete.is_none() && lines.start > 0 {
            return Err(Errno::FBIG);
        }
        lines.length = complete.map_or(0, |newline| newline + 1);
        Ok(lines)
    }

    /// The next line towards the beginning, without its newline; `EFBIG` when it is longer than the buffer.
    pub(super) fn next(&mut self) -> rustix::io::Result<Option<&[u8]>> {
        while let Some(mut range) = self.range()? {
            let line = self.window.get(range.clone()).unwrap_or_default();
            if line == COPIED {
                self.copied = true;
            } else if line == COPYING {
                if self.copied {
                    return Ok(None);
                }
            } else if !line.starts_with(COPY) {
                return Ok(self.window.get(range));
            } else if self.copied {
                range.start += COPY.len();
                return Ok(self.window.get(range));
            }
        }
        Ok(None)
    }

    fn range(&mut self) -> rustix::io::Result<Option<Range<usize>>> {
        loop {
            let Some((_newline, text)) = self.text().split_last() else { return Ok(None) };
            if let Some(before) = text.iter().rposition(|&byte| byte == b'\n') {
                let end = self.length - 1;
                self.length = before + 1;
                return Ok(Some(before + 1..end));
            }
            if self.start == 0 {
                return Ok(None);
            }
            if self.length == self.window.len() {
                return Err(Errno::FBIG);
            }
            self.fill()?;
        }
    }

    fn text(&self) -> &[u8] {
        self.window.get(..self.length).unwrap_or_default()
    }

    /// Moves the window so that it ends at the end of the unread text.
    fn fill(&mut self) -> rustix::io::Result<()> {
        let end = self.start + self.length as u64;
        self.start = end.saturating_sub(self.window.len() as u64);
        let wanted = (end - self.start) as usize;
        let mut filled = 0;
        while filled < wanted {
            let rest = self.window.get_mut(filled..wanted).unwrap_or_default();
            match pread(self.file, rest, self.start + filled as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(cause) => return Err(cause),
            }
        }
        self.length = filled;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn backwards(text: &[u8], window: usize) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let mut window = vec![0; window];
        let mut lines = Backwards::new(file.as_fd(), &mut window)?;
        let mut found = Vec::new();
        while let Some(line) = lines.next()? {
            found.push(line.to_vec());
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn lines_come_from_the_last_to_the_second_in_any_window(
            lines in proptest::collection::vec("[ab]{0,7}", 1..20), window in 9usize..40, tail in "[ab]{0,7}",
        ) {
            let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let expected: Vec<_> = lines.iter().skip(1).rev().map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(backwards((text + &tail).as_bytes(), window).unwrap(), expected);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..99), window in 1usize..40,
        ) {
            let _ = backwards(&text, window);
        }
    }

    #[test]
    fn a_complete_copy_replaces_earlier_lines_a_cut_one_does_not() {
        let text = "header\na\ncopying\n+b\n+c\ncopied\nd\n";
        let found = |length: usize| backwards(&text.as_bytes()[..length], 12).unwrap().concat();
        assert_eq!(found(text.len()), b"dcb");
        assert_eq!(found(text.len() - 2), b"cb");
        for length in "header\na\n".len()..text.len() - 2 {
            assert_eq!(found(length), b"a", "{length}");
        }
    }

    #[test]
    fn a_file_without_a_complete_line_has_none() {
        assert_eq!(backwards(b"", 8), Ok(vec![]));
        assert_eq!(backwards(b"abc", 8), Ok(vec![]));
    }

    #[test]
    fn a_line_longer_than_the_window_is_an_error() {
        assert_eq!(backwards(b"a\n0123456789\nb\n", 8), Err(Errno::FBIG));
        assert_eq!(backwards(b"a\n0123456789", 8), Err(Errno::FBIG));
    }
}
