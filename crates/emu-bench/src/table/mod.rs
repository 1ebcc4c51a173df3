//! Tables: rows of values under typed columns, drawn for a terminal, as CSV, as Markdown or as a part of a page. A value is
//! kept as it was measured; the column says how it is written for people.
//!
//! ```
//! use emu_bench::table::Table;
//! use emu_bench::{columns, row};
//!
//! let mut table = Table::new(columns![text "WORK", percent "SPEED", time "STALL"]);
//! table.row(row!["cpu-loop", 0.39604, 6_130_000_u64]);
//! table.row(row!["stream", None::<f64>, "n/a"]);
//! assert_eq!(
//!     table.text(),
//!     "WORK      SPEED   STALL\n\
//!      cpu-loop  39.6%  6.13ms\n\
//!      stream        -     n/a\n"
//! );
//! assert_eq!(table.csv(), "WORK,SPEED,STALL\r\ncpu-loop,0.39604,6130000\r\nstream,,n/a\r\n");
//! ```

mod column;
mod csv;
mod html;
mod markdown;
mod rows;
mod terminal;
mod value;
mod wrap;

pub use column::Column;
pub use markdown::escaped;
pub use rows::Table;
pub use value::{Judgement, Value};
pub use wrap::{WIDTH, facts, marked, notes, paragraph, set_width, width, wrap};
