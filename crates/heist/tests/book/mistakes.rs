//! The mistakes that the tutorial names, and what they are told as.

use heist::builder::{Global, Kernel, Ptr, Scope, SharedArray, kernel_params};
use heist::launch::Arg;
use heist::run::{Device, Settings};
use heist::sched::Tiled;
use heist::tiled::{self, TiledError};
use std::collections::BTreeSet;

kernel_params! {
    struct Data { x: Global<u32>, n: u32 }
}

/// The codes of what is found in one tile of 64 threads over 50 elements.
fn found(
    body: impl for<'k> Fn(&Kernel<'k>, SharedArray<'k, u32>, Ptr<'k, Global, u32>),
) -> BTreeSet<&'static str> {
    let device = Device::open("sim:h200".parse().expect("a device")).expect("it is simulated");
    let arch = device.arch().expect("known");
    let kernel = Tiled::<Data>::new("mistake", 1)
        .block(64)
        .build(arch, |k, args, tiles| {
            let shared = k.shared::<u32>("shared", 64);
            tiles.each(|_| body(k, shared, args.x))
        })
        .expect("it builds");
    let own = Data {
        x: Arg::in_out(&[1u32; 50]),
        n: 50,
    };
    match tiled::run(&device, &kernel, own, &Settings::default()) {
        Ok(_) => BTreeSet::new(),
        Err(TiledError::Found(found)) => found
            .execution
            .findings
            .iter()
            .map(|finding| finding.code.0)
            .collect(),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_forgotten_bound() {
    let codes = found(|k, _, x| x.at(k.thread().x).update(|v| v + 1));
    assert!(codes.contains("M001"), "{codes:?}");
}

#[test]
fn a_forgotten_barrier() {
    let codes = found(|k, shared, x| {
        let me = k.thread().x;
        shared.at(me).store(me);
        let other = shared.at(me ^ 63).load();
        k.if_(me.lt(50), || x.at(me).store(other));
    });
    assert!(codes.contains("R001"), "{codes:?}");
}

#[test]
fn memory_that_nobody_wrote() {
    let codes = found(|k, shared, x| {
        let me = k.thread().x;
        k.if_(me.lt(50), || x.at(me).store(shared.at(me).load()));
    });
    assert!(codes.contains("M010"), "{codes:?}");
}

#[test]
fn a_barrier_that_not_all_reach() {
    let codes = found(|k, _, _| k.if_(k.thread().x.lt(16), || k.sync()));
    let named = ["B001", "B005"].iter().any(|code| codes.contains(code));
    assert!(named, "{codes:?}");
}

#[test]
fn bins_that_are_not_zeroed_yet() {
    let codes = found(|k, shared, x| {
        let me = k.thread().x;
        shared.at(me).store(0);
        k.if_(me.lt(50), || {
            shared.at((x.at(me).load() + me) % 64).reduce_add(1)
        });
    });
    let named = ["R001", "R005"].iter().any(|code| codes.contains(code));
    assert!(named, "{codes:?}");
}

#[test]
fn a_flag_without_an_order() {
    let codes = found(|k, shared, x| {
        k.if_(k.thread().x.eq(0), || {
            shared.at(0).store(7);
            x.at(0).store(0); // a plain store
        });
        k.if_(k.thread().x.eq(32), || {
            k.while_(|| x.at(0).load_acquire(Scope::Block).ne(0), || {});
            x.at(1).store(shared.at(0).load());
        });
    });
    let named = ["R001", "R002", "R005"]
        .iter()
        .any(|code| codes.contains(code));
    assert!(named, "{codes:?}");
}
