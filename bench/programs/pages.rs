//! Pages to look at, and how long the browser takes for a frame of the largest.
//!
//! `cargo run -p heist-bench --bin pages -- FOLDER` writes a small comparison, a shared GPU
//! and 200,000 tiles into the folder, and draws the last one sixty times at several zooms where
//! there is a browser.

#[path = "../../crates/view/tests/browser/chromium.rs"]
mod chromium;
#[path = "../../crates/view/tests/browser/traces.rs"]
mod traces;

use heist_view::{Run, html, svg};

const FRAMES: &str = "
    const said = {};
    const panel = panels[0];
    panel.section.scrollIntoView();
    const frames = (name, step) => {
      const times = [];
      for (let i = 0; i < 60; i++) {
        step(i);
        const began = performance.now();
        drawNow();
        // Reading a pixel waits until the drawing is done.
        panel.canvas.getContext('2d').getImageData(0, 0, 1, 1);
        times.push(performance.now() - began);
      }
      times.sort((a, b) => a - b);
      said[name] = [times[0], times[30], times[56]].map((ms) => Number(ms.toFixed(1)));
    };
    frames('everything', () => setView(0, longest));
    frames('a tenth, moving', (i) => setView(longest * i / 100, longest * i / 100 + longest / 10));
    frames('a hundredth, moving', (i) => setView(longest * i / 100, longest * i / 100 + longest / 100));
    frames('zooming', (i) => setView(longest / 2, longest / 2 + longest / 2 * 0.85 ** i));
    document.body.append(Object.assign(document.createElement('pre'), { id: 'driven', textContent: JSON.stringify(said) }));";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let folder = std::path::Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let (even, uneven) = (traces::small(), traces::uneven());
    let small = [Run::new("static", &uneven), Run::new("clc greedy", &even)];
    std::fs::write(folder.join("small.html"), html("Two schedules", &small))?;
    std::fs::write(
        folder.join("small.svg"),
        svg(&Run::new(&even.kernel, &even)),
    )?;
    let (batch, guest) = (traces::large(12_000), traces::guest());
    let beside = [("guest", &guest)];
    let shared = [Run::new("ticket beside a guest", &batch).beside(&beside)];
    std::fs::write(folder.join("shared.html"), html("A shared GPU", &shared))?;
    std::fs::write(
        folder.join("large.svg"),
        svg(&Run::new(&batch.kernel, &batch)),
    )?;
    let large = traces::large(200_000);
    let page = html("200,000 tiles", &[Run::new("ticket", &large)]);
    println!("200,000 tiles: {:.1} MB", page.len() as f64 / 1e6);
    std::fs::write(folder.join("large.html"), &page)?;
    match chromium::find() {
        Some(browser) => println!(
            "a frame, ms: best, median, 95th of 100: {}",
            chromium::drive(&browser, &page, FRAMES, 1400)?
        ),
        None => println!("no Chromium found (set HEIST_BROWSER to one): no frame times"),
    }
    Ok(())
}
