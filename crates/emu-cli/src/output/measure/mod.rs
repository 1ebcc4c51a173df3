//! What the machine can do, as tables and figures.

pub(crate) mod cpu;
pub(crate) mod disk;
pub(crate) mod hpcc;
pub(crate) mod memory;
pub(crate) mod series;

use super::table::wrap;

/// What is to be known of figures, each note on lines of its own; nothing without any.
pub(crate) fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| wrap(note, 0) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::WIDTH;

    #[test]
    fn notes_are_paragraphs() {
        assert_eq!(notes(&[]), "");
        let both = notes(&["word ".repeat(20), "Another.".to_owned()]);
        assert!(both.ends_with("\nAnother.\n") && both.lines().count() == 3, "{both}");
        assert!(both.lines().all(|line| line.chars().count() <= WIDTH), "{both}");
    }
}
