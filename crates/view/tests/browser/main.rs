//! The drawings: the page in a browser, the picture, the table, what Perfetto gets.

mod chromium;
mod traces;

use heist_launch::Dim3;
use heist_view::{Run, Stopped, html, perfetto, svg, table};
use serde_json::json;
use std::path::PathBuf;

/// The browser, or a line that says what is skipped.
fn browser() -> Option<PathBuf> {
    let found = chromium::find();
    if found.is_none() {
        println!("skipped: no Chromium found (set HEIST_BROWSER to one)");
    }
    found
}

#[test]
fn the_page_needs_nothing_from_outside_and_holds_its_data() {
    let trace = traces::small();
    let runs = [
        Run::new("clc </script> greedy", &trace),
        Run::new("static", &trace),
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
fn a_person_can_zoom_search_compare_and_use_the_keys() {
    let Some(browser) = browser() else {
        return;
    };
    let (even, uneven) = (traces::small(), traces::uneven());
    let runs = [
        Run::new("static", &uneven),
        Run::new("clc greedy", &even).about("asks whenever it can"),
    ];
    let page = html("two runs", &runs);
    let found = chromium::drive(&browser, &page, include_str!("drive.js"), 1400);
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    let wanted = json!({
        "story": "On sim:b200 clc greedy is the fastest: 19.00 us, 2.00 times as fast as static, the \
            slowest. Of the 19.00 us between them 14.25 us are lost to the tail, when some \
            multiprocessors have nothing left to do.",
        "ranking": ["clc greedy", "static"],
        "panels": 2,
        "plainWheel": [false, true],
        "ctrlWheel": [true, true, true],
        "all": true,
        "buttonIn": true,
        "keys": [true, true, true],
        "nextRun": true,
        "rows": [true, "true"],
        "path": "clc greedy: 6 tiles on the way to the end: 79% work, 16% waiting, 5% launching",
        "find": ["Tile 9,0,0 (stolen)", "Tile 1,0,0 (own)", "Tile 2,0,0 (own)", "Tile 3,0,0 (own)"],
        "lost": "There is no tile 4711 in clc greedy.",
        "neighbour": "Tile 8,0,0 (stolen)",
        "details": [
            "clc greedy",
            "block 0 on SM 0",
            "3.00 us to 5.50 us: 2.50 us (modelled), 13.2% of the run",
            "Why here: its block took it over from a block that had not been launched.",
            "The policy said \"ask\" at 100 ns; granted at 900 ns, 800 ns later.",
            "Tile before Tile after in this block",
            "The same tile elsewhere:",
            "static: from 3.00 us, 2.50 us on SM 0",
        ],
        "closed": true,
        "hover": "Tile 0,0,0 (own)",
        "click": "Tile 0,0,0 (own)",
        "compare": "static takes 19.00 us longer than clc greedy; the largest change is tail \
            (+14.25 us): no block is there, and none will come.",
        "parts": ["an SM, on average", "working", "waiting", "launching", "tail", "sum: the run"],
        "themes": ["#ffffff", "#16181c"],
        "painted": true,
        "drawn": 24,
        "ticks": ["0 us", "5 us", "10 us"],
        "legend": ["own", "stolen", "waiting", "launching", "tail", "outline",
            "The band on top is all block slots of the GPU; in the band of an SM a colour is the stronger, \
             the more of its slots do this. An SM is busy while any of its slots works. The colours can \
             be told apart by colour-blind eyes."],
        "errors": [],
    });
    for (name, value) in wanted.as_object().expect("an object") {
        assert_eq!(&found[name], value, "{name}");
    }
}

/// Blocks that a stop found at work have left tiles and no span of their own. In a narrow window, in
/// which nothing is cut off.
#[test]
fn a_stopped_run_says_so_and_draws_the_blocks_that_were_at_work() {
    let Some(browser) = browser() else {
        return;
    };
    let (whole, mut cut) = (traces::small(), traces::small());
    cut.blocks.truncate(6);
    cut.tiles
        .retain(|tile| tile.tile.x != 22 && tile.tile.x != 23);
    // Another kernel that ends later makes no run longer.
    let mut guest = traces::guest();
    guest.blocks.drain(..24);
    guest.blocks.truncate(1);
    let beside = [("guest", &guest)];
    let stopped = Stopped {
        why: "X002, the kernel was stopped after 5 milliseconds",
        tiles: Some(24),
    };
    let runs = [
        Run::new("cut", &cut).stopped(Some(stopped)).beside(&beside),
        Run::new("whole", &whole),
    ];
    let script = "
        const cut = panels[1];
        const said = { story: $('story').textContent, rows: [...$('summary').tBodies[0].rows].map((row) => row.cells[1].textContent),
            bars: [...document.querySelectorAll('#summary td:nth-child(3) i')].map((bar) => bar.style.width),
            heading: cut.heading.textContent, lanes: [...cut.run.tiles.first],
            cutOff: Math.max(0, document.documentElement.scrollWidth - window.innerWidth) };
        document.body.append(Object.assign(document.createElement('pre'), { id: 'driven', textContent: JSON.stringify(said) }));";
    let found = chromium::drive(&browser, &html("stopped", &runs), script, 500);
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    let wanted = json!({
        "story": "cut was stopped before its end: X002, the kernel was stopped after 5 milliseconds. \
            22 of 24 tiles had ended by then, and all figures are of these alone. whole takes 19.00 us \
            on sim:b200: multiprocessors work 79% of that time; what costs most besides is blocks that \
            wait between tiles (16%).",
        "rows": ["whole", "cut (stopped)"],
        "heading": "\u{25be} cut on sim:b200 19.00 us until it was stopped, tail 3.00 us, 72% busy, 22 tiles in 8 blocks, \
            14 taken over, 8 refused, 0 declined",
        "bars": ["100%", "100%"],
        "lanes": [0, 7, 13, 18, 23],
        "cutOff": 0,
    });
    assert_eq!(found, wanted);
}

/// Bands of multiprocessors where tiles are too many to see, bars when zoomed in, and both
/// kernels of a shared GPU.
#[test]
fn two_hundred_thousand_tiles_and_two_kernels_are_drawn() {
    let Some(browser) = browser() else {
        return;
    };
    let (large, guest) = (traces::large(200_000), traces::guest());
    let beside = [("guest", &guest)];
    let runs = [Run::new("ticket", &large).beside(&beside)];
    let script = "
        const panel = panels[0];
        panel.section.scrollIntoView();
        drawNow();
        const bands = [panel.bars, panel.drawn];
        setView(longest / 2, longest / 2 + 3000);
        drawNow();
        const bars = [panel.bars, panel.drawn > 264, panel.drawn < 20000];
        // A tile of a row in its colour, and behind it the block that waits for the next.
        const { run, canvas } = panel, row = 20, { start, end, kind } = run.tiles;
        const shown = (from, to) => {
            const { y, tall } = placeOf(run, row), ratio = canvas.width / canvas.clientWidth;
            const x = toX((from + to) / 2, canvas.clientWidth) * ratio;
            const pen = canvas.getContext('2d');
            return packed([...pen.getImageData(Math.floor(x), Math.floor((y - panel.offset + tall / 2) * ratio), 1, 1).data]);
        };
        const i = visible(run.tiles, row, view.from, view.to)[0] + 1;
        const painted = [
            shown(start[i], end[i]) === packed(rgb(colourOf(kind[i]))),
            shown(end[i], start[i + 1]) === packed(colours.rgb.waiting),
        ];
        // How long a frame takes, over all zooms.
        const frames = [];
        for (let i = 0; i < 20; i++) {
            setView(longest / 2, longest / 2 + longest / 2 * 0.7 ** i);
            const began = performance.now();
            drawNow();
            canvas.getContext('2d').getImageData(0, 0, 1, 1);
            frames.push(performance.now() - began);
        }
        frames.sort((a, b) => a - b);
        find('123,7');
        const told = $('details').querySelector('h2').textContent;
        const tenants = [...new Set(runs[0].tiles.kind)].map(tenantOf).sort();
        const said = { frames: [frames[0], frames[10], frames[19]], bands, bars, painted, told, short: shortName(runs[0], 4), pair: document.querySelector('.pair').hidden, tenants: [...new Set(tenants)], others: runs[0].account.others > 0,
            legend: $('legend').textContent.includes('guest: another kernel on the same GPU') };
        document.body.append(Object.assign(document.createElement('pre'), { id: 'driven', textContent: JSON.stringify(said) }));";
    let found = chromium::drive(&browser, &html("large", &runs), script, 1400);
    let mut found = found.unwrap_or_else(|error| panic!("{error}"));
    // A busy machine takes longer, so the times are printed and not judged.
    let frames = found.as_object_mut().and_then(|said| said.remove("frames"));
    let frames: Vec<f64> = serde_json::from_value(frames.expect("times")).expect("numbers");
    println!("a frame of 200,000 tiles, ms: best, median, worst of 20: {frames:.1?}");
    let wanted = json!({
        "bands": [false, 0], "bars": [true, true, true], "painted": [true, true], "told": "Tile 123,7,0 (ticket) of large",
        "short": "4,0", "pair": true,
        "tenants": [0, 1], "others": false, "legend": true,
    });
    assert_eq!(found, wanted);
}

#[test]
fn a_picture_has_every_tile_of_a_small_run_and_few_rows_of_a_large_one() {
    let small = traces::small();
    let picture = svg(&Run::new("small", &small));
    assert_eq!(picture.matches("<title>").count(), 24);
    assert!(picture.contains("k&lt;1&gt;"));
    assert!(picture.contains("modelled time"));
    let large = traces::large(5000);
    let picture = svg(&Run::new("large", &large));
    assert!(
        picture.contains("8 of 132 SMs shown"),
        "{}",
        &picture[..2000]
    );
}

/// As the page does: what stopped it, how far it came, and that its time is no whole run's.
#[test]
fn a_picture_and_perfetto_s_file_say_that_a_run_was_stopped() {
    let trace = traces::small();
    let whole = Run::new("cut", &trace);
    let stopped = Stopped {
        why: "X002, the kernel was stopped after 5 milliseconds",
        tiles: Some(40),
    };
    let cut = whole.stopped(Some(stopped));
    let said = "cut was stopped before its end: X002, the kernel was stopped after 5 milliseconds. \
                24 of 40 tiles had ended by then, and all figures are of these alone.";
    let picture = svg(&cut);
    // A line for each sentence: one alone would leave the picture.
    for sentence in said.split_inclusive(". ") {
        let line = format!(">{}</text>", sentence.trim_end());
        assert!(picture.contains(&line), "{picture}");
    }
    assert!(picture.contains("until it was stopped</text>"), "{picture}");
    assert!(!svg(&whole).contains("stopped"));
    let stops = |run: Run<'_>| {
        let all = perfetto(&[run]);
        let events = all["traceEvents"].as_array().expect("events").iter();
        let stops = events.filter(|event| event["name"] == "cut was stopped");
        stops
            .map(|event| (event["args"]["why"].clone(), event["ts"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(stops(cut), [(json!(said), json!(19.0))]);
    assert_eq!(stops(whole), []);
}

#[test]
fn perfetto_gets_every_tile_block_and_decision() {
    let trace = traces::small();
    let events = perfetto(&[Run::new("clc", &trace)]);
    let events = events["traceEvents"].as_array().expect("events");
    let count = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    assert_eq!((count("X"), count("i")), (24 + 8, 48));
    assert_eq!(count("M"), 4);
}

#[test]
fn the_table_tells_lost_tiles() {
    let mut trace = traces::small();
    let good = table::runs(&[Run::new("clc greedy", &trace)], Dim3::linear_x(24));
    assert!(good.contains("yes"), "{good}");
    assert!(good.contains("times are modelled"), "{good}");
    trace.tiles.pop();
    let bad = table::runs(&[Run::new("clc greedy", &trace)], Dim3::linear_x(24));
    assert!(
        bad.contains("NO: 1 tiles, such as 23,0,0 run 0 times"),
        "{bad}"
    );
}
