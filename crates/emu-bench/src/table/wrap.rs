//! Paragraphs, and the width that they and tables keep to.

use std::sync::OnceLock;

/// The width of lines that do not go to a terminal.
pub const WIDTH: usize = 80;

/// Lines of more than this are hard to read, and shorter ones break too often.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=120;

static TERMINAL: OnceLock<usize> = OnceLock::new();

/// Sets the width of all tables and paragraphs of this process, once, before anything is written; else it is [`WIDTH`].
pub fn set_width(columns: usize) {
    let _ = TERMINAL.set(columns.clamp(*WIDTHS.start(), *WIDTHS.end()));
}

/// The width that tables and paragraphs keep to.
pub fn width() -> usize {
    TERMINAL.get().copied().unwrap_or(WIDTH)
}

/// Breaks a paragraph into lines of at most [`width`] characters, indented by `indent` spaces. Longer words keep together.
pub fn wrap(paragraph: &str, indent: usize) -> String {
    wrap_to(paragraph, indent, width())
}

pub(super) fn wrap_to(paragraph: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let mut text = margin.clone();
    let mut column = indent;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            text.push('\n');
            text.push_str(&margin);
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Breaks a paragraph into lines that begin with `mark`.
pub fn marked(mark: &str, paragraph: &str) -> String {
    let indent = mark.chars().count();
    let text = wrap(paragraph, indent);
    let lines = text.lines().map(|line| format!("{mark}{}\n", line.get(indent..).unwrap_or_default()));
    lines.collect::<Vec<_>>().concat()
}

/// A paragraph of lines of at most [`width`] characters.
pub fn paragraph(words: impl AsRef<str>) -> String {
    wrap(words.as_ref(), 0) + "\n"
}

/// A line for each fact, with what it is of before it, which no line after the first one has: all begin at column `indent`.
pub fn facts<'a>(indent: usize, facts: impl IntoIterator<Item = (&'a str, impl AsRef<str>)>) -> String {
    let line = |of: &str, fact: &str| format!("{of:<indent$}{}\n", wrap(fact, indent).trim_start());
    facts.into_iter().map(|(of, fact)| line(of, fact.as_ref())).collect()
}

/// What is to be known of figures: a paragraph for each note; nothing without any.
pub fn notes(notes: &[String]) -> String {
    notes.iter().map(paragraph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_paragraph_has_the_mark_on_each_line_within_width() {
        assert_eq!(marked("emu: ", "short"), "emu: short\n");
        let long = marked("emu: ", &"µs ".repeat(40));
        assert_eq!(long.lines().count(), 2, "{long}");
        assert!(
            long.lines().all(|line| line.starts_with("emu: µs") && line.chars().count() <= WIDTH),
            "{long}"
        );
    }

    #[test]
    fn notes_are_paragraphs() {
        assert_eq!(notes(&[]), "");
        let both = notes(&["word ".repeat(20), "Another.".to_owned()]);
        assert!(both.ends_with("\nAnother.\n") && both.lines().count() == 3, "{both}");
        assert!(both.lines().all(|line| line.chars().count() <= WIDTH), "{both}");
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        let long = "x".repeat(100);
        assert_eq!(wrap(&format!("a {long} b"), 2), format!("  a\n  {long}\n  b"));
        assert_eq!(wrap("", 2), "  ");
    }
}
