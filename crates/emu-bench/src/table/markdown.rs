//! A table to be pasted into a document.

use super::rows::Table;
use super::value::Value;

impl Table {
    /// A table of Markdown, as GitHub has it.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let header = line(self.columns.iter().map(|column| escaped(&column.name)).collect());
        let rule =
            line(self.columns.iter().map(|one| if one.is_number() { "--:" } else { "---" }.into()).collect());
        let rows = self.rows.iter().map(|row| {
            let cells = row.iter().zip(&self.columns).map(|(value, column)| match value {
                Value::Verdict(judgement) if judgement.remarks.is_empty() => judgement.in_words(),
                Value::Verdict(judgement) => {
                    format!("{} ({})", judgement.in_words(), escaped(&judgement.remarks.join("; ")))
                }
                value => escaped(&column.draw(value)),
            });
            line(cells.collect())
        });
        header + &rule + &rows.collect::<String>()
    }
}

/// Text that is no markup in a cell or a heading, whatever it says; on one line.
pub fn escaped(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => told.push_str("&amp;"),
            '<' => told.push_str("&lt;"),
            '\\' | '|' | '[' | '`' | '*' | '_' | '~' => told.extend(['\\', letter]),
            _ => told.push(if letter.is_control() { ' ' } else { letter }),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Judgement};
    use super::*;
    use crate::row;
    use crate::stats::Verdict;

    #[test]
    fn what_a_cell_says_cannot_become_markup() {
        let mut table = Table::new([Column::text("a|b"), Column::percent("n"), Column::verdict("v")]);
        let remarks = vec!["worst 3%".to_owned(), "<b>".to_owned()];
        table.row(row![
            "[x](y)\n<i> __a__ *b* `c` ~d~ e\\|f &lt;",
            0.4,
            Judgement { verdict: Verdict::Fail, word: None, error: Some(-0.073), remarks }
        ]);
        let expected = "| a\\|b | n | v |\n| --- | --: | --- |\n\
                        | \\[x](y) &lt;i> \\_\\_a\\_\\_ \\*b\\* \\`c\\` \\~d\\~ e\\\\\\|f &amp;lt; | 40% | -7.3% fail (worst 3%; &lt;b>) |\n";
        assert_eq!(table.markdown(), expected);
    }
}
