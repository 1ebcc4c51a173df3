//! A table as lines of a terminal's width. Columns of words are wrapped until it fits. Numbers are never broken: where they do
//! not fit side by side, the table comes in parts, each with the first column.

use super::rows::Table;
use super::wrap::{width, wrap_to};

const GAP: usize = 2;

/// The last column may be as narrow as this even if a longer word then passes the width: a path, for instance.
const NARROWEST: usize = 20;

impl Table {
    /// The table in lines of at most [`width`](crate::table::width) characters, as far as its words and numbers let it.
    pub fn text(&self) -> String {
        self.text_in(width())
    }

    /// The same for lines of another width.
    pub fn text_in(&self, width: usize) -> String {
        let header = self.columns.iter().map(|column| column.name.clone()).collect();
        let draw =
            |row: &Vec<_>| row.iter().zip(&self.columns).map(|(value, column)| column.draw(value)).collect();
        let lines: Vec<Vec<String>> = std::iter::once(header).chain(self.rows.iter().map(draw)).collect();
        let columns = self.columns.iter().enumerate().map(|(place, column)| {
            let cells: Vec<&str> =
                lines.iter().filter_map(|line| line.get(place)).map(String::as_str).collect();
            let length = |words: &str| words.chars().count();
            let natural = cells.iter().map(|cell| length(cell)).max().unwrap_or(0);
            let word = cells.iter().flat_map(|cell| cell.split_whitespace()).map(length).max().unwrap_or(0);
            let least = match (column.is_text(), place + 1 == self.columns.len()) {
                (false, _) => natural,
                (true, false) => word,
                (true, true) => word.min(NARROWEST),
            };
            Drawn { cells, natural, least, on_the_right: column.is_number() }
        });
        let columns: Vec<_> = columns.collect();
        let parts = parts(&columns, width).into_iter().map(|part| text_of(&part, width));
        parts.collect::<Vec<_>>().join("\n")
    }
}

#[derive(Clone)]
struct Drawn<'a> {
    /// The header first.
    cells: Vec<&'a str>,
    natural: usize,
    /// What it can be wrapped to.
    least: usize,
    on_the_right: bool,
}

fn parts<'a>(columns: &[Drawn<'a>], width: usize) -> Vec<Vec<Drawn<'a>>> {
    let Some((first, rest)) = columns.split_first() else { return vec![] };
    let mut parts = vec![vec![first.clone()]];
    let mut used = first.least;
    for column in rest {
        let need = GAP + column.least;
        match parts.last_mut() {
            Some(part) if used + need <= width || part.len() == 1 => part.push(column.clone()),
            _ => {
                parts.push(vec![first.clone(), column.clone()]);
                used = first.least;
            }
        }
        used += need;
    }
    parts
}

fn text_of(columns: &[Drawn<'_>], width: usize) -> String {
    let widths = fitted(columns, width);
    let mut text = String::new();
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        let cell = |column: &Drawn<'_>, width: usize| -> Vec<String> {
            let cell = column.cells.get(row).copied().unwrap_or_default();
            let is_wide = cell.chars().count() > width;
            if is_wide {
                wrap_to(cell, 0, width).lines().map(str::to_owned).collect()
            } else {
                vec![cell.to_owned()]
            }
        };
        let cells: Vec<_> = columns.iter().zip(&widths).map(|(column, width)| cell(column, *width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let pad = |((column, width), cell): ((&Drawn<'_>, &usize), &Vec<String>)| {
                let cell = cell.get(line).map_or("", String::as_str);
                if column.on_the_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            };
            let padded: Vec<_> = columns.iter().zip(&widths).zip(&cells).map(pad).collect();
            text.push_str(padded.join(&" ".repeat(GAP)).trim_end());
            text.push('\n');
        }
    }
    text
}

/// The widest column that can yield does so until all fit.
fn fitted(columns: &[Drawn<'_>], width: usize) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(|column| column.natural).collect();
    let gaps = GAP * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let yielding = widths.iter_mut().zip(columns).filter(|(width, column)| **width > column.least);
        let Some((widest, _)) = yielding.max_by_key(|(width, _)| **width) else { break };
        *widest -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::super::Column;
    use super::*;
    use crate::row;

    #[test]
    fn columns_are_aligned_and_words_are_wrapped() {
        let mut table = Table::new([Column::text("NAME"), Column::number("µS"), Column::text("WHAT")]);
        table.row(row!["a", 12_u64, "word ".repeat(16).trim_end()]);
        table.row(row!["bcdef", 3_u64, ""]);
        let expected = "\
NAME   µS  WHAT
a      12  word word word word word word word word word word word word word word
           word word
bcdef   3
";
        assert_eq!(table.text(), expected);
        assert!(table.text_in(200).lines().count() == 3);
    }

    #[test]
    fn the_widest_words_yield_and_numbers_never_do() {
        let mut table = Table::new([Column::text("WHAT"), Column::percent("SHARE"), Column::text("WHY")]);
        table.row(row!["several words stand here", 0.123_4, "short"]);
        let expected = "\
WHAT           SHARE  WHY
several words  12.3%  short
stand here
";
        assert_eq!(table.text_in(27), expected);
    }

    #[test]
    fn what_does_not_fit_side_by_side_comes_in_parts() {
        let columns = [Column::text("CPU"), Column::number("A"), Column::number("B"), Column::number("C")];
        let mut table = Table::new(columns);
        table.row(row!["0", 1_000_000_u64, 2_000_000_u64, 3_000_000_u64]);
        let expected = "\
CPU        A        B
0    1000000  2000000

CPU        C
0    3000000
";
        assert_eq!(table.text_in(24), expected);
        assert!(table.text_in(1).lines().count() == 8, "a part for each column at least");
    }

    #[test]
    fn numbers_are_written_by_the_kind_of_their_column() {
        let mut table = Table::new([
            Column::fixed("SLOPE", 3),
            Column::change("ERROR").with_interval(),
            Column::time("STALL"),
        ]);
        table.row(row![1.0, (0.01, -0.02, 0.03), 6_130_000_u64]);
        table.row(row![None::<f64>, "none", std::time::Duration::from_secs(2)]);
        let expected = "\
SLOPE                  ERROR   STALL
1.000  +1.0% (-2.0 to +3.0%)  6.13ms
    -                   none      2s
";
        assert_eq!(table.text(), expected);
    }
}
