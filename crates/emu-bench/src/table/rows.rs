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

/// A table with a row for each thing: of each column its kind, its name and the value.
///
/// ```
/// let machines = [("here", 0.5), ("there", 0.25)];
/// let table = emu_bench::table! { for (name, share) in machines; text "MACHINE" = name, percent "SHARE" = share };
/// assert_eq!(table.csv(), "MACHINE,SHARE\r\nhere,0.5\r\nthere,0.25\r\n");
/// ```
#[macro_export]
macro_rules! table {
    (for $item:pat in $items:expr; $($kind:ident $(($argument:expr))? $name:literal $(.$modifier:ident())? = $value:expr),* $(,)?) => {{
        let mut table = $crate::table::Table::new($crate::columns![$($kind $(($argument))? $name $(.$modifier())?),*]);
        for $item in $items {
            table.row($crate::row![$($value),*]);
        }
        table
    }};
}

/// A table for programs with a row for each thing, which shows its fields of these names where nothing else is given.
/// `interval` before a name: of that column the ends have columns, too.
///
/// ```
/// struct Gap { cpu: u32, lost: (f64, f64, f64) }
/// let gaps = [Gap { cpu: 2, lost: (0.5, 0.4, 0.6) }];
/// let table = emu_bench::data! { for gap in gaps; cpu, interval lost, kept = 1.0 - gap.lost.0 };
/// assert_eq!(table.csv(), "cpu,lost,lost_low,lost_high,kept\r\n2,0.5,0.4,0.6,0.5\r\n");
/// ```
#[macro_export]
macro_rules! data {
    (for $item:ident in $items:expr; $($name:ident $($of:ident)? $(= $value:expr)?),* $(,)?) => {{
        let mut table = $crate::table::Table::data(&[$($crate::data!(@name $name $($of)?)),*].join(","));
        for $item in $items {
            table.row([$($crate::data!(@value $item $name $($of)? $(= $value)?)),*]);
        }
        table
    }};
    (@name interval $name:ident) => { concat!(stringify!($name), "±") };
    (@name $name:ident) => { stringify!($name) };
    (@value $item:ident $($name:ident)+ = $value:expr) => { $crate::table::Value::from($value) };
    (@value $item:ident interval $name:ident) => { $crate::table::Value::from($item.$name) };
    (@value $item:ident $name:ident) => { $crate::table::Value::from($item.$name) };
}

/// Adds a row to a table by the names of its columns; all others are missing.
#[macro_export]
macro_rules! fields {
    ($table:expr; $($name:ident = $value:expr),* $(,)?) => {
        $table.fields([$((stringify!($name), $crate::table::Value::from($value))),*])
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
