//! Answers are kept, found again, and never taken from a file that is broken.

use heist_tune::{Answer, Candidate, Key, Store, StoreError};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn key(problem: &str, driver: &str) -> Key {
    Key {
        kernel: "gemm".into(),
        problem: problem.into(),
        device: "NVIDIA H200".into(),
        driver: driver.into(),
        version: "0.1.0".into(),
    }
}

fn answer(problem: &str, driver: &str, rows: &str) -> Answer {
    Answer {
        key: key(problem, driver),
        candidate: Candidate::new([("rows", rows)]),
        median_ns: 181_000.0,
        default_ns: Some(190_000.0),
        tried: 64,
        at: String::new(),
    }
}

#[test]
fn an_answer_is_for_one_driver() {
    let store = Store::open(&folder("one").join("tuned.sqlite")).expect("a store");
    store.keep(&answer("m=1", "13.0", "64")).expect("kept");
    store.keep(&answer("m=1", "13.0", "128")).expect("kept");
    let found = store
        .find(&key("m=1", "13.0"))
        .expect("read")
        .expect("there");
    assert_eq!(found.candidate.get("rows"), Some("128"), "the newer one");
    assert!(!found.at.is_empty());
    assert!(store.find(&key("m=1", "13.1")).expect("read").is_none());
    assert!(store.find(&key("m=2", "13.0")).expect("read").is_none());
    assert_eq!(store.all().expect("read").len(), 1);
    assert_eq!(store.forget(Some("attention")).expect("written"), 0);
    assert_eq!(store.forget(None).expect("written"), 1);
}

#[test]
fn two_stores_become_one() {
    let folder = folder("two");
    let one = Store::open(&folder.join("one.sqlite")).expect("a store");
    let two = Store::open(&folder.join("two.sqlite")).expect("a store");
    one.keep(&answer("m=1", "13.0", "64")).expect("kept");
    two.keep(&answer("m=1", "13.0", "64")).expect("kept");
    two.keep(&answer("m=2", "13.0", "64")).expect("kept");
    assert!(one.merge(&two).expect("merged") >= 1);
    assert_eq!(one.all().expect("read").len(), 2);
    assert_eq!(one.merge(&two).expect("merged"), 0, "nothing new");
    let dated = |rows: &str, at: &str| Answer {
        at: at.into(),
        ..answer("m=3", "13.0", rows)
    };
    one.keep(&dated("64", "2026-01-02 00:00:00")).expect("kept");
    two.keep(&dated("128", "2026-01-01 00:00:00"))
        .expect("kept");
    assert_eq!(
        one.merge(&two).expect("merged"),
        0,
        "the older one stays away"
    );
    assert_eq!(
        two.merge(&one).expect("merged"),
        1,
        "the newer one is taken"
    );
    let found = two.find(&key("m=3", "13.0")).expect("read").expect("there");
    assert_eq!(found.candidate.get("rows"), Some("64"));
}

#[test]
fn several_write_at_once_and_nothing_is_lost() {
    let path = folder("several").join("tuned.sqlite");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let store = Store::open(path).expect("a store");
                for at in 0..10 {
                    store
                        .keep(&answer(&format!("m={writer} n={at}"), "13.0", "64"))
                        .expect("kept");
                }
            });
        }
    });
    assert_eq!(
        Store::open(&path)
            .expect("a store")
            .all()
            .expect("read")
            .len(),
        80
    );
}

#[test]
fn what_is_no_store_is_refused_with_a_remedy() {
    let folder = folder("broken");
    let refused = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("written");
        let error = Store::existing(&path).expect_err("refused");
        assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
        assert!(error.to_string().contains("HEIST_TUNED"), "{error}");
    };
    refused("text", b"this is no database, and longer than a header of one hundred bytes is, which is what is read first of all of it");
    let good = folder.join("good.sqlite");
    drop(Store::open(&good).expect("a store"));
    let connection = rusqlite::Connection::open(folder.join("other.sqlite")).expect("a database");
    connection
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("a table");
    drop(connection);
    let other = Store::existing(&folder.join("other.sqlite")).expect_err("another's");
    assert!(other.to_string().contains("another program"), "{other}");
    let connection = rusqlite::Connection::open(&good).expect("a database");
    connection
        .pragma_update(None, "user_version", 99)
        .expect("set");
    drop(connection);
    assert!(
        Store::existing(&good)
            .expect_err("a layout to come")
            .to_string()
            .contains("layout 99")
    );
    let bad = folder.join("bad.sqlite");
    let store = Store::open(&bad).expect("a store");
    store.keep(&answer("m=1", "13.0", "64")).expect("kept");
    drop(store);
    let connection = rusqlite::Connection::open(&bad).expect("a database");
    connection
        .execute("UPDATE answers SET candidate = 'rows'", [])
        .expect("set");
    drop(connection);
    let store = Store::existing(&bad).expect("opens").expect("there");
    assert!(
        store
            .find(&key("m=1", "13.0"))
            .expect_err("no candidate")
            .to_string()
            .contains("m=1")
    );
    assert!(
        Store::existing(&folder.join("none.sqlite"))
            .expect("no error")
            .is_none()
    );
}
