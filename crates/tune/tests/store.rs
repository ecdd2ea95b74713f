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
    let store = Store::open(&folder("one").join("tuned.jsonl")).expect("a store");
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
    let one = Store::open(&folder.join("one.jsonl")).expect("a store");
    let two = Store::open(&folder.join("two.jsonl")).expect("a store");
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
    let path = folder("several").join("tuned.jsonl");
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
    let first = "{\"heist_tuned\":1}\n";
    let kept = format!("{first}{{\"answer\":{{\"kernel\":\"gemm\"}}}}\n");
    for (name, text, line, why) in [
        ("text", "no store\n", 1, "another program"),
        ("no line", "no store", 1, "another program"),
        ("later", "{\"heist_tuned\":99}\n", 1, "layout 99"),
        ("half", &kept, 2, "missing field"),
        ("twice", &format!("{first}{first}"), 2, "second"),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        for error in [
            Store::existing(&path).expect_err("refused"),
            Store::open(&path).expect_err("refused"),
        ] {
            assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
            let told = error.to_string();
            assert!(told.contains("HEIST_TUNED") && told.contains(why), "{told}");
            assert!(told.contains(&format!("{name}:{line}:")), "{told}");
        }
        let left = std::fs::read_to_string(&path).expect("read");
        assert_eq!(left, text, "another program's file is not changed");
    }
    assert!(
        Store::existing(&folder.join("none.jsonl"))
            .expect("no error")
            .is_none()
    );
}

#[test]
fn a_line_that_was_cut_off_is_as_if_it_never_was() {
    let path = folder("cut").join("tuned.jsonl");
    let store = Store::open(&path).expect("a store");
    store.keep(&answer("m=1", "13.0", "64")).expect("kept");
    let whole = std::fs::read(&path).expect("read");
    store.keep(&answer("m=2", "13.0", "64")).expect("kept");
    let longer = std::fs::read(&path).expect("read");
    for end in (0..longer.len())
        .step_by(11)
        .chain([whole.len(), longer.len() - 1])
    {
        std::fs::write(&path, &longer[..end]).expect("written");
        let left = Store::existing(&path).expect("opens").expect("there");
        let answers = left.all().expect("read").len();
        assert_eq!(answers, usize::from(end >= whole.len()), "{end} bytes");
        left.keep(&answer("m=3", "13.0", "64")).expect("kept");
        assert_eq!(left.all().expect("read").len(), answers + 1, "{end} bytes");
    }
}

#[test]
fn what_is_forgotten_can_be_found_again() {
    let store = Store::open(&folder("forget").join("tuned.jsonl")).expect("a store");
    let other = |kernel: &str| {
        let mut answer = answer("m=1", "13.0", "64");
        answer.key.kernel = kernel.into();
        answer
    };
    for kernel in ["gemm", "attention"] {
        store.keep(&other(kernel)).expect("kept");
    }
    assert_eq!(store.forget(Some("gemm")).expect("written"), 1);
    let left = store.all().expect("read");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].key.kernel, "attention");
    store.keep(&other("gemm")).expect("kept");
    assert_eq!(store.all().expect("read").len(), 2);
    assert_eq!(store.forget(None).expect("written"), 2);
    assert!(store.all().expect("read").is_empty());
}
