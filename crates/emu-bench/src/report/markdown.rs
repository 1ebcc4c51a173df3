//! The report as Markdown, to be pasted anywhere.

use std::fmt::Write as _;

use super::results::{Ground, Results, ground_name};
use super::tables;
use crate::numbers::percent;
use crate::table::{Table, escaped};
use crate::verify::Outliers;

pub(super) fn summary(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = format!(
        "# CPU emulation on {}\n\n{}\n\n{} CPUs, Linux {}, {}, core clock {}, emu {}\n\n",
        escaped(&machine.model),
        escaped(&results.conclusion),
        machine.cpus,
        escaped(&machine.kernel),
        escaped(machine.hypervisor.as_deref().unwrap_or("no hypervisor")),
        results.reference,
        escaped(&results.version)
    );
    for run in &results.runs {
        let _ = writeln!(text, "`{}` ({})\n", run.command.replace('`', ""), escaped(&run.date));
        if let Some(missing) = run.missing() {
            let _ = writeln!(text, "{missing}\n");
        }
    }
    let _ = writeln!(
        text,
        "{}\n{}\nError of the perceived speed against the ideal at the speed that is furthest off, with its interval, and the \
         mean over all speeds. pass: at every speed the 95% interval and the mean lie within ±{}, and no more than one window in eight is far \
         off. Disturbed pairs do not count. Score: 0 to 100, of the worst work. Longest stall: of cpu-loop.\n",
        results.fidelity_table().markdown(),
        results.totals_table().markdown(),
        percent(results.tolerance)
    );
    for cell in results.cells.iter().filter(|cell| cell.finding.outliers.pairs > 0) {
        let Outliers { pairs, beyond } = cell.finding.outliers;
        let _ = writeln!(
            text,
            "- far off: {} at {}, {}: {pairs} of {} windows by more than {}",
            cell.contender,
            percent(cell.share),
            escaped(&ground_name(&cell.workload, cell.cores)),
            cell.finding.pairs,
            percent(beyond)
        );
    }
    text.push('\n');
    for doubt in results.grounds.iter().filter_map(Ground::doubt) {
        let _ = writeln!(text, "{}\n", escaped(&doubt));
    }
    let not_measured = tables::unavailable(results);
    for table in [results.beside_table(), results.published_table(), not_measured]
        .iter()
        .filter(|table| !Table::is_empty(table))
    {
        let _ = writeln!(text, "{}", table.markdown());
    }
    text
}
