//! The timeline in a browser: it draws, zooms, hovers, and nothing goes wrong.

use heist_launch::{
    BlockSpan, Clock, Decision, DecisionKind, Dim3, TileOrigin, TileSpan, Time, Trace,
};
use heist_view::{Run, html, perfetto, svg, table};
use std::path::PathBuf;
use std::process::Command;

fn trace() -> Trace {
    let mut trace = Trace::new("sim:b200", "k<1>", Clock::Modelled, 4, Dim3::linear_x(8));
    for block in 0..8u32 {
        let sm = block % 4;
        let start = 1000 * u64::from(block / 4) * 10;
        trace.blocks.push(BlockSpan {
            block,
            cluster: block,
            sm,
            start: Time::from_ns(start),
            end: Time::from_ns(start + 9000),
        });
        for turn in 0..3u64 {
            let origin = [TileOrigin::Own, TileOrigin::Stolen, TileOrigin::Stolen][turn as usize];
            trace.tiles.push(TileSpan {
                tile: Dim3::new(block + 8 * turn as u32, 0, 0),
                block,
                sm,
                start: Time::from_ns(start + turn * 3000),
                end: Time::from_ns(start + turn * 3000 + 2500),
                origin,
            });
            trace.decisions.push(Decision {
                block,
                at: Time::from_ns(start + turn * 3000 + 100),
                kind: DecisionKind::Requested,
            });
        }
    }
    trace
}

/// The first browser there is.
fn browser() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("HEIST_BROWSER") {
        return Some(path.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

#[test]
fn the_page_needs_nothing_from_outside_and_holds_its_data() {
    let trace = trace();
    let runs = [
        Run {
            name: "clc </script> greedy",
            trace: &trace,
        },
        Run {
            name: "static",
            trace: &trace,
        },
    ];
    let page = html("two runs", &runs);
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(
        page.matches("</script>").count(),
        1,
        "the data can't end the script"
    );
    assert!(!page.contains("{{"), "nothing is left to fill in");
    assert!(page.contains("modelled"));
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium found (set HEIST_BROWSER to one)");
        return;
    };
    let trace = trace();
    let run = Run {
        name: "clc greedy",
        trace: &trace,
    };
    let folder = std::env::temp_dir().join(format!("heist-view-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("timeline.html");
    std::fs::write(&file, html("a run", &[run, run])).expect("a file");
    let ran = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        // What the page says on its console goes to the error output.
        .arg("--enable-logging=stderr")
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}#selftest", file.display()))
        .output()
        .expect("the browser starts");
    let page = String::from_utf8_lossy(&ran.stdout).into_owned();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let console: Vec<&str> = said.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:#?}");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let found = page
        .split_once("<pre id=\"selftest\" hidden=\"\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .map(|(json, _)| json.replace("&quot;", "\""))
        .unwrap_or_else(|| panic!("no answer: {page}\n{said}"));
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let wanted = serde_json::json!({
        "panels": 2, "drawn": [24, 24], "zoomed": true, "whole": true, "painted": true,
        "hover": "tile 0,0,0 (own)", "errors": [],
    });
    assert_eq!(found, wanted);
}

#[test]
fn a_picture_has_every_tile() {
    let picture = svg(&trace());
    assert_eq!(picture.matches("<title>").count(), 24);
    assert!(picture.contains("k&lt;1&gt;"));
    assert!(picture.contains("modelled time"));
}

#[test]
fn perfetto_gets_every_tile_block_and_decision() {
    let trace = trace();
    let events = perfetto(&[Run {
        name: "clc",
        trace: &trace,
    }]);
    let events = events["traceEvents"].as_array().expect("events");
    let count = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    assert_eq!((count("X"), count("i")), (24 + 8, 24));
    assert_eq!(count("M"), 4);
}

#[test]
fn the_table_tells_lost_tiles() {
    let mut trace = trace();
    let run = Run {
        name: "clc greedy",
        trace: &trace,
    };
    let good = table::runs(&[run], Dim3::linear_x(24));
    assert!(good.contains("yes"), "{good}");
    assert!(good.contains("times are modelled"), "{good}");
    trace.tiles.pop();
    let run = Run {
        name: "clc greedy",
        trace: &trace,
    };
    let bad = table::runs(&[run], Dim3::linear_x(24));
    assert!(
        bad.contains("NO: 1 tiles, such as 23,0,0 run 0 times"),
        "{bad}"
    );
}
