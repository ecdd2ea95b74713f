//! A schedule as one value: what a command line or a table row says.

use crate::erased::AnyPolicy;
use crate::order::{AnyOrder, Linear};
use crate::policies::Greedy;
use crate::policy::Policy;
use crate::source::{Source, Submit, TicketGrid};
use crate::tiled::Tiled;
use crate::watch::Watch;
use heist_builder::KernelParams;
use heist_launch::Dim3;
use std::fmt;

/// How a kernel's tiles are scheduled.
///
/// ```
/// use heist_sched::{Schedule, Source};
/// let schedule = Schedule::new(Source::Ticket).policy("max-steals(8)".parse().unwrap());
/// assert_eq!(schedule.to_string(), "ticket early max-steals(8)");
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Where tiles come from.
    pub source: Source,
    /// When a block asks.
    pub policy: AnyPolicy,
    /// When a request is submitted.
    pub submit: Submit,
    /// In which order tiles are handed out.
    pub order: AnyOrder,
    /// Blocks of a cluster.
    pub cluster: Dim3,
    /// How many blocks the ticket source launches, where the policy does not say.
    pub grid: Option<TicketGrid>,
    /// How closely it is watched.
    pub watch: Watch,
}

impl Schedule {
    /// Greedy, early, in linear order, without clusters.
    pub fn new(source: Source) -> Schedule {
        Schedule {
            source,
            policy: AnyPolicy::new(Greedy),
            submit: Submit::Early,
            order: AnyOrder::new(Linear),
            cluster: Dim3::ONE,
            grid: None,
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
            write!(f, " {} {}", self.submit, self.policy.name())?;
        }
        if let (Source::Ticket, Some(grid)) = (self.source, self.grid) {
            f.write_str(match grid {
                TicketGrid::Full => " full",
                TicketGrid::Resident => " resident",
            })?;
        }
        if self.order.name() != "linear" {
            write!(f, " {}", self.order.name())?;
        }
        if self.cluster.count() > 1 {
            let Dim3 { x, y, z } = self.cluster;
            write!(f, " cluster {x}x{y}x{z}")?;
        }
        Ok(())
    }
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
            .watch(schedule.watch);
        match schedule.grid {
            Some(grid) => tiled.ticket_grid(grid),
            None => tiled,
        }
    }
}
