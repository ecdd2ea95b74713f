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
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.max(1, Math.round(tall * ratio));
  const pen = canvas.getContext("2d");
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

/** How much of the device works, over time, stacked by kind; what is resident besides in grey. */
function area(pen, run, from, to, left, width, height) {
  const { kinds } = levelsOf(run);
  const level = levelFor(run, width - left, to - from);
  const bin = longest / level.bins;
  for (let x = left; x < width; x++) {
    const at = Math.floor((from + (x - left) / (width - left) * (to - from)) / bin);
    if (at < 0 || at >= level.bins || at * bin > run.length) continue;
    let y = height, sum = 0;
    kinds.forEach((kind, k) => {
      const tall = Math.min(1, level.device[k][at]) * height;
      sum += level.device[k][at];
      pen.fillStyle = colourOf(kind);
      pen.fillRect(x, y - tall, 1, tall);
      y -= tall;
    });
    const idle = Math.max(0, Math.min(1, level.device[kinds.length][at]) - sum) * height;
    pen.fillStyle = colours.waiting;
    pen.fillRect(x, y - idle, 1, idle);
  }
}

function drawMini() {
  const { pen, width, height } = prepare($("mini"));
  const run = runs[view.run];
  if (!run) return;
  pen.fillStyle = colours.tail;
  pen.fillRect(LEFT, 0, (width - LEFT) * run.length / longest, height);
  area(pen, run, 0, longest, LEFT, width, height);
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
  const { pen, width, height } = prepare(panel.device);
  const { run } = panel;
  pen.fillStyle = colours.tail;
  const end = Math.min(width, toX(run.length, width));
  if (end > LEFT) pen.fillRect(LEFT, 0, end - LEFT, height);
  area(pen, run, view.from, view.to, LEFT, width, height);
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

/** A band for each SM: the stronger a colour, the more of the SM's block slots work on such tiles. */
function bands(panel, pen, width, height, ratio) {
  const { run, offset } = panel;
  const { kinds } = levelsOf(run);
  const pixels = Math.max(1, Math.round((width - LEFT) * ratio));
  const level = levelFor(run, pixels, view.to - view.from);
  const bin = longest / level.bins;
  const image = pen.createImageData(pixels, Math.max(1, Math.round(height * ratio)));
  const out = new Uint32Array(image.data.buffer);
  const inks = kinds.map((kind) => rgb(colourOf(kind)));
  const { waiting, launching, tail, bg } = colours.rgb;
  const line = new Uint32Array(pixels);
  run.smList.forEach((sm, index) => {
    const { y } = placeOf(run, sm.row), tall = lineHeight(run) * (hasRows(run) ? sm.rows : 1);
    const top = Math.round((y - offset) * ratio), bottom = Math.round((y - offset + tall) * ratio) - (tall > 4 ? 1 : 0);
    if (bottom < 0 || top > image.height) return;
    for (let x = 0; x < pixels; x++) {
      const ns = view.from + x / pixels * (view.to - view.from);
      const at = index * level.bins + Math.min(level.bins - 1, Math.floor(ns / bin));
      let idle = ns > run.length ? bg : ns >= sm.last ? tail : launching;
      let sum = 0, r = 0, g = 0, b = 0;
      for (let k = 0; k < inks.length; k++) {
        const share = level.shares[k][at];
        sum += share;
        r += inks[k][0] * share; g += inks[k][1] * share; b += inks[k][2] * share;
      }
      const rest = Math.max(0, 1 - sum), grey = Math.max(0, Math.min(1, level.shares[inks.length][at]) - sum);
      r += waiting[0] * grey + idle[0] * (rest - grey);
      g += waiting[1] * grey + idle[1] * (rest - grey);
      b += waiting[2] * grey + idle[2] * (rest - grey);
      line[x] = 0xff000000 | Math.min(255, b) << 16 | Math.min(255, g) << 8 | Math.min(255, r);
    }
    for (let row = Math.max(0, top); row < Math.min(image.height, bottom); row++) out.set(line, row * pixels);
  });
  pen.putImageData(image, Math.round(LEFT * ratio), 0);
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
