//! The flags that say how a kernel's tiles are scheduled.

use crate::answer::{BadQuestion, question};
use clap::Args;
use heist_launch::Dim3;
use heist_ptx::arch::{Arch, Feature};
use heist_sched::{AnyOrder, AnyPolicy, Schedule, TileSource};

/// How tiles are scheduled; the kernel's own schedule unless one of these is given.
#[derive(Args)]
pub(super) struct ScheduleFlags {
    /// When a block asks for more: see `heist policies`.
    #[arg(long, value_name = "EXPR")]
    policy: Option<String>,
    /// Where tiles come from: clc, ticket, static or direct.
    #[arg(long)]
    source: Option<String>,
    /// In which order tiles are handed out: linear, reversed, grouped(4), hilbert.
    #[arg(long)]
    order: Option<String>,
    /// When a request is submitted: early or late.
    #[arg(long)]
    submit: Option<String>,
    /// How many requests of launch control may be in flight, for the source clc.
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,
    /// Blocks of a cluster, such as 1x2.
    #[arg(long)]
    cluster: Option<Dim3>,
    /// Leave a tile half done when the launch's bell is rung; another block goes on with it later.
    /// With tickets, late submission and until-asked, unless a flag says otherwise.
    #[arg(long)]
    pausing: bool,
}

/// The policy of a schedule that says none.
pub(super) fn usual_policy(pausing: bool) -> &'static str {
    match pausing {
        false => "greedy",
        true => "until-asked",
    }
}

/// The source of a schedule that says none.
pub(super) fn usual_source(pausing: bool, arch: Arch, policy: &AnyPolicy) -> TileSource {
    match pausing {
        false => TileSource::auto(arch, policy, true).source,
        // Others have no block for a tile that is left.
        true => TileSource::Ticket,
    }
}

/// Refuses to leave tiles half done where no kernel can.
pub(super) fn pausable(arch: Arch) -> Result<(), BadQuestion> {
    if arch.supports(Feature::Wgmma) {
        return Ok(());
    }
    Err(question(format!(
        "tiles can't be left half done on {arch}: only kernels on Hopper's warpgroups (sm_90a, such as \
         --device sim:h200) can pause; leave `pausing` out, and under the policy until-asked blocks leave \
         at the end of a tile"
    )))
}

/// An order from its text.
pub(super) fn order(text: &str) -> Result<AnyOrder, BadQuestion> {
    rows_there(text)?;
    text.parse().map_err(question)
}

/// Refuses bands without rows, in an order or in the text of a schedule.
pub(super) fn rows_there(text: &str) -> Result<(), BadQuestion> {
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let rows = plain.split_once("grouped(").map(|(_, rest)| rest);
    let Some((rows, _)) = rows.and_then(|rest| rest.split_once(')')) else {
        return Ok(());
    };
    match rows.parse::<u32>() {
        Ok(1..) => Ok(()),
        _ => Err(question(format!(
            "`grouped({rows})`: the number of rows in a band must be a whole number, 1 or more, such as `grouped(8)`"
        ))),
    }
}

impl ScheduleFlags {
    /// The schedule that was asked for, if one was.
    pub(super) fn schedule(&self, arch: Arch) -> Result<Option<Schedule>, BadQuestion> {
        let flags = [&self.policy, &self.source, &self.order, &self.submit];
        if flags.iter().all(|flag| flag.is_none())
            && self.cluster.is_none()
            && self.in_flight.is_none()
            && !self.pausing
        {
            return Ok(None);
        }
        let text = self.policy.as_deref();
        let text = text.unwrap_or(usual_policy(self.pausing));
        let policy: AnyPolicy = text.parse().map_err(question)?;
        let source = match &self.source {
            Some(text) => text.parse().map_err(question)?,
            None => usual_source(self.pausing, arch, &policy),
        };
        let cluster = self.cluster.unwrap_or(Dim3::ONE);
        source.check(arch, cluster).map_err(question)?;
        let mut schedule = Schedule::new(source).policy(policy);
        if self.pausing {
            pausable(arch)?;
            schedule = schedule.pausing();
        }
        if let Some(submit) = &self.submit {
            schedule = schedule.submit(submit.parse().map_err(question)?);
        }
        if let Some(order) = &self.order {
            schedule.order = self::order(order)?;
        }
        schedule.cluster = cluster;
        schedule.in_flight = self.in_flight;
        Ok(Some(schedule))
    }
}
