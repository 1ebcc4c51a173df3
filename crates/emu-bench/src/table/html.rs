//! A table as a part of a page.

use maud::{Markup, html};

use super::rows::Table;
use super::value::Value;
use crate::numbers::signed;
use crate::stats::Verdict;

impl Table {
    pub(crate) fn html(&self) -> Markup {
        html! {
            div.wide {
                table {
                    thead { tr { @for column in &self.columns { th scope="col" { (column.name) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (place, (value, column)) in row.iter().zip(&self.columns).enumerate() {
                                    @match (value, place) {
                                        (Value::Verdict(judgement), _) => td class=(class(judgement.verdict)) {
                                            @if let Some(error) = judgement.error { b { (signed(error)) } " " }
                                            (judgement.word())
                                            @for remark in &judgement.remarks { br; small { (remark) } }
                                        },
                                        (_, 0) => th scope="row" { (column.draw(value)) },
                                        _ => td { (column.draw(value)) },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NotEnoughData { .. } => "unsure",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Column;
    use super::*;
    use crate::row;

    #[test]
    fn what_a_record_says_cannot_become_markup() {
        let mut table = Table::new([Column::text("a&b"), Column::text("c")]);
        table.row(row!["<b a=\"x\">", "&"]);
        let page = table.html().into_string();
        for escaped in ["<th scope=\"col\">a&amp;b</th>", "&lt;b a=&quot;x&quot;&gt;</th>", "<td>&amp;</td>"]
        {
            assert!(page.contains(escaped), "{page}");
        }
    }
}
