/* The data, decoded: columns of numbers, and what is derived from them once. */

const $ = (id) => document.getElementById(id);

/** Numbers of 32 bits, little-endian, in base64. */
function numbers(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Uint32Array(bytes.buffer);
}

/** Spans sorted by row and time; those of row `r` are from `first[r]` to `first[r + 1]`. */
function spans(columns, tick) {
  const times = (text) => Float64Array.from(numbers(text), (ticks) => ticks * tick / 1000);
  return {
    first: numbers(columns.first), start: times(columns.start), end: times(columns.end),
    block: numbers(columns.block), kind: numbers(columns.kind), tile: numbers(columns.tile),
  };
}

/** The first index in [low, high) at which `is` holds; it must be false, then true. */
function search(low, high, is) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** The spans of a row that touch [from, to]: a range of indices. */
function visible(list, row, from, to) {
  const low = list.first[row], high = list.first[row + 1];
  const first = search(low, high, (i) => list.end[i] >= from);
  return [first, search(first, high, (i) => list.start[i] > to)];
}

const originOf = (kind) => kind & 255;
const tenantOf = (kind) => kind >> 8;
const BLOCK = DATA.origins.length;

/** Rows of each SM, and when its last block ended: after that it is in the tail. */
function smsOf(run) {
  const list = [];
  run.sms.forEach((sm, row) => {
    const last = list[list.length - 1];
    if (last && last.sm === sm) last.rows++; else list.push({ sm, row, rows: 1, last: 0 });
  });
  for (const sm of list) {
    for (let row = sm.row; row < sm.row + sm.rows; row++) {
      const end = run.blocks.first[row + 1];
      if (end > run.blocks.first[row]) sm.last = Math.max(sm.last, run.blocks.end[end - 1]);
    }
  }
  return list;
}

/** What a block's decisions were, in order of time. */
function decisionsOf(decided, tick) {
  const block = numbers(decided.block), at = numbers(decided.at), kind = numbers(decided.kind);
  const map = new Map();
  for (let i = 0; i < block.length; i++) {
    if (!map.has(block[i])) map.set(block[i], []);
    map.get(block[i]).push([at[i] * tick / 1000, DATA.decisions[kind[i]]]);
  }
  for (const list of map.values()) list.sort((a, b) => a[0] - b[0]);
  return map;
}

const runs = DATA.runs.map((data, number) => {
  const run = { ...data, number };
  run.tiles = spans(data.tiles, data.tick);
  run.blocks = spans(data.blocks, data.tick);
  run.ownBlocks = run.blocks.kind.reduce((count, kind) => count + (tenantOf(kind) === 0), 0);
  run.decisions = decisionsOf(data.decided, data.tick);
  run.onPath = new Set(numbers(data.path.tiles));
  run.smList = smsOf(run);
  run.rowCount = Math.max(1, run.sms.length);
  run.mostSlots = Math.max(1, ...run.smList.map((sm) => sm.rows));
  run.smOf = run.smList.flatMap((sm, index) => Array(sm.rows).fill(index));
  return run;
});

const longest = Math.max(1, ...runs.map((run) => run.length));

/** A time as people read it. */
function duration(ns) {
  const [unit, size] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["us", 1e3] : ["ns", 1];
  const value = ns / size;
  return (size === 1 ? value.toFixed(0) : value >= 100 ? value.toFixed(1) : value.toFixed(2)) + " " + unit;
}

/** The coordinates of a tile by its number. */
function tileName(run, tile) {
  const [x, y] = run.grid;
  return [tile % x, Math.floor(tile / x) % y, Math.floor(tile / (x * y))].join(",");
}

/** The same in a bar: as many coordinates as there are directions with more than one tile. */
function shortName(run, tile) {
  const directions = run.grid[2] > 1 ? 3 : run.grid[1] > 1 ? 2 : 1;
  return tileName(run, tile).split(",").slice(0, directions).join(",");
}
