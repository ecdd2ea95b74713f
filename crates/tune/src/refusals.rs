//! Refused candidates by their reasons: thousands of them have a few.

use crate::row::{Row, Status};

/// Candidates that were refused for one kind of reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// How many.
    pub count: usize,
    /// What was said of the first of them.
    pub reason: String,
}

/// The refused of some rows, the most frequent kind of reason first.
pub fn refusals(rows: &[Row]) -> Vec<Refusals> {
    let mut kinds: Vec<(String, Refusals)> = Vec::new();
    let refused = rows
        .iter()
        .filter(|row| matches!(row.status, Status::Refused { .. }));
    for row in refused {
        let reason = row.status.to_string();
        let kind = kind_of(&reason);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, same)) => same.count += 1,
            None => kinds.push((kind, Refusals { count: 1, reason })),
        }
    }
    let mut all: Vec<Refusals> = kinds.into_iter().map(|(_, refusals)| refusals).collect();
    all.sort_by_key(|refusals| std::cmp::Reverse(refusals.count));
    all
}

/// A reason without the tile shapes and numbers that change from one candidate to the next.
fn kind_of(reason: &str) -> String {
    let last = reason.rsplit(": ").next().unwrap_or(reason);
    last.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidate, page};

    fn refused(rows: u32, why: &str) -> Row {
        Row::refused(Candidate::new([("rows", rows.to_string())]), why.to_owned())
    }

    #[test]
    fn reasons_that_differ_in_numbers_are_one_kind() {
        let rows = [
            refused(64, "tile 64: too wide"),
            refused(1, "9 bytes of shared memory, and 4 are there"),
            refused(2, "7 bytes of shared memory, and 4 are there"),
        ];
        let found = refusals(&rows);
        let counts: Vec<usize> = found.iter().map(|one| one.count).collect();
        assert_eq!(counts, [2, 1]);
        assert!(found[0].reason.contains("9 bytes"), "{found:?}");
    }

    #[test]
    fn a_page_counts_what_was_refused() {
        let many: Vec<Row> = (0..10_000)
            .map(|row| refused(row, &format!("{row} rows: too many")))
            .collect();
        let page = page("a sweep", &many);
        assert!(page.contains("<td>10000<td>"), "{page}");
        assert!(page.contains("0 rows: too many"), "{page}");
        assert!(page.len() < 10_000, "{} bytes", page.len());
    }
}
