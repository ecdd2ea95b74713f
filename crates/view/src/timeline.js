"use strict";
const errors = [];
window.addEventListener("error", (event) => errors.push(String(event.message)));

const LEFT = 56, AXIS = 18;
const longest = Math.max(1, ...DATA.runs.map((run) => run.length));
const view = { from: 0, to: longest };
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

function nanoseconds(ns) {
  if (ns < 1e3) return ns.toFixed(0) + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(2) + " us";
  return (ns / 1e6).toFixed(3) + " ms";
}

const panels = DATA.runs.map((run) => {
  const section = document.createElement("section");
  const title = document.createElement("h2");
  const small = document.createElement("small");
  title.textContent = run.name + " on " + run.device;
  small.textContent = run.figures;
  title.append(small);
  const canvas = document.createElement("canvas");
  section.append(title, canvas);
  document.getElementById("runs").append(section);
  const lanes = Math.max(1, run.sms.length);
  const row = Math.max(2, Math.min(14, Math.floor(520 / lanes)));
  // Bars of a lane in order of time, so that a search finds the one below the mouse.
  const byLane = Array.from({ length: lanes }, () => []);
  for (const tile of run.tiles) byLane[tile[0]].push(tile);
  for (const lane of byLane) lane.sort((a, b) => a[1] - b[1]);
  const decisions = new Map();
  for (const [block, at, kind] of run.decisions) {
    if (!decisions.has(block)) decisions.set(block, []);
    decisions.get(block).push([at, kind]);
  }
  return { run, canvas, lanes, row, byLane, decisions };
});

function draw(panel) {
  const { run, canvas, lanes, row } = panel;
  const width = canvas.clientWidth || 1000;
  const height = lanes * row + AXIS;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const scale = (width - LEFT) / (view.to - view.from);
  const x = (ns) => LEFT + (ns - view.from) * scale;
  pen.font = "9px system-ui, sans-serif";
  let drawn = 0;
  for (let lane = 0; lane < run.sms.length; lane++) {
    const first = lane === 0 || run.sms[lane - 1] !== run.sms[lane];
    if (run.sms[lane] % 2 === 0) {
      pen.fillStyle = style("--row");
      pen.fillRect(LEFT, lane * row, width - LEFT, row);
    }
    if (first && (row >= 9 || run.sms[lane] % 10 === 0)) {
      pen.fillStyle = style("--dim");
      pen.fillText("SM " + run.sms[lane], 4, lane * row + Math.min(row, 9));
    }
  }
  pen.fillStyle = style("--dim");
  for (const [lane, start, end] of run.blocks) {
    const from = Math.max(LEFT, x(start)), to = Math.min(width, x(end));
    if (to > from) pen.fillRect(from, lane * row + row / 2, to - from, 1);
  }
  for (const [lane, start, end, origin] of run.tiles) {
    const from = Math.max(LEFT, x(start)), to = Math.min(width, x(end));
    if (to <= LEFT || from >= width) continue;
    drawn++;
    pen.fillStyle = DATA.origins[origin][1];
    const wide = to - from;
    pen.fillRect(from, lane * row, Math.max(0.5, wide > 3 ? wide - 0.7 : wide), Math.max(1, row - 1));
  }
  pen.fillStyle = style("--fg");
  for (let step = 0; step <= 6; step++) {
    const ns = view.from + (view.to - view.from) * step / 6;
    pen.textAlign = step === 0 ? "left" : step === 6 ? "right" : "center";
    pen.fillText(nanoseconds(ns), x(ns), lanes * row + 12);
  }
  pen.textAlign = "left";
  panel.drawn = drawn;
}

function drawAll() { panels.forEach(draw); }

function timeAt(panel, clientX) {
  const box = panel.canvas.getBoundingClientRect();
  const part = (clientX - box.left - LEFT) / Math.max(1, box.width - LEFT);
  return view.from + part * (view.to - view.from);
}

function tileAt(panel, clientX, clientY) {
  const box = panel.canvas.getBoundingClientRect();
  const lane = panel.byLane[Math.floor((clientY - box.top) / panel.row)];
  if (!lane) return null;
  const ns = timeAt(panel, clientX);
  let low = 0, high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle][2] < ns) low = middle + 1; else high = middle;
  }
  return low < lane.length && lane[low][1] <= ns ? lane[low] : null;
}

function describe(panel, tile) {
  const [lane, start, end, origin, block, x, y, z] = tile;
  const lines = [
    `tile ${x},${y},${z} (${DATA.origins[origin][0]})`,
    `block ${block} on SM ${panel.run.sms[lane]}`,
    `${nanoseconds(start)} to ${nanoseconds(end)}: ${nanoseconds(end - start)} (${panel.run.clock})`,
  ];
  const near = (panel.decisions.get(block) || []).filter(([at]) => at >= start - 1 && at <= end + 1);
  for (const [at, kind] of near.slice(0, 6)) lines.push(`${kind} at ${nanoseconds(at)}`);
  return lines.join("\n");
}

const tip = document.getElementById("tip");
let dragging = null;
for (const panel of panels) {
  const { canvas } = panel;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const middle = timeAt(panel, event.clientX);
    const factor = Math.exp(event.deltaY * 0.002);
    const span = Math.min(longest, Math.max(longest / 1e6, (view.to - view.from) * factor));
    const part = (middle - view.from) / (view.to - view.from);
    view.from = Math.max(0, Math.min(longest - span, middle - part * span));
    view.to = view.from + span;
    drawAll();
  }, { passive: false });
  canvas.addEventListener("mousedown", (event) => { dragging = { x: event.clientX, from: view.from }; });
  canvas.addEventListener("dblclick", () => { view.from = 0; view.to = longest; drawAll(); });
  canvas.addEventListener("mousemove", (event) => {
    const tile = dragging ? null : tileAt(panel, event.clientX, event.clientY);
    tip.hidden = !tile;
    if (!tile) return;
    tip.textContent = describe(panel, tile);
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 260) + "px";
    tip.style.top = (event.clientY + 14) + "px";
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
}
window.addEventListener("mousemove", (event) => {
  if (!dragging) return;
  const span = view.to - view.from;
  const width = (panels[0] ? panels[0].canvas.clientWidth : 1000) - LEFT;
  const moved = (dragging.x - event.clientX) / width * span;
  view.from = Math.max(0, Math.min(longest - span, dragging.from + moved));
  view.to = view.from + span;
  drawAll();
});
window.addEventListener("mouseup", () => { dragging = null; });
window.addEventListener("resize", drawAll);

const legend = document.getElementById("legend");
for (const [name, colour] of DATA.origins) {
  const box = document.createElement("b");
  box.style.background = colour;
  legend.append(box, name);
}
drawAll();

/** Zooms and hovers through the same events as a person, and says what came of it. */
function selftest() {
  const panel = panels[0];
  const box = panel.canvas.getBoundingClientRect();
  const before = view.to - view.from;
  const middle = box.left + LEFT + (box.width - LEFT) / 2;
  panel.canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -400, clientX: middle, clientY: box.top + 2, cancelable: true }));
  const zoomed = (view.to - view.from) < before;
  panel.canvas.dispatchEvent(new MouseEvent("dblclick"));
  const whole = view.from === 0 && view.to === longest;
  const [lane, start, end] = panel.run.tiles[0];
  const clientX = box.left + LEFT + ((start + end) / 2) / longest * (box.width - LEFT);
  panel.canvas.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY: box.top + lane * panel.row + panel.row / 2 }));
  const pixels = panel.canvas.getContext("2d").getImageData(0, 0, panel.canvas.width, panel.canvas.height).data;
  let painted = 0;
  for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 0) painted++;
  return {
    panels: panels.length,
    drawn: panels.map((p) => p.drawn),
    zoomed, whole, painted: painted > 100,
    hover: tip.hidden ? "" : tip.textContent.split("\n")[0],
    errors,
  };
}
if (location.hash === "#selftest") {
  document.getElementById("selftest").textContent = JSON.stringify(selftest());
}
