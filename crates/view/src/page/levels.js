/* How busy each SM was, at several resolutions, computed when a run is first drawn. */

const FINEST = 4096;

/**
 * For each SM and bin the share of its rows' time that is in tiles of each kind, as 0 to 255.
 * `shares[level][kind]` is one array over all SMs; a level has half the bins of the one before.
 */
function levelsOf(run) {
  if (run.levels) return run.levels;
  const bin = longest / FINEST, sms = run.smList.length;
  const kinds = [...new Set(run.tiles.kind)].sort((a, b) => a - b);
  const finest = [...kinds, "resident"].map(() => new Float32Array(sms * FINEST));
  const add = (array, list, sm, index) => {
    const { start, end } = list, unit = bin * sm.rows;
    for (let row = sm.row; row < sm.row + sm.rows; row++) {
      for (let i = list.first[row]; i < list.first[row + 1]; i++) {
        const to = Math.min(FINEST - 1, Math.floor(end[i] / bin));
        const out = typeof array === "function" ? array(list.kind[i]) : array;
        for (let b = Math.floor(start[i] / bin); b <= to; b++) {
          const part = Math.min(end[i], (b + 1) * bin) - Math.max(start[i], b * bin);
          if (part > 0) out[index * FINEST + b] += part / unit;
        }
      }
    }
  };
  run.smList.forEach((sm, index) => {
    add((kind) => finest[kinds.indexOf(kind)], run.tiles, sm, index);
    add(finest[kinds.length], run.blocks, sm, index);
  });
  const levels = [{ bins: FINEST, shares: finest }];
  while (levels[levels.length - 1].bins > 64) {
    const { bins, shares } = levels[levels.length - 1];
    const half = shares.map((array) => {
      const out = new Float32Array(array.length / 2);
      for (let i = 0; i < out.length; i++) out[i] = (array[2 * i] + array[2 * i + 1]) / 2;
      return out;
    });
    levels.push({ bins: bins / 2, shares: half });
  }
  // The same for the device: the mean over its SMs, those that were never used too.
  const count = Math.max(run.sm_count, sms, 1);
  for (const level of levels) {
    level.device = level.shares.map((array) => {
      const out = new Float32Array(level.bins);
      for (let i = 0; i < array.length; i++) out[i % level.bins] += array[i] / count;
      return out;
    });
  }
  // What of the device's band is coloured, over the run: all kinds, without what only waits.
  let coloured = 0;
  for (const array of levels[0].device.slice(0, kinds.length)) for (const share of array) coloured += share;
  return (run.levels = { kinds, list: levels, working: coloured * bin / Math.max(1e-9, run.length) });
}

/** The level whose bins are about a pixel wide, for so many pixels in view. */
function levelFor(run, pixels, span) {
  const { list } = levelsOf(run);
  const wanted = pixels * longest / span;
  return list.find((level) => level.bins <= wanted) || list[list.length - 1];
}
