/* Drawing: only what is in view, in device pixels. */

const LEFT = 62;
const MOST_BARS = 20000;
const view = { from: 0, to: longest, tall: false, path: false, chosen: null, run: DATA.ranked[0] || 0 };
let colours = {};

/** Colours by name, from the style sheet, as text and as numbers. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["fg", "bg", "soft", "line", "waiting", "launching", "tail", "unused", "guest", "block", "mark", "accent"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
  colours.rgb = Object.fromEntries(Object.entries(colours).filter(([, c]) => typeof c === "string").map(([n, c]) => [n, rgb(c)]));
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** The colour of a kind: by origin, or by whose kernel it is. */
function colourOf(kind) {
  if (tenantOf(kind) > 0) return colours.guest;
  const origin = DATA.origins[originOf(kind)];
  return origin ? origin[1] : colours.block;
}

/** A canvas made as large as it is shown, with a pen in CSS pixels. */
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 1000;
  if (height !== undefined) canvas.style.height = height + "px";
  const tall = height === undefined ? canvas.clientHeight || 20 : height;
  const wide = Math.round(width * ratio), high = Math.max(1, Math.round(tall * ratio));
  const pen = canvas.getContext("2d");
  // Another size means other memory; the same one is only wiped.
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  else pen.setTransform(1, 0, 0, 1, 0, 0), pen.clearRect(0, 0, wide, high);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height: tall, ratio };
}

const scaleOf = (width) => (width - LEFT) / (view.to - view.from);
const toX = (ns, width) => LEFT + (ns - view.from) * scaleOf(width);

/** Round numbers of nanoseconds at a good distance. */
function ticks(width) {
  const rough = (view.to - view.from) / Math.max(2, (width - LEFT) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const list = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) list.push(at);
  return { step, list };
}

/** A tick's label: as many digits as the step needs, in the unit of the longest time in view. */
function label(ns, step) {
  const [unit, size] = view.to >= 1e9 ? ["s", 1e9] : view.to >= 1e6 ? ["ms", 1e6] : view.to >= 1e3 ? ["us", 1e3] : ["ns", 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return (ns / size).toFixed(digits) + " " + unit;
}

function drawAxis() {
  const { pen, width, height } = prepare($("axis"));
  pen.fillStyle = colours.fg;
  pen.strokeStyle = colours.soft;
  const { step, list } = ticks(width);
  pen.textAlign = "center";
  for (const at of list) {
    const x = toX(at, width);
    pen.fillRect(Math.round(x), height - 5, 1, 5);
    pen.textAlign = x < LEFT + 30 ? "left" : x > width - 30 ? "right" : "center";
    pen.fillText(label(at, step), x, height - 8);
  }
}

/** Lines at the ticks, through a drawing. */
function grid(pen, width, height) {
  pen.fillStyle = colours.line;
  pen.globalAlpha = 0.45;
  for (const at of ticks(width).list) pen.fillRect(Math.round(toX(at, width)), 0, 1, height);
  pen.globalAlpha = 1;
}

/** A colour as one number, as a picture has it. */
const packed = ([r, g, b]) => (0xff000000 | b << 16 | g << 8 | r) >>> 0;

/** How much of the device works, over time, stacked by kind; what is resident besides in grey: a picture. */
function area(pen, run, from, to, width, height, ratio) {
  const { kinds } = levelsOf(run);
  const pixels = Math.max(1, Math.round((width - LEFT) * ratio)), tall = Math.max(1, Math.round(height * ratio));
  const level = levelFor(run, pixels, to - from), bin = longest / level.bins;
  const image = pen.createImageData(pixels, tall), out = new Uint32Array(image.data.buffer);
  const inks = [...kinds.map((kind) => packed(rgb(colourOf(kind)))), packed(colours.rgb.waiting)];
  const rest = packed(colours.rgb.tail), after = packed(colours.rgb.bg);
  for (let x = 0; x < pixels; x++) {
    const ns = from + x / pixels * (to - from), at = Math.min(level.bins - 1, Math.floor(ns / bin));
    let y = tall, sum = 0;
    for (let k = 0; k < inks.length && ns <= run.length; k++) {
      const share = k < kinds.length ? level.device[k][at] : Math.max(0, level.device[k][at] - sum);
      sum += share;
      const top = Math.max(0, Math.round(tall * (1 - Math.min(1, sum))));
      while (y > top) out[--y * pixels + x] = inks[k];
    }
    const fill = ns <= run.length ? rest : after;
    while (y > 0) out[--y * pixels + x] = fill;
  }
  return image;
}

/** The picture of the whole, kept: it changes with the run and the colours alone. */
const mini = {};

function drawMini() {
  const { pen, width, height, ratio } = prepare($("mini"));
  const run = runs[view.run];
  if (!run) return;
  const key = [run.number, width, height, ratio, view.theme, colours.bg].join();
  if (mini.key !== key) Object.assign(mini, { key, image: area(pen, run, 0, longest, width, height, ratio) });
  pen.putImageData(mini.image, Math.round(LEFT * ratio), 0);
  const x = (ns) => LEFT + ns / longest * (width - LEFT);
  pen.fillStyle = colours.bg;
  pen.globalAlpha = 0.65;
  pen.fillRect(LEFT, 0, x(view.from) - LEFT, height);
  pen.fillRect(x(view.to), 0, width - x(view.to), height);
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 2;
  pen.strokeRect(x(view.from) + 1, 1, Math.max(3, x(view.to) - x(view.from)) - 2, height - 2);
  pen.fillStyle = colours.soft;
  pen.fillText("whole", 4, height / 2 + 4);
}

function drawDevice(panel) {
  const { pen, width, height, ratio } = prepare(panel.device);
  const { run } = panel;
  const end = Math.min(width, toX(run.length, width));
  pen.putImageData(area(pen, run, view.from, view.to, width, height, ratio), Math.round(LEFT * ratio), 0);
  grid(pen, width, height);
  if (end > LEFT && end < width) {
    pen.fillStyle = colours.mark;
    pen.fillRect(end, 0, 1, height);
    pen.textAlign = end > width - 80 ? "right" : "left";
    pen.fillText(duration(run.length), end + (end > width - 80 ? -4 : 4), 12);
  }
  pen.fillStyle = colours.soft;
  pen.textAlign = "left";
  pen.fillText("busy", 4, 12);
  pen.fillText(Math.round(run.figures.busy_fraction * 100) + "%", 4, 26);
}

/** Up to so many block slots every slot has a row of its own, if nobody asks for all of them. */
const FEW_ROWS = 140;
const hasRows = (run) => view.tall || run.rowCount <= FEW_ROWS;

/** The height of what has a line of its own, in CSS pixels: a block slot, or an SM. */
function lineHeight(run) {
  if (view.tall) return 14;
  const lines = hasRows(run) ? run.rowCount : run.smList.length;
  const slots = hasRows(run) ? 1 : Math.max(...run.smList.map((sm) => sm.rows));
  return Math.max(3, Math.min(14, Math.floor(420 / lines)), Math.min(2 * slots, 8));
}

const bodyHeight = (run) => (hasRows(run) ? run.rowCount : run.smList.length) * lineHeight(run);

/** Where the row of a block slot is, in the whole of the rows. */
function placeOf(run, row) {
  const tall = lineHeight(run);
  if (hasRows(run)) return { y: row * tall, tall };
  const at = search(0, run.smList.length, (i) => run.smList[i].row > row) - 1;
  const sm = run.smList[at], part = tall / sm.rows;
  return { y: at * tall + (row - sm.row) * part, tall: part };
}

/** Whether bars are drawn one by one, or a band for each SM: bars where they can be seen. */
function isBars(run) {
  if (placeOf(run, 0).tall < 1) return false;
  let count = 0;
  for (let row = 0; row < run.rowCount && count <= MOST_BARS; row++) {
    const [first, last] = visible(run.tiles, row, view.from, view.to);
    count += last - first;
  }
  return count <= MOST_BARS;
}

/** Draws the part of a run's rows that is on the screen. */
function drawBody(panel) {
  const { run } = panel;
  const total = bodyHeight(run);
  panel.body.style.height = total + "px";
  const top = $("tools").offsetHeight;
  const screen = view.print ? total : Math.min(total, Math.max(40, window.innerHeight - top));
  panel.canvas.style.top = top + "px";
  const box = panel.body.getBoundingClientRect();
  if (!view.print && (box.bottom < top || box.top > window.innerHeight)) return;
  const { pen, width, height, ratio } = prepare(panel.canvas, screen);
  panel.offset = Math.max(0, Math.min(total - screen, top - box.top));
  panel.bars = isBars(run);
  if (panel.bars) bars(panel, pen, width, height); else bands(panel, pen, width, height, ratio);
  grid(pen, width, height);
}

function labels(panel, pen, height) {
  const { run } = panel;
  let free = -100;
  pen.textAlign = "left";
  pen.fillStyle = colours.soft;
  for (const sm of run.smList) {
    const { y } = placeOf(run, sm.row);
    const at = y - panel.offset;
    if (at < -14 || at > height || at < free) continue;
    pen.fillText("SM " + sm.sm, 4, at + 10);
    free = at + 13;
  }
}

function bars(panel, pen, width, height) {
  const { run, offset } = panel;
  let drawn = 0;
  const clip = (ns) => Math.max(LEFT, Math.min(width, toX(ns, width)));
  const marked = [];
  for (const sm of run.smList) {
    const last = clip(sm.last), end = clip(run.length);
    for (let row = sm.row; row < sm.row + sm.rows; row++) {
      const place = placeOf(run, row), y = place.y - offset;
      if (y + place.tall < 0 || y > height) continue;
      const tall = Math.max(0.6, place.tall - (place.tall > 5 ? 1 : 0));
      pen.fillStyle = colours.launching;
      pen.fillRect(LEFT, y, last - LEFT, tall);
      pen.fillStyle = colours.tail;
      pen.fillRect(last, y, end - last, tall);
      pen.fillStyle = colours.waiting;
      let [first, to] = visible(run.blocks, row, view.from, view.to);
      for (let i = first; i < to; i++) {
        const from = clip(run.blocks.start[i]);
        pen.fillRect(from, y, Math.max(0.5, clip(run.blocks.end[i]) - from - 0.5), tall);
      }
      [first, to] = visible(run.tiles, row, view.from, view.to);
      for (let i = first; i < to; i++) {
        const from = clip(run.tiles.start[i]), wide = clip(run.tiles.end[i]) - from;
        pen.fillStyle = colourOf(run.tiles.kind[i]);
        pen.fillRect(from, y, Math.max(0.5, wide > 6 ? wide - 1 : wide), tall);
        drawn++;
        if (wide > 44 && tall >= 11) {
          pen.fillStyle = "#000";
          pen.fillText(tileName(run, run.tiles.tile[i]).replace(/(,0)+$/, ""), from + 3, y + 10);
        }
        if (isMarked(run, i)) marked.push([from, y, wide, tall, i]);
      }
    }
  }
  mark(pen, run, marked);
  labels(panel, pen, height);
  panel.drawn = drawn;
}

/** Whether a tile has an outline: on the critical path, chosen, or of the chosen one's block. */
function isMarked(run, i) {
  if (view.path && tenantOf(run.tiles.kind[i]) === 0 && run.onPath.has(run.tiles.tile[i])) return true;
  const chosen = view.chosen;
  return chosen !== null && tenantOf(run.tiles.kind[i]) === chosen.tenant && run.tiles.tile[i] === chosen.tile;
}

function mark(pen, run, marked) {
  for (const [x, y, wide, tall, i] of marked) {
    const isChosen = view.chosen && run.tiles.tile[i] === view.chosen.tile;
    pen.strokeStyle = colours.mark;
    pen.lineWidth = isChosen ? 3 : 1.6;
    pen.strokeRect(x, y + 0.5, Math.max(2, wide), Math.max(2, tall - 1));
  }
}

let bandCanvas = null;
/** A band for each SM: the stronger a colour, the more of the SM's block slots work on such tiles. */
function bands(panel, pen, width, height, ratio) {
  const { run, offset } = panel;
  const { kinds } = levelsOf(run);
  const pixels = Math.max(1, Math.round((width - LEFT) * ratio));
  const level = levelFor(run, pixels, view.to - view.from);
  const bin = longest / level.bins;
  // One line of pixels for each SM, which the canvas makes as tall as its band.
  const count = Math.max(1, run.smList.length), image = pen.createImageData(pixels, count);
  const out = new Uint32Array(image.data.buffer);
  const inks = kinds.map((kind) => rgb(colourOf(kind)));
  const { waiting, launching, tail, bg } = colours.rgb;
  const each = (view.to - view.from) / pixels;
  const bins = Int32Array.from({ length: pixels }, (_, x) => Math.min(level.bins - 1, Math.floor((view.from + x * each) / bin)));
  const { shares } = level, resident = shares[inks.length];
  const pixelOf = (ns) => (ns - view.from) / each, end = pixelOf(run.length);
  run.smList.forEach((sm, index) => {
    const base = index * level.bins, last = pixelOf(sm.last);
    for (let x = 0; x < pixels; x++) {
      const at = base + bins[x], idle = x > end ? bg : x >= last ? tail : launching;
      let sum = 0, r = 0, g = 0, b = 0;
      for (let k = 0; k < inks.length; k++) {
        const share = shares[k][at], ink = inks[k];
        sum += share;
        r += ink[0] * share; g += ink[1] * share; b += ink[2] * share;
      }
      const rest = Math.max(0, 1 - sum), grey = Math.max(0, Math.min(1, resident[at]) - sum), none = rest - grey;
      r += waiting[0] * grey + idle[0] * none;
      g += waiting[1] * grey + idle[1] * none;
      b += waiting[2] * grey + idle[2] * none;
      out[index * pixels + x] = 0xff000000 | Math.min(255, b) << 16 | Math.min(255, g) << 8 | Math.min(255, r);
    }
  });
  if (!bandCanvas) bandCanvas = document.createElement("canvas");
  Object.assign(bandCanvas, { width: pixels, height: count });
  bandCanvas.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  run.smList.forEach((sm, index) => {
    const y = placeOf(run, sm.row).y - offset, tall = lineHeight(run) * (hasRows(run) ? sm.rows : 1);
    if (y + tall > 0 && y < height) pen.drawImage(bandCanvas, 0, index, pixels, 1, LEFT, y, width - LEFT, tall - (tall > 4 ? 1 : 0));
  });
  const marked = [];
  if (view.path || view.chosen) {
    for (let row = 0; row < run.rowCount; row++) {
      const place = placeOf(run, row), y = place.y - offset;
      if (y < -20 || y > height) continue;
      const [first, to] = visible(run.tiles, row, view.from, view.to);
      for (let i = first; i < to; i++) {
        if (!isMarked(run, i)) continue;
        const x = Math.max(LEFT, toX(run.tiles.start[i], width));
        marked.push([x, y, Math.min(width, toX(run.tiles.end[i], width)) - x, Math.max(3, place.tall), i]);
      }
    }
  }
  mark(pen, run, marked);
  labels(panel, pen, height);
  panel.drawn = 0;
}
