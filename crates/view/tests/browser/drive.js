/* Drives the page as a person would, through events, and writes down what came of it. */
const said = {};
const errors = [];
window.addEventListener("error", (event) => errors.push(event.message));
const span = () => view.to - view.from;
const panel = panels[0];
const type = (key, more) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));

said.story = $("story").textContent;
said.ranking = [...document.querySelectorAll("#summary tbody tr")].map((row) => row.cells[1].textContent);
said.panels = panels.length;

// A wheel alone scrolls; with Ctrl it zooms, and the time at the mouse stays.
panel.section.scrollIntoView();
drawNow();
const box = panel.canvas.getBoundingClientRect();
const middle = box.left + LEFT + (box.width - LEFT) / 2;
const wheel = (more) => {
  const event = new WheelEvent("wheel", { deltaY: -300, clientX: middle, clientY: box.top + 4, cancelable: true, bubbles: true, ...more });
  panel.canvas.dispatchEvent(event);
  return event.defaultPrevented;
};
said.plainWheel = [wheel({}), span() === longest];
const before = (view.from + view.to) / 2;
said.ctrlWheel = [wheel({ ctrlKey: true }), span() < longest, Math.abs((view.from + view.to) / 2 - before) < longest / 100];
$("all").click();
said.all = span() === longest;
$("in").click();
said.buttonIn = Math.abs(span() - longest / 2) < 1e-6 * longest;
$("out").click();

// Keys.
type("+");
const zoomed = span();
type("ArrowRight");
said.keys = [zoomed < longest, view.from > 0, span() === zoomed];
type("0");
type("j");
said.nextRun = view.run === DATA.ranked[Math.min(1, DATA.ranked.length - 1)];
type("k");
type("r");
said.rows = [view.tall, $("rows").getAttribute("aria-pressed")];
type("r");
type("p");
said.path = $("found").textContent;
type("p");

// Search.
const find = (text) => {
  $("find").value = text;
  $("find").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  return $("details").hidden ? $("found").textContent : $("details").querySelector("h2").textContent;
};
said.find = [find("9"), find("1,0,0"), find("block 2"), find("SM 3")];
type("Escape");
said.lost = find("4711");
find("0");
type("ArrowRight", { shiftKey: true });
said.neighbour = $("details").querySelector("h2").textContent;
said.details = [...$("details").querySelectorAll("p")].map((p) => p.textContent);
type("Escape");
said.closed = $("details").hidden;

// Hover and click on a tile, and hover where nothing works.
type("0");
panel.section.scrollIntoView();
window.scrollBy(0, -$("tools").offsetHeight);
drawNow();
const { run } = panel;
const point = (ns, row) => {
  const at = panel.canvas.getBoundingClientRect(), place = placeOf(run, row);
  return { clientX: at.left + toX(ns, at.width), clientY: at.top + place.y - panel.offset + place.tall / 2, bubbles: true };
};
const onTile = point((run.tiles.start[0] + run.tiles.end[0]) / 2, 0);
panel.canvas.dispatchEvent(new PointerEvent("pointermove", onTile));
said.hover = tip.hidden ? "" : tip.textContent.split("\n")[0];
panel.canvas.dispatchEvent(new MouseEvent("click", onTile));
said.click = $("details").hidden ? "" : $("details").querySelector("h2").textContent;
const idle = run.smList.find((sm) => sm.last < run.length);
if (idle) {
  panel.canvas.dispatchEvent(new PointerEvent("pointermove", point((idle.last + run.length) / 2, idle.row)));
  said.idle = tip.textContent.split("\n")[0];
}
type("Escape");

// Compare.
$("one").value = DATA.ranked[0];
$("two").value = DATA.ranked[DATA.ranked.length - 1];
$("two").dispatchEvent(new Event("change"));
said.compare = $("compare").hidden ? "" : $("compare").querySelector("p").textContent;
const sums = [...$("compare").querySelectorAll("tr")].map((row) => row.cells[0].textContent);
said.parts = sums;

// Themes change colours and nothing else.
$("theme").click();
const light = colours.bg;
$("theme").click();
said.themes = [light, colours.bg];

// Something is on every canvas that is open.
drawNow();
const ink = (canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 3; i < data.length; i += 4) if (data[i] > 0) count++;
  return count;
};
said.painted = [$("axis"), $("mini"), panel.device, panel.canvas].every((canvas) => ink(canvas) > 100);
said.drawn = panel.drawn;
said.ticks = ticks(1000).list.slice(0, 3).map((ns) => label(ns, ticks(1000).step));
said.legend = [...document.querySelectorAll("#legend span")].map((s) => s.textContent.split(":")[0]);
said.errors = errors;
document.body.append(Object.assign(document.createElement("pre"), { id: "driven", textContent: JSON.stringify(said) }));
