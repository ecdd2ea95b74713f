//! A drawing of both tenants under every schedule.

use super::Share;
use super::figures::Row;
use crate::answer::{BadQuestion, question};
use crate::timeline::{draw, drawable};
use heist::job::JobError;
use heist::share::{Pair, Tenant};
use heist_launch::Trace;
use heist_view::Run as Named;

impl Share {
    /// Fails, before anything has run, where [`draw`](Share::draw) would.
    pub(super) fn can_draw(&self) -> Result<(), BadQuestion> {
        let Some(path) = &self.trace else {
            return Ok(());
        };
        drawable(path)?;
        match path.extension().is_some_and(|e| e == "svg") {
            true => Err(question(
                "an .svg shows one launch, and these are many; write an .html",
            )),
            false => Ok(()),
        }
    }

    /// Draws both tenants under every schedule, where that is asked for. `pair` runs a batch, of which
    /// is known how long it takes alone, and an interactive kernel.
    pub(super) fn draw(
        &self,
        (tenants, rows): (&[Tenant], &[Row]),
        interactives: &[Tenant],
        pair: impl Fn((&Tenant, f64), &Tenant) -> Result<Pair, JobError>,
    ) -> Result<(), BadQuestion> {
        let Some(path) = &self.trace else {
            return Ok(());
        };
        let last = interactives.last();
        let interactive = last.ok_or_else(|| question("a timeline needs an interactive kernel"))?;
        let pairs = tenants.iter().zip(rows);
        let pairs = pairs.map(|(tenant, row)| pair((tenant, row.alone), interactive));
        let pairs: Vec<Pair> = pairs.collect::<Result<_, _>>().map_err(question)?;
        let beside: Vec<[(&str, &Trace); 1]> = pairs
            .iter()
            .map(|pair| [(interactive.name.as_str(), &pair.interactive)])
            .collect();
        let abouts: Vec<String> = pairs.iter().map(visit).collect();
        let runs: Vec<Named<'_>> = tenants
            .iter()
            .zip(&pairs)
            .zip(beside.iter().zip(&abouts))
            .map(|((tenant, pair), (beside, about))| {
                Named::new(&tenant.name, &pair.batch)
                    .beside(beside)
                    .about(about)
            })
            .collect();
        let batch = [&[self.kernel.clone()][..], &self.told[..]].concat();
        let title = format!(
            "{}, and a product of {} that comes while it runs",
            batch.join(" "),
            interactive.name
        );
        draw(path, &title, &runs)
    }
}

/// When the interactive kernel was there, in a sentence.
fn visit(pair: &Pair) -> String {
    let Some(((begin, _), (first, last))) = pair.batch.window().zip(pair.interactive.window())
    else {
        return String::new();
    };
    format!(
        "The interactive kernel's first block begins at {}, its last ends at {}.",
        first.since(begin),
        last.since(begin)
    )
}
