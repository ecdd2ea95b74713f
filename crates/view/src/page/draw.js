/* Drawing: only what is in view, in device pixels. */

const LEFT = 62;
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
    const text = duration(run.length) + (run.tenants.length > 1 ? " with others" : "");
    const fits = end + pen.measureText(text).width + 8 < width;
    pen.textAlign = fits ? "left" : "right";
    // It may stand on any colour: a rim of the page's own keeps it readable.
    const at = end + (fits ? 4 : -4);
    pen.strokeStyle = colours.bg;
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.strokeText(text, at, 12);
    pen.fillText(text, at, 12);
  }
  pen.fillStyle = colours.soft;
  pen.textAlign = "left";
  // The share of the block slots that is coloured; an SM is busy while any of its slots works.
  pen.fillText("slots at", 4, 12);
  pen.fillText("work " + Math.round(levelsOf(run).working * 100) + "%", 4, 26);
}
