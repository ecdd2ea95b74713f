/* The rows of a run: a bar for each tile where bars can be seen, a band for each SM elsewhere. */

const MOST_BARS = 20000;
/** Up to so many block slots every slot has a row of its own, if nobody asks for all of them. */
const FEW_ROWS = 140;
const hasRows = (run) => view.tall || run.rowCount <= FEW_ROWS;

/** The height of what has a line of its own, in CSS pixels: a block slot, or an SM. */
function lineHeight(run) {
  if (view.tall) return 14;
  const lines = hasRows(run) ? run.rowCount : run.smList.length;
  const slots = hasRows(run) ? 1 : run.mostSlots;
  return Math.max(3, Math.min(14, Math.floor(420 / lines)), Math.min(2 * slots, 8));
}

const bodyHeight = (run) => (hasRows(run) ? run.rowCount : run.smList.length) * lineHeight(run);

/** Where the row of a block slot is, in the whole of the rows. */
function placeOf(run, row) {
  const tall = lineHeight(run);
  if (hasRows(run)) return { y: row * tall, tall };
  const at = run.smOf[row], sm = run.smList[at], part = tall / sm.rows;
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
  const paper = paperOf(panel, pen, width, ratio);
  if (panel.bars) bars(panel, paper); else bands(panel, paper);
  pen.putImageData(paper.image, paper.left, 0);
  if (panel.bars) names(panel, pen, width, height);
  grid(pen, width, height);
  mark(panel, pen, width, height);
  labels(panel, pen, height);
}

/**
 * The pixels right of the labels, kept from frame to frame. A canvas takes tens of thousands of
 * rectangles a frame slowly, and one picture fast.
 */
function paperOf(panel, pen, width, ratio) {
  const left = Math.round(LEFT * ratio), wide = Math.max(1, pen.canvas.width - left), high = pen.canvas.height;
  const { paper } = panel;
  if (paper && paper.wide === wide && paper.high === high && paper.ratio === ratio) {
    paper.ink.fill(0);
    return paper;
  }
  const image = pen.createImageData(wide, high);
  return (panel.paper = { image, ink: new Uint32Array(image.data.buffer), left, wide, high, ratio });
}

/** A row from `y` on, in CSS pixels: what `paint` does to its first line of pixels is done to all. */
function paintRow(paper, y, tall, paint) {
  const { ink, wide, high, ratio } = paper;
  const from = Math.round(y * ratio), to = Math.max(from + 1, Math.round((y + tall) * ratio));
  const first = Math.max(0, from), end = Math.min(high, to);
  if (first >= end) return;
  const at = first * wide;
  paint(at);
  for (let line = first + 1; line < end; line++) ink.copyWithin(line * wide, at, at + wide);
}

function bars(panel, paper) {
  const { run, offset } = panel, { ink, wide, ratio } = paper;
  const scale = wide / (view.to - view.from);
  const clip = (ns) => Math.max(0, Math.min(wide, Math.round((ns - view.from) * scale)));
  const { launching, tail, waiting } = Object.fromEntries(Object.entries(colours.rgb).map(([name, c]) => [name, packed(c)]));
  const { kinds } = levelsOf(run), inks = new Map(kinds.map((kind) => [kind, packed(rgb(colourOf(kind)))]));
  const gap = Math.round(ratio), end = clip(run.length);
  let drawn = 0;
  for (const sm of run.smList) {
    const last = clip(sm.last);
    for (let row = sm.row; row < sm.row + sm.rows; row++) {
      const { y, tall } = placeOf(run, row);
      paintRow(paper, y - offset, tall - (tall > 5 ? 1 : 0), (at) => {
        ink.fill(launching, at, at + last);
        ink.fill(tail, at + last, at + Math.max(last, end));
        let [i, to] = visible(run.blocks, row, view.from, view.to);
        for (; i < to; i++) {
          const from = clip(run.blocks.start[i]), stop = clip(run.blocks.end[i]);
          ink.fill(waiting, at + from, at + Math.max(from + 1, stop - from > 2 * gap ? stop - gap : stop));
        }
        [i, to] = visible(run.tiles, row, view.from, view.to);
        drawn += to - i;
        for (; i < to; i++) {
          const from = clip(run.tiles.start[i]), stop = clip(run.tiles.end[i]);
          const until = Math.min(wide, Math.max(from + 1, stop - from > 6 * gap ? stop - gap : stop));
          const colour = inks.get(run.tiles.kind[i]);
          for (let x = from; x < until; x++) ink[at + x] = colour;
        }
      });
    }
  }
  panel.drawn = drawn;
}

/** The names of the tiles whose bars are large enough. */
function names(panel, pen, width, height) {
  const { run, offset } = panel;
  const clip = (ns) => Math.max(LEFT, Math.min(width, toX(ns, width)));
  pen.fillStyle = "#000";
  pen.textAlign = "left";
  for (let row = 0; row < run.rowCount; row++) {
    const place = placeOf(run, row), y = place.y - offset;
    if (place.tall < 12 || y + place.tall < 0 || y > height) continue;
    const [first, to] = visible(run.tiles, row, view.from, view.to);
    for (let i = first; i < to; i++) {
      const from = clip(run.tiles.start[i]);
      if (clip(run.tiles.end[i]) - from > 44) pen.fillText(shortName(run, run.tiles.tile[i]), from + 3, y + 10);
    }
  }
}

/** The colour of every bin of every SM at a level, worked out when it is first drawn in these colours. */
function inksOf(run, level) {
  const key = colours.bg + colours.tail;
  if (level.inks && level.key === key) return level.inks;
  const { kinds } = levelsOf(run), { bins, shares } = level;
  const inks = kinds.map((kind) => rgb(colourOf(kind))), resident = shares[inks.length];
  const { waiting, launching, tail, bg } = colours.rgb;
  const out = new Uint32Array(run.smList.length * bins), bin = longest / bins;
  run.smList.forEach((sm, index) => {
    for (let at = index * bins, b = 0; b < bins; at++, b++) {
      const ns = b * bin, idle = ns > run.length ? bg : ns >= sm.last ? tail : launching;
      let sum = 0, red = 0, green = 0, blue = 0;
      for (let k = 0; k < inks.length; k++) {
        const share = shares[k][at], ink = inks[k];
        sum += share;
        red += ink[0] * share; green += ink[1] * share; blue += ink[2] * share;
      }
      const grey = Math.max(0, Math.min(1, resident[at]) - sum), none = Math.max(0, 1 - sum) - grey;
      red += waiting[0] * grey + idle[0] * none;
      green += waiting[1] * grey + idle[1] * none;
      blue += waiting[2] * grey + idle[2] * none;
      out[at] = packed([Math.min(255, red), Math.min(255, green), Math.min(255, blue)]);
    }
  });
  Object.assign(level, { inks: out, key });
  return out;
}

/** A band for each SM: the stronger a colour, the more of the SM's block slots work on such tiles. */
function bands(panel, paper) {
  const { run, offset } = panel, { ink, wide } = paper;
  const level = levelFor(run, wide, view.to - view.from), inks = inksOf(run, level);
  const each = (view.to - view.from) / wide, bin = longest / level.bins;
  const bins = Int32Array.from({ length: wide }, (_, x) => Math.min(level.bins - 1, Math.floor((view.from + x * each) / bin)));
  run.smList.forEach((sm, index) => {
    const tall = lineHeight(run) * (hasRows(run) ? sm.rows : 1), base = index * level.bins;
    paintRow(paper, placeOf(run, sm.row).y - offset, tall - (tall > 4 ? 1 : 0), (at) => {
      for (let x = 0; x < wide; x++) ink[at + x] = inks[base + bins[x]];
    });
  });
  panel.drawn = 0;
}

/** Whether a tile has an outline: on the critical path, or chosen. */
function isMarked(run, i) {
  if (view.path && tenantOf(run.tiles.kind[i]) === 0 && run.onPath.has(run.tiles.tile[i])) return true;
  const chosen = view.chosen;
  return chosen !== null && tenantOf(run.tiles.kind[i]) === chosen.tenant && run.tiles.tile[i] === chosen.tile;
}

/** Outlines of the tiles that have one. */
function mark(panel, pen, width, height) {
  const { run, offset } = panel;
  if (!view.path && !view.chosen) return;
  pen.strokeStyle = colours.mark;
  for (let row = 0; row < run.rowCount; row++) {
    const place = placeOf(run, row), y = place.y - offset, tall = Math.max(3, place.tall - (place.tall > 5 ? 1 : 0));
    if (y < -20 || y > height) continue;
    const [first, to] = visible(run.tiles, row, view.from, view.to);
    for (let i = first; i < to; i++) {
      if (!isMarked(run, i)) continue;
      const x = Math.max(LEFT, toX(run.tiles.start[i], width)), wide = Math.min(width, toX(run.tiles.end[i], width)) - x;
      pen.lineWidth = view.chosen && run.tiles.tile[i] === view.chosen.tile ? 3 : 1.6;
      pen.strokeRect(x, y + 0.5, Math.max(2, wide), Math.max(2, tall - 1));
    }
  }
}

function labels(panel, pen, height) {
  const { run } = panel;
  let free = -100;
  pen.textAlign = "left";
  pen.fillStyle = colours.soft;
  for (const sm of run.smList) {
    const { y } = placeOf(run, sm.row);
    const at = y - panel.offset;
    if (at < -14 || at + 11 > height || at < free) continue;
    pen.fillText("SM " + sm.sm, 4, at + 10);
    free = at + 13;
  }
}
