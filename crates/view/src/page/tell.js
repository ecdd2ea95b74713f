/* What the page says: about a tile, in the summary, in the comparison, in the legend. */

/** An element with text or children, the short way. */
function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const WHY = {
  own: "the launch gave its block this tile",
  stolen: "its block took it over from a block that had not been launched",
  ticket: "its block drew it from the counter in memory",
  static: "it was dealt to its block before the run",
};
const PARTS = {
  working: "a tile is at work",
  waiting: "a block is there, and no tile is at work: prologue, a request under way, the block's end",
  launching: "no block is there, and one will come",
  tail: "no block is there, and none will come",
  unused: "never had a block of this run",
  others: "another kernel holds it",
};

/** The tiles of a block in order of time, as indices. */
function tilesOfBlock(run, tenant, block) {
  const list = [];
  for (let i = 0; i < run.tiles.block.length; i++) {
    if (run.tiles.block[i] === block && tenantOf(run.tiles.kind[i]) === tenant) list.push(i);
  }
  return list.sort((a, b) => run.tiles.start[a] - run.tiles.start[b]);
}

/** The SM of a tile, by its index: the row whose range holds it. */
function smOf(run, i) {
  const row = search(0, run.rowCount, (r) => run.tiles.first[r + 1] > i);
  return run.sms[row];
}

/** What the policy decided that brought this tile, and what came after it, in sentences. */
function decided(run, i) {
  const kind = run.tiles.kind[i], block = run.tiles.block[i];
  const origin = DATA.origins[originOf(kind)];
  if (tenantOf(kind) > 0 || !origin) return [];
  const lines = ["Why here: " + WHY[origin[0]] + "."];
  const decisions = run.decisions.get(block) || [];
  const mates = tilesOfBlock(run, 0, block);
  const asked = mates.filter((m) => ["stolen", "ticket"].includes(DATA.origins[originOf(run.tiles.kind[m])][0]));
  const order = asked.indexOf(i);
  const grants = decisions.flatMap(([, what], at) => (what === "granted" ? [at] : []));
  const grant = order >= 0 ? grants[order] : -1;
  if (order >= 0 && grant !== undefined) {
    const request = decisions.slice(0, grant).reverse().find(([, what]) => what === "requested");
    if (request) lines.push(`The policy said "ask" at ${duration(request[0])}; granted at ${duration(decisions[grant][0])}, ` +
      `${duration(decisions[grant][0] - request[0])} later.`);
  }
  const isLast = mates[mates.length - 1] === i;
  const until = grants.find((at) => at > (grant === undefined ? -1 : grant));
  const after = decisions.slice((grant === undefined ? -1 : grant) + 1, isLast ? undefined : until);
  const declined = after.filter(([, what]) => what === "declined").length;
  if (declined) lines.push(`The policy said "do not ask" ${declined === 1 ? "once" : declined + " times"} (last at ${duration(after.filter(([, w]) => w === "declined").pop()[0])}).`);
  if (after.some(([, what]) => what === "overruled")) lines.push("The policy was overruled: a tile would have been lost.");
  const refused = after.find(([, what]) => what === "refused");
  if (refused) lines.push(`A request was refused at ${duration(refused[0])}: nothing was left to take, so the block leaves.`);
  else if (isLast && declined) lines.push("So the block leaves after it.");
  return lines;
}

/** All about a tile: lines of text. */
function describe(run, i) {
  const { start, end, kind, block, tile } = run.tiles;
  const origin = DATA.origins[originOf(kind[i])];
  const whose = run.tenants.length > 1 ? ` of ${run.tenants[tenantOf(kind[i])]}` : "";
  const head = origin ? `Tile ${tileName(run, tile[i])} (${origin[0]})${whose}` : `Block ${block[i]}${whose} (its tiles were not measured)`;
  return [
    head,
    `block ${block[i]} on SM ${smOf(run, i)}`,
    `${duration(start[i])} to ${duration(end[i])}: ${duration(end[i] - start[i])} (${run.clock}), ` +
      `${((end[i] - start[i]) / run.length * 100).toFixed(1)}% of the run`,
    ...decided(run, i),
    ...(tenantOf(kind[i]) === 0 && run.onPath.has(tile[i]) ? ["On the critical path: the end of the run waited for it."] : []),
  ];
}

/** What a place without a tile means. */
function describeIdle(run, row, ns) {
  const sm = run.smList.find((s) => row >= s.row && row < s.row + s.rows);
  if (!sm || ns < 0 || ns > run.length) return null;
  const [first, to] = visible(run.blocks, row, ns, ns);
  const state = to > first && run.blocks.start[first] <= ns ? "waiting" : ns >= sm.last ? "tail" : "launching";
  const block = state === "waiting" ? `, block ${run.blocks.block[first]}` : "";
  return [`SM ${sm.sm}${block}: ${state}`, PARTS[state], `at ${duration(ns)}`];
}

/** The same tile in the other runs, for the details. */
function elsewhere(run, i) {
  const tile = run.tiles.tile[i], tenant = tenantOf(run.tiles.kind[i]);
  return runs.filter((other) => other !== run && other.kernel === run.kernel && other.measured === run.measured).flatMap((other) => {
    const at = other.tiles.tile.findIndex((t, j) => t === tile && tenantOf(other.tiles.kind[j]) === tenant);
    if (at < 0) return [];
    const took = other.tiles.end[at] - other.tiles.start[at];
    return [`${other.name}: from ${duration(other.tiles.start[at])}, ${duration(took)} on SM ${smOf(other, at)}`];
  });
}

function showDetails() {
  const box = $("details");
  box.hidden = view.chosen === null;
  if (box.hidden) return;
  const run = runs[view.chosen.run], i = view.chosen.index;
  const [head, ...lines] = describe(run, i);
  const close = make("button", { className: "close", textContent: "Close", onclick: () => choose(null) });
  const step = (text, by) => make("button", { textContent: text, onclick: () => neighbour(by) });
  box.replaceChildren(close, make("h2", { textContent: head }), make("p", { textContent: run.name }),
    ...lines.map((line) => make("p", { textContent: line })),
    make("p", {}, step("Tile before", -1), " ", step("Tile after", 1), " in this block"));
  const others = elsewhere(run, i);
  if (others.length) {
    box.append(make("p", { textContent: "The same tile elsewhere:" }), ...others.slice(0, 8).map((line) => make("p", { textContent: line })));
  }
}

/** Small bars with a figure. */
function meter(share, text) {
  const bar = make("i", {});
  bar.style.width = Math.max(0, Math.min(100, share * 100)) + "%";
  return make("td", {}, make("span", { className: "meter" }, bar), text);
}

function summary() {
  const table = $("summary");
  const head = [["#", ""], ["run", ""], ["time", ""], ["tail", "wide"], ["busy", ""], ["tiles taken over", "wide"], ["most lost to", "wider"], ["others wait", "wider"]];
  table.append(make("thead", {}, make("tr", {}, ...head.map(([text, className]) => make("th", { textContent: text, className })))));
  const body = make("tbody", {});
  const devices = new Set(runs.map((run) => run.device));
  // Of this kernel alone: another one on the same GPU may go on for longer.
  const most = Math.max(1e-9, ...runs.map((run) => run.figures.makespan_ns));
  let rank = 0, device = null;
  for (const number of DATA.ranked) {
    const run = runs[number], { figures } = run;
    rank = run.device === device ? rank + 1 : 1;
    device = run.device;
    const { working, ...idle } = run.account;
    const [part, lost] = Object.entries(idle).reduce((a, b) => (b[1] > a[1] ? b : a));
    const wide = (cell, className = "wide") => Object.assign(cell, { className });
    const row = make("tr", { onclick: () => chooseRun(number, true) },
      make("td", { textContent: rank }),
      make("td", { className: "name", title: run.about }, devices.size > 1 && !run.name.includes(run.device) ? `${run.name} (${run.device})` : run.name,
        ...(run.stopped ? [make("span", { className: "stopped-word", textContent: " (stopped)", title: run.stopped })] : [])),
      meter(figures.makespan_ns / most, duration(figures.makespan_ns)),
      wide(meter(figures.tail_ns / most, duration(figures.tail_ns))),
      meter(figures.busy_fraction, Math.round(figures.busy_fraction * 100) + "%"),
      wide(run.measured ? meter(figures.stolen / Math.max(1, figures.tiles), `${figures.stolen} of ${figures.tiles}`)
        : make("td", { textContent: "tiles not measured" })),
      wide(meter(lost / most, `${part}, ${duration(lost)}`), "wider"),
      wide(meter(run.newcomer.typical / most, run.newcomer.typical > 0 ? duration(run.newcomer.typical) : "none"), "wider"));
    row.dataset.run = number;
    body.append(row);
  }
  table.append(body);
  const clocks = [...new Set(runs.map((run) => run.clock))];
  $("terms").textContent = `Times are ${clocks.join(" and ")}${clocks.includes("modelled") ? ": good for ranking, not a promise" : ""}. ` +
    "Busy: SM time with a tile at work.";
}

function legend() {
  const box = $("legend");
  const kinds = new Set(runs.flatMap((run) => [...new Set(run.tiles.kind)]));
  const entry = (colour, text) => {
    const square = make("b", {});
    square.style.background = colour;
    return make("span", {}, square, text);
  };
  const list = [];
  DATA.origins.forEach(([name, colour], origin) => { if (kinds.has(origin)) list.push(entry(colour, `${name}: ${WHY[name]}`)); });
  if (kinds.has(BLOCK)) list.push(entry(colours.block, "block: its tiles were not measured"));
  if ([...kinds].some((kind) => tenantOf(kind) > 0)) {
    const names = new Set(runs.flatMap((run) => run.tenants.slice(1)));
    list.push(entry(colours.guest, `${[...names].join(", ")}: another kernel on the same GPU`));
  }
  for (const name of ["waiting", "launching", "tail"]) list.push(entry(colours[name], `${name}: ${PARTS[name]}`));
  list.push(entry("transparent", "outline: the chosen tile, or the critical path"));
  list.push(make("span", { textContent: "The band on top is all block slots of the GPU; in the band of an SM a colour is the stronger, the more of its slots do this. An SM is busy while any of its slots works. The colours can be told apart by colour-blind eyes." }));
  box.replaceChildren(...list);
}

/** Where the time went from one run to another. */
function compare() {
  const box = $("compare"), one = runs[$("one").value], two = runs[$("two").value];
  box.hidden = !one || !two || one === two;
  if (box.hidden) return;
  const more = two.figures.makespan_ns - one.figures.makespan_ns;
  const parts = Object.keys(PARTS).map((name) => [name, one.account[name], two.account[name]]).filter(([, a, b]) => a > 0 || b > 0);
  const widest = Math.max(1e-9, ...parts.map(([, a, b]) => Math.abs(b - a)));
  const signed = (ns) => (ns < 0 ? "\u2212" : "+") + duration(Math.abs(ns));
  const change = (ns) => {
    const bar = make("i", { className: ns > 0 ? "more" : "less" });
    bar.style.width = Math.abs(ns) / widest * 50 + "%";
    return make("td", {}, make("span", { className: "change" }, bar));
  };
  const cells = (...texts) => texts.map((textContent) => make("td", { className: "number", textContent }));
  const rows = parts.map(([name, a, b]) => make("tr", { title: PARTS[name] }, make("th", { textContent: name }),
    ...cells(duration(a), duration(b), signed(b - a)), change(b - a)));
  const largest = parts.reduce((a, b) => (Math.abs(b[2] - b[1]) > Math.abs(a[2] - a[1]) ? b : a));
  const sentence = Math.abs(more) < 1 ? "Both take the same time." :
    `${two.name} takes ${duration(Math.abs(more))} ${more > 0 ? "longer" : "less"} than ${one.name}; ` +
    `the largest change is ${largest[0]} (${signed(largest[2] - largest[1])}): ${PARTS[largest[0]]}.`;
  box.replaceChildren(
    make("button", { textContent: "Close", style: "float: right", onclick: () => { $("two").value = ""; compare(); drawSoon(); } }),
    make("h2", { textContent: "Where did the time go?" }), make("p", { textContent: sentence }),
    make("table", {}, make("tr", {}, ...["an SM, on average", one.name, two.name, "change", ""].map((t) => make("th", { textContent: t }))), ...rows,
      make("tr", {}, make("th", { textContent: "sum: the run" }), ...cells(duration(one.figures.makespan_ns), duration(two.figures.makespan_ns), signed(more)))),
    make("p", { textContent: grownTiles(one, two) }));
}

/** The tiles that take the most longer in the second run. */
function grownTiles(one, two) {
  if (!one.measured || !two.measured) return "";
  const took = new Map();
  const own = (run, visit) => run.tiles.tile.forEach((tile, i) => { if (tenantOf(run.tiles.kind[i]) === 0) visit(tile, run.tiles.end[i] - run.tiles.start[i]); });
  own(one, (tile, ns) => took.set(tile, ns));
  const grown = [];
  own(two, (tile, ns) => { if (took.has(tile)) grown.push([tile, ns - took.get(tile)]); });
  grown.sort((a, b) => b[1] - a[1]);
  const list = grown.slice(0, 4).filter(([, ns]) => ns > 0).map(([tile, ns]) => `${tileName(two, tile)} (+${duration(ns)})`);
  return list.length ? `Tiles that take the most longer: ${list.join(", ")}.` : "No tile takes longer.";
}
