//! The report of a deadlock: which threads wait for what.

use super::cluster::Cluster;
use crate::code::{Code, Wait};
use crate::state::machine::Machine;
use crate::state::warp::{Fragment, Warp};
use heist_ptx::rule;
use std::collections::BTreeMap;

/// Reports that a cluster can't go on.
pub(crate) fn report(cluster: &Cluster, code: &Code, machine: &mut Machine) {
    // Threads that wait for the same thing at the same place are reported together.
    let mut groups: BTreeMap<(u32, u32), (u32, String, String)> = BTreeMap::new();
    for (warp, fragment, wait) in cluster.waits() {
        let pc = place(fragment, wait);
        let entry = groups.entry((pc, warp.rank)).or_insert_with(|| {
            let who = machine.thread(
                cluster.blocks[warp.rank as usize].ctaid,
                warp.number,
                fragment.mask.trailing_zeros() as u8,
            );
            (0, who, what(cluster, warp, wait))
        });
        entry.0 += fragment.mask.count_ones();
    }
    let Some((&(pc, _), _)) = groups.first_key_value() else {
        return;
    };
    let rule = rule_for(cluster, machine.launch.block.count() as u32);
    let mut told = code.finding(
        rule,
        pc,
        format!(
            "deadlock: every thread of block ({}) that is left waits for something that can't happen any more",
            cluster.blocks[0].ctaid
        ),
    );
    for (&(at, _), (count, who, what)) in &groups {
        let text = match count {
            1 => format!("{who} waits {what}"),
            _ => format!("{count} threads, among them {who}, wait {what}"),
        };
        if at == pc && told.label.is_empty() {
            told.label.clone_from(&text);
        }
        match code.source_line(at) {
            Some(line) => told.notes.push(format!("{text} (source line {line})")),
            None => told.notes.push(text.clone()),
        }
        if at != pc {
            told = told.other(code.span(at), text);
        }
    }
    told = told.help("every thread that the barrier counts must reach it, and somebody must arrive as often as it expects");
    machine.findings.report(rule, pc, || told);
    crate::access::exit::answer_kept(&cluster.team.control, code, machine);
}

/// The rule that says most about why nobody can go on.
fn rule_for(cluster: &Cluster, threads: u32) -> heist_ptx::Code {
    for (warp, _, wait) in cluster.waits() {
        let block = &cluster.blocks[warp.rank as usize];
        match wait {
            // More threads are expected than the block has left.
            Wait::Barrier { id } => {
                let barrier = &block.barriers[id as usize & 15];
                if block.live < threads
                    && barrier
                        .expected
                        .is_some_and(|count| count > block.live.next_multiple_of(32))
                {
                    return rule::BARRIER_EXITED;
                }
            }
            Wait::Mbarrier { rank, offset, .. } => {
                let barrier = cluster.blocks[rank as usize].mbarriers.get(offset);
                return match barrier {
                    Some(barrier)
                        if barrier.control
                            && barrier.bytes > 0
                            && barrier.pending == 0
                            && !cluster.blocks.iter().any(|block| block.has_exited()) =>
                    {
                        rule::CLC_BYTES
                    }
                    _ => rule::MBARRIER_STARVED,
                };
            }
            _ => {}
        }
    }
    let at_cluster = cluster
        .waits()
        .any(|(_, _, wait)| wait == Wait::ClusterBarrier);
    if at_cluster {
        rule::CLUSTER_BARRIER_PARTIAL
    } else {
        rule::DEADLOCK
    }
}

/// Where a fragment waits: the instruction that it is going to run again, or the
/// one before where it goes on.
fn place(fragment: &Fragment, wait: Wait) -> u32 {
    match wait {
        Wait::Barrier { .. } | Wait::ClusterBarrier | Wait::WarpBarrier { .. } => {
            fragment.pc.saturating_sub(1)
        }
        _ => fragment.pc,
    }
}

fn what(cluster: &Cluster, warp: &Warp, wait: Wait) -> String {
    match wait {
        Wait::Barrier { id } => {
            let block = &cluster.blocks[warp.rank as usize];
            let barrier = &block.barriers[id as usize & 15];
            let expected = barrier.expected.unwrap_or(block.live);
            format!(
                "at barrier {id}, where {} of {expected} threads have come",
                if barrier.expected.is_some() {
                    barrier.counted
                } else {
                    barrier.threads
                }
            )
        }
        Wait::ClusterBarrier => "at the cluster's barrier".to_owned(),
        Wait::Gather { members } | Wait::WarpBarrier { members } => {
            format!("for the lanes {members:#010x} of its warp")
        }
        Wait::Mbarrier { rank, offset, .. } => {
            let state = cluster.blocks[rank as usize]
                .mbarriers
                .get(offset)
                .map_or_else(String::new, |barrier| {
                    let (pending, count, bytes) = (barrier.pending, barrier.count, barrier.bytes);
                    if bytes < 0 {
                        let more = -bytes;
                        format!(
                            ", to which {pending} of {count} arrivals are still to come, and {more} bytes have come that nobody has announced"
                        )
                    } else {
                        format!(
                            ", to which {pending} of {count} arrivals and {bytes} bytes are still to come"
                        )
                    }
                });
            format!("for a phase of the mbarrier at {offset:#x} of block rank {rank}{state}")
        }
        Wait::Until { .. } => "for time to pass".to_owned(),
    }
}
