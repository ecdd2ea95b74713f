//! A browser without a window that opens a page and says what is in it after its scripts.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The first browser there is.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("HEIST_BROWSER") {
        return Some(path.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// What a script that is appended to a page writes into the element `driven`, as JSON, in a window
/// of so many pixels across (500 at least). Fails where the page says anything on its console.
pub(crate) fn drive(
    browser: &Path,
    page: &str,
    script: &str,
    across: u32,
) -> Result<serde_json::Value, String> {
    let script = format!("<script>\n{{\n{script}\n}}\n</script>\n</body>");
    let page = page.replace("</body>", &script);
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = format!("heist-view-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    let file = folder.join("timeline.html");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    std::fs::write(&file, page).map_err(|error| error.to_string())?;
    let ran = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--window-size={across},900"))
        // What the page says on its console goes to the error output.
        .arg("--enable-logging=stderr")
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .output();
    let _ = std::fs::remove_dir_all(&folder);
    let ran = ran.map_err(|error| format!("{}: {error}", browser.display()))?;
    let page = String::from_utf8_lossy(&ran.stdout).into_owned();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    // Reading pixels back often draws a hint on speed, and only the tests do it.
    let said_by_page = |line: &&str| line.contains("CONSOLE") && !line.contains("readback");
    let console: Vec<&str> = said.lines().filter(said_by_page).collect();
    if !console.is_empty() {
        return Err(console.join("\n"));
    }
    let found = page
        .split_once("<pre id=\"driven\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .map(|(json, _)| {
            json.replace("&quot;", "\"")
                .replace("&gt;", ">")
                .replace("&lt;", "<")
        })
        .ok_or_else(|| format!("no answer: {said}"))?;
    serde_json::from_str(&found.replace("&amp;", "&")).map_err(|error| error.to_string())
}
