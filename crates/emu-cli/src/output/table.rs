//! Text of a given width: columns, and paragraphs.

/// The width that every table and paragraph keeps to.
pub(crate) const WIDTH: usize = 80;

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under a header; the last column is wrapped where it would pass [`WIDTH`].
#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with its header.
    pub(crate) fn new<S: Into<String>>(header: impl IntoIterator<Item = (S, Align)>) -> Self {
        let (names, align) = header.into_iter().map(|(name, align)| (name.into(), align)).unzip();
        Self { align, rows: vec![names] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// The table as lines.
    pub(crate) fn render(&self) -> String {
        let columns = self.align.len();
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let indent: usize = widths.iter().take(columns.saturating_sub(1)).map(|width| width + 2).sum();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((column, cell), (width, align)) in row.iter().enumerate().zip(widths.iter().zip(&self.align))
            {
                if column + 1 == columns && *align == Align::Left {
                    line.push_str(wrap(cell, indent).trim_start());
                } else {
                    let padding = " ".repeat(width - cell.chars().count());
                    let padded = match align {
                        Align::Left => format!("{cell}{padding}  "),
                        Align::Right => format!("{padding}{cell}  "),
                    };
                    line.push_str(&padded);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Breaks a paragraph into lines of at most [`WIDTH`] characters, each indented by `indent` spaces. Words that
/// are longer than a line keep together.
pub(crate) fn wrap(paragraph: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let mut text = margin.clone();
    let mut column = indent;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
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
pub(crate) fn marked(mark: &str, paragraph: &str) -> String {
    let width = mark.chars().count();
    let text = wrap(paragraph, width);
    let lines = text.lines().map(|line| format!("{mark}{}\n", line.get(width..).unwrap_or_default()));
    lines.collect::<Vec<_>>().concat()
}

/// What is to be known of figures, each note on lines of its own; nothing without any.
pub(crate) fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| wrap(note, 0) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_paragraphs() {
        assert_eq!(notes(&[]), "");
        let both = notes(&["word ".repeat(20), "Another.".to_owned()]);
        assert!(both.ends_with("\nAnother.\n") && both.lines().count() == 3, "{both}");
        assert!(both.lines().all(|line| line.chars().count() <= WIDTH), "{both}");
    }

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
    fn columns_are_aligned_and_the_last_one_is_wrapped() {
        let mut table = Table::new([("NAME", Align::Left), ("µS", Align::Right), ("WHAT", Align::Left)]);
        table.row(["a".into(), "12".into(), "word ".repeat(16)]);
        table.row(["bcdef".into(), "3".into(), String::new()]);
        let expected = "\
NAME   µS  WHAT
a      12  word word word word word word word word word word word word word word
           word word
bcdef   3
";
        assert_eq!(table.render(), expected);
        assert!(table.render().lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        let long = "x".repeat(100);
        assert_eq!(wrap(&format!("a {long} b"), 2), format!("  a\n  {long}\n  b"));
        assert_eq!(wrap("", 2), "  ");
    }
}
