/* The page put together: panels, mouse, keys, search, theme, print. */

const panels = [];
let awaited = false;

/** Draws everything that is in view now. */
function drawNow() {
  awaited = false;
  drawAxis();
  drawMini();
  for (const panel of panels) {
    const box = panel.section.getBoundingClientRect();
    if (!view.print && (box.bottom < 0 || box.top > window.innerHeight)) continue;
    drawDevice(panel);
    if (panel.open) drawBody(panel);
  }
}

/** Draws before the next frame, once. */
function drawSoon() {
  if (!awaited) requestAnimationFrame(drawNow);
  awaited = true;
}

function setView(from, to) {
  const span = Math.min(longest, Math.max(longest / 1e7, to - from));
  view.from = Math.max(0, Math.min(longest - span, from));
  view.to = view.from + span;
  drawSoon();
}

/** Makes the span `factor` times as long, with the time at `middle` where it is. */
function zoom(factor, middle = (view.from + view.to) / 2) {
  const span = Math.min(longest, (view.to - view.from) * factor);
  const part = (middle - view.from) / (view.to - view.from);
  setView(middle - part * span, middle - part * span + span);
}

function setOpen(panel, open) {
  panel.open = open;
  panel.body.hidden = !open;
  panel.fold.textContent = open ? "\u25be " : "\u25b8 ";
  panel.heading.setAttribute("aria-expanded", open);
  drawSoon();
}

function chooseRun(number, show) {
  view.run = number;
  for (const panel of panels) panel.section.toggleAttribute("data-chosen", panel.run.number === number);
  for (const row of document.querySelectorAll("#summary tbody tr")) row.setAttribute("aria-selected", Number(row.dataset.run) === number);
  if (show) {
    const panel = panels.find((p) => p.run.number === number);
    setOpen(panel, true);
    const top = panel.section.getBoundingClientRect().top + window.scrollY - $("tools").offsetHeight - 4;
    window.scrollTo({ top });
  }
  drawSoon();
}

/** Chooses a tile by its index in a run, or none. */
function choose(number, index) {
  if (number === null) view.chosen = null;
  else {
    const { tiles } = runs[number];
    view.chosen = { run: number, index, tile: tiles.tile[index], tenant: tenantOf(tiles.kind[index]) };
  }
  showDetails();
  drawSoon();
}

/** From the chosen tile to the one before or after in its block. */
function neighbour(by) {
  if (!view.chosen) return;
  const run = runs[view.chosen.run], i = view.chosen.index;
  const mates = tilesOfBlock(run, view.chosen.tenant, run.tiles.block[i]);
  const next = mates[mates.indexOf(i) + by];
  if (next === undefined) return;
  choose(run.number, next);
  reveal(run, next);
}

/** Brings a tile into view, in time and on the page. */
function reveal(run, i) {
  const { start, end } = run.tiles;
  const took = Math.max(end[i] - start[i], longest / 1e6);
  if (start[i] < view.from || end[i] > view.to || took * scaleOf($("axis").clientWidth) < 8) {
    setView(start[i] - took * 12, end[i] + took * 12);
  }
  const panel = panels.find((p) => p.run === run);
  setOpen(panel, true);
  drawNow();
  const row = search(0, run.rowCount, (r) => run.tiles.first[r + 1] > i);
  const y = panel.body.getBoundingClientRect().top + placeOf(run, row).y;
  const top = $("tools").offsetHeight;
  if (y < top + 10 || y > window.innerHeight - 60) window.scrollBy({ top: y - (window.innerHeight + top) / 2 });
  drawNow();
}

/** Finds `12`, `3,4,0`, `block 7` or `SM 5` in the chosen run. */
function find(text) {
  const run = runs[view.run];
  if (!run || !text.trim()) return;
  const words = text.trim().toLowerCase();
  const { tile, block, kind } = run.tiles;
  let index = -1, what = "tile " + words;
  const number = words.match(/^(b|block|sm)\s*(\d+)$/);
  if (number && number[1] === "sm") {
    const row = run.sms.indexOf(Number(number[2]));
    index = row < 0 || run.tiles.first[row] === run.tiles.first[row + 1] ? -1 : run.tiles.first[row];
    what = "SM " + number[2];
  } else if (number) {
    index = tilesOfBlock(run, 0, Number(number[2]))[0] ?? -1;
    what = "block " + number[2];
  } else {
    const at = words.split(/[\s,]+/).map(Number);
    const [x, y = 0, z = 0] = at;
    const inside = at.every(Number.isInteger) && x < run.grid[0] && y < run.grid[1] && z < run.grid[2];
    const wanted = run.measured ? x + run.grid[0] * (y + run.grid[1] * z) : x;
    if (inside || !run.measured) index = tile.findIndex((t, i) => t === wanted && tenantOf(kind[i]) === 0);
  }
  $("found").textContent = index < 0 ? `There is no ${what} in ${run.name}.` : "";
  if (index < 0) return;
  choose(run.number, index);
  reveal(run, index);
}

/** What is under the mouse: a tile's index, or the row and time. */
function under(panel, event) {
  const box = panel.canvas.getBoundingClientRect();
  const { run } = panel;
  const ns = view.from + (event.clientX - box.left - LEFT) / scaleOf(box.width);
  const y = event.clientY - box.top + (panel.offset || 0), tall = lineHeight(run);
  let row = Math.floor(y / tall);
  if (!hasRows(run)) {
    const sm = run.smList[row];
    if (!sm) return { index: -1, row: -1, ns };
    row = sm.row + Math.min(sm.rows - 1, Math.floor((y % tall) / (tall / sm.rows)));
  }
  if (event.clientX < box.left + LEFT || row < 0 || row >= run.rowCount) return { index: -1, row: -1, ns };
  const [first, to] = visible(run.tiles, row, ns, ns);
  return { index: to > first && run.tiles.start[first] <= ns ? first : -1, row, ns };
}

const tip = $("tip");
function hover(panel, event) {
  const { index, row, ns } = under(panel, event);
  const lines = index >= 0 ? describe(panel.run, index) : describeIdle(panel.run, row, ns);
  tip.hidden = !lines || drag !== null;
  if (tip.hidden) return;
  tip.textContent = lines.join("\n");
  tip.style.left = Math.max(0, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
}

let drag = null;
/** Zoom at the mouse, drag to move, Shift and drag to zoom in: on a canvas with the time axis. */
function follow(canvas) {
  const at = (clientX) => {
    const box = canvas.getBoundingClientRect();
    return view.from + (clientX - box.left - LEFT) / scaleOf(box.width);
  };
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * (event.deltaMode === 1 ? 0.06 : 0.003)), at(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = (event.deltaX || event.deltaY) / scaleOf(canvas.clientWidth);
      setView(view.from + by, view.to + by);
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) drag = { x: event.clientX, from: view.from, to: view.to, range: event.shiftKey ? at(event.clientX) : null, canvas, at, moved: false };
  });
  canvas.addEventListener("dblclick", () => setView(0, longest));
}

window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
  if (!drag.moved || drag.range !== null) return;
  const by = (drag.x - event.clientX) / scaleOf(drag.canvas.clientWidth) * (drag.mini ? -drag.mini : 1);
  setView(drag.from + by, drag.to + by);
});
window.addEventListener("pointerup", (event) => {
  const { moved, range, at } = drag || {};
  if (drag && moved && range !== null && at) {
    const other = at(event.clientX);
    setView(Math.min(range, other), Math.max(range, other));
  }
  // The click that follows must know whether this was a drag.
  setTimeout(() => { drag = null; }, 0);
});

/** The window of the minimap: dragged it moves, a click elsewhere brings it there. */
function minimap() {
  const canvas = $("mini");
  canvas.addEventListener("pointerdown", (event) => {
    const box = canvas.getBoundingClientRect();
    const ns = (event.clientX - box.left - LEFT) / (box.width - LEFT) * longest;
    const half = (view.to - view.from) / 2;
    if (ns < view.from || ns > view.to) setView(ns - half, ns + half);
    drag = { x: event.clientX, from: view.from, to: view.to, range: null, canvas, mini: longest / (view.to - view.from), moved: false };
  });
}

function setTheme(theme) {
  view.theme = theme;
  const dark = theme === "dark" || (theme === "auto" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = "Theme: " + theme;
  readColours();
  legend();
  drawSoon();
}

function toggle(name, field) {
  view[field] = !view[field];
  $(name).setAttribute("aria-pressed", view[field]);
  if (field === "path" && view.path) tellPath();
  drawSoon();
}

/** What the critical path is made of, beside the buttons. */
function tellPath() {
  const { path, name } = runs[view.run];
  const share = (ns) => Math.round(ns / Math.max(1e-9, path.working + path.waiting + path.launching) * 100) + "%";
  $("found").textContent = `${name}: ${runs[view.run].onPath.size} tiles on the way to the end: ` +
    `${share(path.working)} work, ${share(path.waiting)} waiting, ${share(path.launching)} launching`;
}

/** Compares the chosen run with the fastest other one on its device. */
function compareChosen() {
  const run = runs[view.run];
  const other = DATA.ranked.find((number) => number !== view.run && runs[number].device === run.device);
  if (other === undefined) return;
  $("one").value = other;
  $("two").value = view.run;
  compare();
  $("compare").scrollIntoView({ block: "nearest" });
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const span = view.to - view.from, at = DATA.ranked.indexOf(view.run);
  const actions = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => setView(0, longest),
    ArrowLeft: () => (event.shiftKey ? neighbour(-1) : setView(view.from - span / 5, view.to - span / 5)),
    ArrowRight: () => (event.shiftKey ? neighbour(1) : setView(view.from + span / 5, view.to + span / 5)),
    "/": () => $("find").focus(), r: () => $("rows").click(), p: () => $("path").click(), c: compareChosen, t: () => $("theme").click(),
    j: () => chooseRun(DATA.ranked[Math.min(DATA.ranked.length - 1, at + 1)], true),
    k: () => chooseRun(DATA.ranked[Math.max(0, at - 1)], true),
    Enter: () => { const panel = panels.find((p) => p.run.number === view.run); if (panel) setOpen(panel, !panel.open); },
    Escape: () => { choose(null); tip.hidden = true; $("two").value = ""; compare(); },
    "?": () => $("help").showModal(),
  };
  if (event.key === "Enter" && event.target.matches("button, h2, a")) return;
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function addPanel(run, open) {
  const fold = make("span", {});
  const { figures } = run;
  const until = run.stopped ? " until it was stopped" : "";
  const text = `${duration(figures.makespan_ns)}${until}, tail ${duration(figures.tail_ns)}, ${Math.round(figures.busy_fraction * 100)}% busy, ` +
    (run.measured ? `${figures.tiles} tiles in ${run.ownBlocks} blocks, ${figures.stolen} taken over, ${figures.refused} refused, ${figures.declined} declined`
      : `${figures.blocks} blocks, tiles not measured`);
  const heading = make("h2", { tabIndex: 0 }, fold, `${run.name} on ${run.device} `, make("small", { textContent: text }));
  heading.setAttribute("role", "button");
  const device = make("canvas", { className: "device" }), canvas = make("canvas", {}), body = make("div", { className: "body" }, canvas);
  device.setAttribute("role", "img");
  device.setAttribute("aria-label", `How busy the GPU was under ${run.name}: ${text}`);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `What each multiprocessor did under ${run.name}`);
  const section = make("section", { className: "run" }, heading, ...(run.about ? [make("p", { textContent: run.about })] : []), device, body);
  const panel = { run, section, heading, fold, device, body, canvas, open, offset: 0 };
  panels.push(panel);
  $("runs").append(section);
  heading.addEventListener("click", () => { chooseRun(run.number); setOpen(panel, !panel.open); });
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); heading.click(); } });
  follow(device);
  follow(canvas);
  canvas.addEventListener("pointermove", (event) => hover(panel, event));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => {
    if (drag && drag.moved) return;
    chooseRun(run.number);
    const { index } = under(panel, event);
    if (index >= 0) choose(run.number, index); else choose(null);
  });
  setOpen(panel, open);
}

function start() {
  readColours();
  summary();
  // With many runs only the fastest and the slowest are open at first.
  const few = DATA.ranked.length <= 3;
  DATA.ranked.forEach((number, at) => addPanel(runs[number], few || at === 0 || at === DATA.ranked.length - 1));
  document.querySelector(".pair").hidden = runs.length < 2;
  for (const select of [$("one"), $("two")]) {
    select.append(make("option", { value: "", textContent: "\u2013" }), ...DATA.ranked.map((n) => make("option", { value: n, textContent: runs[n].name })));
    select.addEventListener("change", () => { compare(); drawSoon(); });
  }
  $("in").onclick = () => zoom(0.5);
  $("out").onclick = () => zoom(2);
  $("all").onclick = () => setView(0, longest);
  $("rows").onclick = () => toggle("rows", "tall");
  $("path").onclick = () => toggle("path", "path");
  $("keys").onclick = () => $("help").showModal();
  const themes = ["auto", "light", "dark"];
  $("theme").onclick = () => setTheme(themes[(themes.indexOf(view.theme) + 1) % 3]);
  $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") find(event.target.value); });
  follow($("axis"));
  minimap();
  document.addEventListener("keydown", key);
  window.addEventListener("resize", drawSoon);
  window.addEventListener("scroll", drawSoon, { passive: true });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(view.theme));
  window.addEventListener("beforeprint", () => { view.print = view.theme; setTheme("light"); drawNow(); });
  window.addEventListener("afterprint", () => { const theme = view.print; view.print = undefined; setTheme(theme); });
  setTheme("auto");
  chooseRun(view.run);
  drawNow();
}
start();
