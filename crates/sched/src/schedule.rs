//! A schedule as one value, with a text form for command lines and tables.

use crate::classes::Classes;
use crate::erased::AnyPolicy;
use crate::order::{AnyOrder, Linear};
use crate::policies::Greedy;
use crate::policy::Policy;
use crate::source::{Submit, TicketGrid, TileSource};
use crate::tiled::Tiled;
use crate::watch::Watch;
use heist_builder::KernelParams;
use heist_launch::Dim3;
use std::fmt;
use std::str::FromStr;

/// How a kernel's tiles are scheduled.
///
/// ```
/// use heist_sched::{Schedule, TileSource};
/// let schedule = Schedule::new(TileSource::Ticket).policy("max-steals(8)".parse().unwrap());
/// assert_eq!(schedule.to_string(), "ticket early max-steals(8)");
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Where tiles come from.
    pub source: TileSource,
    /// When a block asks.
    pub policy: AnyPolicy,
    /// When a request is submitted.
    pub submit: Submit,
    /// How many requests of launch control may be in flight ([`Tiled::in_flight`]), where it is said.
    pub in_flight: Option<u32>,
    /// In which order tiles are handed out.
    pub order: AnyOrder,
    /// The classes of tiles, which take the place of the order.
    pub classes: Option<Classes>,
    /// Blocks of a cluster.
    pub cluster: Dim3,
    /// How many blocks the ticket source launches, where the policy does not say.
    pub grid: Option<TicketGrid>,
    /// Whether a block leaves in the middle of its tile when the bell is rung.
    pub pausing: bool,
    /// How closely it is watched.
    pub watch: Watch,
}

impl Schedule {
    /// Greedy, early, in linear order, without clusters.
    pub fn new(source: TileSource) -> Schedule {
        Schedule {
            source,
            policy: AnyPolicy::new(Greedy),
            submit: Submit::Early,
            in_flight: None,
            order: AnyOrder::new(Linear),
            classes: None,
            cluster: Dim3::ONE,
            grid: None,
            pausing: false,
            watch: Watch::Off,
        }
    }

    /// The same with another policy.
    #[must_use]
    pub fn policy(mut self, policy: AnyPolicy) -> Schedule {
        self.policy = policy;
        self
    }

    /// The same with another moment of submission.
    #[must_use]
    pub fn submit(mut self, submit: Submit) -> Schedule {
        self.submit = submit;
        self
    }

    /// The same with so many requests of launch control in flight.
    #[must_use]
    pub fn in_flight(mut self, requests: u32) -> Schedule {
        self.in_flight = Some(requests);
        self
    }

    /// The same where tiles are left half done once the bell is rung, with late submission, which
    /// that takes.
    #[must_use]
    pub fn pausing(mut self) -> Schedule {
        self.pausing = true;
        self.submit(Submit::Late)
    }

    /// The same, watched.
    #[must_use]
    pub fn watch(mut self, watch: Watch) -> Schedule {
        self.watch = watch;
        self
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if self.source.asks() {
            let pausing = if self.pausing { " pausing" } else { "" };
            write!(f, " {}", self.submit)?;
            if let Some(requests) = self.in_flight {
                write!(f, " in-flight({requests})")?;
            }
            write!(f, "{pausing} {}", self.policy.name())?;
        }
        if let (TileSource::Ticket, Some(grid)) = (self.source, self.grid) {
            f.write_str(match grid {
                TicketGrid::Full => " full",
                TicketGrid::Resident => " resident",
                TicketGrid::Relief => " relief",
            })?;
        }
        if self.classes.is_some() {
            f.write_str(" classes")?;
        } else if self.order.name() != "linear" {
            write!(f, " {}", self.order.name())?;
        }
        if self.cluster.count() > 1 {
            let Dim3 { x, y, z } = self.cluster;
            write!(f, " cluster {x}x{y}x{z}")?;
        }
        Ok(())
    }
}

/// A text that is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no schedule: {why}; a schedule is a source, a moment, a policy and an order, such as `ticket late max-steals(8) grouped(16)`, and all but the source may be left out"
)]
pub struct ScheduleError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    /// Reads what [`Display`](fmt::Display) writes, but for classes, clusters and grids.
    fn from_str(text: &str) -> Result<Schedule, ScheduleError> {
        let wrong = |why: String| ScheduleError {
            text: text.to_owned(),
            why,
        };
        let (source, rest) = split(text);
        let source = source.parse().map_err(|error| wrong(format!("{error}")))?;
        let mut schedule = Schedule::new(source);
        let mut rest = rest;
        if let (Ok(submit), behind) = (split(rest).0.parse(), split(rest).1) {
            schedule.submit = submit;
            rest = behind;
        }
        let (word, behind) = split(rest);
        if let Some(number) = word.strip_prefix("in-flight(") {
            let number = number
                .strip_suffix(')')
                .and_then(|number| number.parse().ok());
            let why = || wrong(format!("`{word}` is no number such as `in-flight(4)`"));
            schedule.in_flight = Some(number.ok_or_else(why)?);
            rest = behind;
        }
        if let ("pausing", behind) = split(rest) {
            schedule.pausing = true;
            rest = behind;
        }
        // The order is the last word; what is before it is the policy.
        let (before, last) = rest.rsplit_once(char::is_whitespace).unwrap_or(("", rest));
        let mut policy = rest;
        if let Ok(order) = last.parse::<AnyOrder>() {
            schedule.order = order;
            policy = before.trim();
        }
        if !policy.is_empty() {
            let made = policy.parse::<AnyPolicy>();
            schedule.policy = made.map_err(|error| wrong(error.message))?;
        }
        Ok(schedule)
    }
}

/// The first word, and what is behind it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

impl<A: KernelParams> Tiled<A> {
    /// Takes everything from a schedule.
    #[must_use]
    pub fn schedule(self, schedule: &Schedule) -> Self {
        let tiled = self
            .source(schedule.source)
            .policy(schedule.policy.clone())
            .submit(schedule.submit)
            .any_order(schedule.order.clone())
            .cluster(schedule.cluster)
            .pausing(schedule.pausing)
            .watch(schedule.watch);
        let tiled = match schedule.in_flight {
            Some(requests) => tiled.in_flight(requests),
            None => tiled,
        };
        let tiled = match &schedule.classes {
            Some(classes) => tiled.classes(classes.clone()),
            None => tiled,
        };
        match schedule.grid {
            Some(grid) => tiled.ticket_grid(grid),
            None => tiled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "static",
            "direct reversed",
            "static grouped(16)",
            "ticket early greedy",
            "ticket late max-steals(8) & first-half",
            "ticket late loaded: max-steals(8) & first-half grouped(16)",
            "ticket late (every(2) | never) & time-budget(100us) grouped(16)",
            "clc early until-asked hilbert",
            "clc early in-flight(4) every(2) hilbert",
            "ticket late pausing until-asked grouped(16)",
        ] {
            let schedule: Schedule = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(schedule.to_string(), text);
        }
        for (short, whole) in [
            ("ticket", "ticket early greedy"),
            ("ticket  late", "ticket late greedy"),
            (" ticket hilbert", "ticket early greedy hilbert"),
            ("clc never", "clc early never"),
        ] {
            let schedule: Schedule = short.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(schedule.to_string(), whole);
        }
        for (text, why) in [
            ("", "there is no source ``"),
            ("tickets", "there is no source `tickets`"),
            ("ticket soon", "there is no policy `soon`"),
            ("ticket late gredy", "did you mean `greedy`?"),
            (
                "clc early in-flight(many)",
                "`in-flight(many)` is no number",
            ),
            ("clc early in-flight(4", "`in-flight(4` is no number"),
        ] {
            let error = text.parse::<Schedule>().expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
