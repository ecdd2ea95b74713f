//! Figures in columns.

use heist_launch::{Clock, Dim3, Trace};
use std::fmt::Write;

/// Columns of text that line up. The first column is to the left, the others to
/// the right.
///
/// ```
/// use heist_view::table::columns;
/// let text = columns(&["name", "n"], &[vec!["a".into(), "1".into()], vec!["bc".into(), "20".into()]]);
/// assert_eq!(text, "name   n\na      1\nbc    20\n");
/// ```
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head[column].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let heads: Vec<String> = head.iter().map(|name| (*name).to_string()).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate().take(widths.len()) {
            let pad = widths[column].saturating_sub(cell.chars().count());
            if column == 0 {
                let _ = write!(line, "{cell}{}", " ".repeat(pad));
            } else {
                let _ = write!(line, "  {}{cell}", " ".repeat(pad));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The figures of several runs of one grid of tiles, one row each.
pub fn runs(runs: &[crate::Run<'_>], tiles: Dim3) -> String {
    let head = [
        "schedule",
        "time",
        "tail",
        "busy",
        "blocks",
        "tiles",
        "stolen",
        "refused",
        "declined",
        "most",
        "exactly once",
    ];
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let figures = run.trace.summary();
            vec![
                run.name.to_string(),
                figures.makespan.to_string(),
                figures.tail.to_string(),
                format!("{:.0}%", figures.busy_fraction * 100.0),
                figures.blocks.to_string(),
                figures.tiles.to_string(),
                figures.stolen.to_string(),
                figures.refused.to_string(),
                figures.declined.to_string(),
                figures.most_tiles_per_block.to_string(),
                verdict(run.trace, tiles),
            ]
        })
        .collect();
    let mut text = columns(&head, &rows);
    let modelled = runs.iter().any(|run| run.trace.clock == Clock::Modelled);
    if modelled {
        text.push_str("times are modelled: good for ranking, not a promise\n");
    }
    text
}

/// `yes`, or what is wrong.
pub fn verdict(trace: &Trace, tiles: Dim3) -> String {
    let wrong = trace.miscounted_tiles(tiles);
    match wrong.first() {
        None => "yes".into(),
        Some((tile, runs)) => format!("NO: {} tiles, such as {tile} run {runs} times", wrong.len()),
    }
}
