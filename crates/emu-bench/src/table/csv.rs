//! Comma-separated values (RFC 4180), unrounded.

use csv::{Terminator, WriterBuilder};

use super::rows::Table;
use super::value::Value;

impl Table {
    /// Every value as it was measured. Of a column with intervals there are three fields.
    pub fn csv(&self) -> String {
        let mut lines = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
        let header = self.columns.iter().flat_map(|column| {
            let ends: &[&str] = if column.has_ends { &["", "_low", "_high"] } else { &[""] };
            ends.iter().map(|end| format!("{}{end}", column.name))
        });
        // Writing to memory lines of the same length does not fail.
        let _ = lines.write_record(header.collect::<Vec<_>>());
        for row in &self.rows {
            let fields = row.iter().zip(&self.columns);
            let _ = lines.write_record(fields.flat_map(|(value, column)| fields_of(value, column.has_ends)));
        }
        String::from_utf8(lines.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}

fn fields_of(value: &Value, has_ends: bool) -> Vec<String> {
    let mut fields = match value {
        Value::Missing => vec![String::new()],
        Value::Text(text) => vec![text.clone()],
        Value::Whole(whole) => vec![whole.to_string()],
        Value::Number(number) => vec![number.to_string()],
        Value::Interval { estimate, low, high } => [estimate, low, high].map(f64::to_string).to_vec(),
        Value::Verdict(judgement) => vec![judgement.verdict.as_str().to_owned()],
    };
    fields.resize(if has_ends { 3 } else { 1 }, String::new());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;
    use crate::stats::Verdict;

    #[test]
    fn fields_are_unrounded_and_quoted_where_they_must_be() {
        let mut table = Table::data("name,share,ratio±,verdict");
        table.row(row!["a,\"b\"", 1.0 / 3.0, (1.0, 0.5, 1.5), Verdict::Pass]);
        table.row(row!["two\nlines", 1e-30, None::<f64>, Verdict::NotEnoughData { pairs_needed: None }]);
        let expected = "name,share,ratio,ratio_low,ratio_high,verdict\r\n\
                        \"a,\"\"b\"\"\",0.3333333333333333,1,0.5,1.5,pass\r\n\
                        \"two\nlines\",0.000000000000000000000000000001,,,,not enough data\r\n";
        assert_eq!(table.csv(), expected);
    }
}
