//! The table itself: columns and rows.

use super::column::Column;
use super::value::Value;

/// The values of a row, each of any type that becomes a [`Value`](crate::table::Value).
#[macro_export]
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::table::Value::from($value)),*] };
}

/// Columns, each by its kind, what that takes, and its name: `columns![text "work", fixed(2) "ratio".with_interval()]`.
#[macro_export]
macro_rules! columns {
    ($($kind:ident $(($argument:expr))? $name:literal $(.$modifier:ident())?),* $(,)?) => {
        [$($crate::table::Column::$kind($name $(, $argument)?)$(.$modifier())?),*]
    };
}

/// Rows of values under their columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub(super) columns: Vec<Column>,
    /// Each with as many values as there are columns.
    pub(super) rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// A table for programs, by the names of its columns: `cpu,pairs,ratio±`, where `±` marks an estimate with its interval.
    pub fn data(names: &str) -> Self {
        Self::new(names.split(',').map(|name| match name.strip_suffix('±') {
            Some(name) => Column::number(name).with_interval(),
            None => Column::number(name),
        }))
    }

    /// Adds a row, such as `row![..]`. Values at its end may be left out: they are missing.
    pub fn row(&mut self, values: impl IntoIterator<Item = impl Into<Value>>) {
        let mut values: Vec<_> = values.into_iter().map(Into::into).collect();
        debug_assert!(values.len() <= self.columns.len(), "{} values: {values:?}", values.len());
        values.resize(self.columns.len(), Value::Missing);
        self.rows.push(values);
    }

    /// Adds a row by the names of its columns; all others are missing.
    pub fn fields<'a>(&mut self, fields: impl IntoIterator<Item = (&'a str, Value)>) {
        let mut values = vec![Value::Missing; self.columns.len()];
        for (name, value) in fields {
            let place = self.columns.iter().position(|column| column.name == name);
            debug_assert!(place.is_some(), "no column {name}");
            if let Some(cell) = place.and_then(|place| values.get_mut(place)) {
                *cell = value;
            }
        }
        self.rows.push(values);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_leaves_out_is_missing() {
        let mut table = Table::data("what,cpu,ratio±");
        table.row(row!["a"]);
        table.fields([("ratio", (1.0, 0.5, 2.0).into()), ("cpu", 3_usize.into())]);
        assert_eq!(
            table.rows,
            [row!["a", None::<f64>, Value::Missing], row![Value::Missing, 3_u64, (1.0, 0.5, 2.0)]]
        );
    }
}
