//! A child of `saxpy`, with a schedule and a picture.

use super::Saxpy;
use crate::{numbers, run};
use heist::launch::Arg;
// book: begin
use heist::sched::{FirstHalf, MaxSteals, Tiled, Watch};
use heist::tiled::TiledRun;
use heist::view;

fn scheduled(tiles: u32) -> Tiled<Saxpy> {
    Tiled::<Saxpy>::new("saxpy", tiles)
        .policy(MaxSteals { limit: 8 } & FirstHalf)
        .watch(Watch::Trace) // and then .block(256).build(...), as before
}

fn page(run: &TiledRun) -> Option<String> {
    let trace = run.report.trace.as_ref()?; // there, since the tiles are watched
    Some(view::html(
        "saxpy",
        &[view::Run::new("max-steals(8) & first-half", trace)],
    ))
}
// book: end

#[test]
fn a_watched_run_is_drawn() {
    let x = numbers(1000);
    let own = Saxpy {
        x: Arg::input(&x),
        y: Arg::in_out(&x),
        a: 2.0,
        n: 1000,
    };
    let run = run(
        |arch| {
            scheduled(4).block(256).build(arch, |k, args, tiles| {
                tiles.each(|tile| {
                    let i = tile.x * k.block_dim().x + k.thread().x;
                    k.if_(i.lt(args.n), || args.y.at(i).store(args.x.at(i).load()));
                })
            })
        },
        own,
    );
    assert!(
        page(&run)
            .expect("a trace")
            .contains("max-steals(8) & first-half")
    );
}
