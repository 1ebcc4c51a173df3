//! The fields of a journal line: bytes separated by tabs; tabs, newlines and backslashes are escaped.

use std::fmt;

pub(super) fn push_all<'a>(line: &mut Vec<u8>, fields: impl IntoIterator<Item = &'a [u8]>) {
    for field in fields {
        push(line, field);
    }
}

pub(super) fn push(line: &mut Vec<u8>, field: &[u8]) {
    if !line.is_empty() {
        line.push(b'\t');
    }
    for &byte in field {
        match byte {
            b'\\' => line.extend(b"\\\\"),
            b'\t' => line.extend(b"\\t"),
            b'\n' => line.extend(b"\\n"),
            _ => line.push(byte),
        }
    }
}

/// A field as written in the file, with its escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a>(&'a [u8]);

impl<'a> Field<'a> {
    pub(super) fn escaped(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn bytes(self) -> impl Iterator<Item = u8> + 'a {
        let mut escaped = self.0.iter();
        std::iter::from_fn(move || match *escaped.next()? {
            b'\\' => match *escaped.next()? {
                b't' => Some(b'\t'),
                b'n' => Some(b'\n'),
                other => Some(other),
            },
            byte => Some(byte),
        })
    }

    pub(super) fn is(self, value: &[u8]) -> bool {
        self.bytes().eq(value.iter().copied())
    }

    pub(super) fn has_word(self, word: &[u8]) -> bool {
        let (mut rest, mut same) = (word.iter(), true);
        for byte in self.bytes().chain([b' ']) {
            if !byte.is_ascii_whitespace() {
                same &= rest.next() == Some(&byte);
            } else if same && rest.len() == 0 {
                return true;
            } else {
                (rest, same) = (word.iter(), true);
            }
        }
        false
    }

    /// The field as a decimal number without a sign.
    pub(super) fn number<T: std::str::FromStr>(self) -> Option<T> {
        let digits =
            std::str::from_utf8(self.0).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    }

    fn is_well_escaped(self) -> bool {
        let mut escaped = self.0.iter();
        while let Some(byte) = escaped.next() {
            if *byte == b'\\' && !matches!(escaped.next(), Some(b'\\' | b't' | b'n')) {
                return false;
            }
        }
        true
    }
}

/// For messages: control characters and invalid UTF-8 are shown as `?`.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                f.write_char(if c.is_control() { '?' } else { c })?;
            }
            if !chunk.invalid().is_empty() {
                f.write_char('?')?;
            }
        }
        Ok(())
    }
}

impl<'a> From<&'a [u8]> for Field<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self(text)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(Option<&'a [u8]>);

impl<'a> Fields<'a> {
    /// The fields of a line without its newline; `None` when one of them is escaped wrongly.
    pub(super) fn of(line: &'a [u8]) -> Option<Self> {
        let fields = Self(Some(line));
        fields.clone().all(Field::is_well_escaped).then_some(fields)
    }

    pub(super) fn rest(&mut self) -> Values<'a> {
        Values(self.0.take())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let rest = self.0?;
        let mut parts = rest.splitn(2, |&byte| byte == b'\t');
        let field = parts.next()?;
        self.0 = parts.next();
        Some(Field(field))
    }
}

/// The values of a file that emu has written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a>(Option<&'a [u8]>);

impl<'a> Values<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    pub(super) fn fields(self) -> Fields<'a> {
        Fields(self.0)
    }

    pub(super) fn contains(self, value: &[u8]) -> bool {
        self.fields().any(|field| field.is(value))
    }

    pub(super) fn has_word(self, word: &[u8]) -> bool {
        self.fields().any(|field| field.has_word(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole() {
        for (text, word, found) in [
            ("cpu io", "cpu", true),
            ("cpu io", "io", true),
            (" cpu\\n\\tio ", "io", true),
            ("cpuset io", "cpu", false),
            ("cpu io", "cpuset", false),
            ("xcpu", "cpu", false),
            ("", "cpu", false),
        ] {
            assert_eq!(Field(text.as_bytes()).has_word(word.as_bytes()), found, "{text} {word}");
        }
    }

    #[test]
    fn messages_show_no_control_characters() {
        assert_eq!(Field(b"a\x1b[2Jb\xff\\t").to_string(), "a?[2Jb?\\t");
    }
}
