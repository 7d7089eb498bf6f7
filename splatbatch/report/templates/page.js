"use strict";
// Values under the cursor, zoom by dragging (double click: all again), sliders, sorting, 3D. Nothing here fetches.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

const label = (value, span, along) =>
  along === "step" ? (value < 1e3 || span < 5e3 ? value.toFixed(0) : `${+(value / 1e3).toPrecision(6)}k`)
    : span < 120 ? `${+value.toFixed(span < 8 ? 1 : 0)} s`
      : span < 7200 ? `${+(value / 60).toFixed(span < 480 ? 1 : 0)} min` : `${+(value / 3600).toFixed(1)} h`;

// round places on the x axis, as curves.py has them
const TIMES_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
function roundTicks(from, to, along) {
  const rough = Math.max((to - from) / 6, along === "step" ? 1 : 0), power = 10 ** Math.floor(Math.log10(rough));
  const step = along !== "step" && rough >= 1 && TIMES_S.find(one => one >= rough) || power * [1, 2, 5, 10].find(one => power * one >= rough * (1 - 1e-9));
  const ticks = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to * (1 + 1e-9) && ticks.length < 12; at++) ticks.push(at * step);
  return ticks;
}

function relabel(root, from, to, along) {
  const group = root.querySelector(".x-ticks"), { left, width, y } = group.dataset;
  group.replaceChildren(...roundTicks(from, to, along).map(value => {
    const share = (value - from) / (to - from), text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    const anchor = share < 0.02 ? "start" : share > 0.94 ? "end" : "middle";
    const x = width ? +left + share * width : `${100 * share}%`;
    for (const [name, one] of Object.entries({ class: "tick x", "text-anchor": anchor, x, y })) text.setAttribute(name, one);
    text.textContent = label(value, to - from, along);
    return text;
  }));
}

// drag over `root` selects a share of what it shows; `show(from, to)` draws that range
function zoomable(root, plot, full, show) {
  let shown = [0, full], pressed = null;
  const at = event => {
    const box = plot.getBoundingClientRect();
    return shown[0] + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (shown[1] - shown[0]);
  };
  const turn = range => { shown = range; show(...range); };
  root.addEventListener("pointerdown", event => { pressed = event.button ? null : { x: event.clientX, at: at(event) }; });
  root.addEventListener("pointerup", event => {
    if (pressed && Math.abs(event.clientX - pressed.x) > 8) turn([pressed.at, at(event)].sort((a, b) => a - b));
    pressed = null;
  });
  root.addEventListener("dblclick", () => turn([0, full]));
  root.addEventListener("dragstart", event => event.preventDefault());
  return { at, range: () => shown };
}

for (const frame of all(".timeline")) {
  const outer = frame.querySelector(":scope > svg"), plot = outer.querySelector(".plot"), span = +frame.dataset.span;
  let dragged = 0;
  zoomable(frame, outer, span, (from, to) => {
    dragged = Date.now();
    plot.setAttribute("width", `${100 * span / (to - from)}%`);
    plot.setAttribute("x", `${-100 * from / (to - from)}%`);
    relabel(outer, from, to, "s");
  });
  frame.addEventListener("click", event => { if (Date.now() - dragged < 300) event.preventDefault(); }, true);
}

for (const chart of all(".chart")) {
  const plot = chart.querySelector(".plot"), line = chart.querySelector(".latest"), along = chart.dataset.along;
  const xs = line.getAttribute("points").split(" ").map(parseFloat), ys = line.dataset.values.split(" ");
  const now = chart.querySelector(".now"), last = now.textContent, cursor = chart.querySelector(".cursor"), said = chart.getAttribute("aria-label");
  const zoom = zoomable(chart, plot, +chart.dataset.x1, (from, to) => {
    plot.setAttribute("viewBox", `${from} -3 ${to - from} 106`);
    relabel(chart, from, to, along);
  });
  let at = xs.length - 1;
  const read = nearest => {
    at = nearest;
    cursor.setAttribute("x1", xs[nearest]);
    cursor.setAttribute("x2", xs[nearest]);
    cursor.style.visibility = "visible";
    const x = along === "step" ? `step ${xs[nearest]}` : label(xs[nearest], +chart.dataset.x1, along);
    now.textContent = `${x}: ${ys[nearest]}`;
    chart.setAttribute("aria-label", `${chart.querySelector(".title").textContent}: ${now.textContent}`);
  };
  const leave = () => { cursor.style.visibility = "hidden"; now.textContent = last; chart.setAttribute("aria-label", said); };
  chart.addEventListener("pointermove", event => {
    const x = zoom.at(event);
    read(xs.reduce((best, value, index) => Math.abs(value - x) < Math.abs(xs[best] - x) ? index : best, 0));
  });
  chart.addEventListener("keydown", event => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: xs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(Math.min(xs.length - 1, Math.max(0, to)));
  });
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("blur", leave);
}

for (const input of all(".compare input"))
  input.addEventListener("input", () => input.parentElement.style.setProperty("--at", `${input.value}%`));

for (const part of all(".share span")) part.style.flexGrow = part.dataset.grow;

// 3D: the viewer is unpacked on the first click and run as the one other script that the policy names by its hash
const bytesOf = template => Uint8Array.from(atob(template.content.textContent), letter => letter.charCodeAt(0));

async function unpackViewer() {
  if (globalThis.splatbatchOpenViewer) return;
  const packed = new Blob([bytesOf(document.getElementById("viewer"))]).stream();
  const script = document.createElement("script");
  script.textContent = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(script);
}

const SETTINGS = {
  version: 2, tonemapping: "none", highPrecisionRendering: false, background: { color: [0, 0, 0] }, animTracks: [],
  annotations: [], startMode: "default",
  postEffectSettings: Object.fromEntries(["sharpness", "bloom", "grading", "vignette", "fringing"].map(name => [name, { enabled: false }])),
};

let closeShown = () => {};

async function open3d(stage) {
  closeShown();
  const button = stage.querySelector("button"), caption = stage.querySelector("span"), said = caption.textContent;
  const scene = stage.appendChild(Object.assign(document.createElement("div"), { className: "scene" }));
  let viewer = null, closed = false;
  const close = closeShown = () => {
    closed = true;
    viewer?.destroy();
    scene.remove();
    button.textContent = "Open in 3D";
    caption.textContent = said;
    delete stage.dataset.shown;
    if (closeShown === close) closeShown = () => {};
  };
  button.textContent = "Close";
  const pose = stage.dataset.camera?.split(" ").map(Number);
  const cameras = pose ? [{ initial: { position: pose.slice(0, 3), target: pose.slice(3), fov: 60 } }] : [];
  try {
    await unpackViewer();
    viewer = await globalThis.splatbatchOpenViewer({
      container: scene, settings: { ...SETTINGS, cameras }, ui: false, noanim: true, renderer: "webgl",
      contentUrl: "data:,", contentFilename: "scene.compressed.ply",
      contents: Promise.resolve(new Response(bytesOf(stage.querySelector("template")))),
    });
    if (closed) return viewer.destroy();
    caption.textContent = `drag: turn, right button: move, wheel: nearer; ${said}`;
    const shown = () => { stage.dataset.shown = "yes"; };
    if (viewer.state.loaded) shown(); else viewer.events.once("loaded:changed", shown);
  } catch (error) {
    close();
    caption.textContent = `This browser cannot show it (${error.message}); ${said}`;
  }
}

for (const stage of all(".stage"))
  stage.querySelector("button").addEventListener("click", () => stage.querySelector(".scene") ? closeShown() : open3d(stage));

for (const table of all(".table table")) {  // on a telephone each figure stands under its heading
  const headings = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => { cell.dataset.label = headings[at]; });
  table.parentElement.classList.add("labelled");
}

for (const head of all("th")) head.addEventListener("click", () => {
  const column = head.cellIndex, body = head.closest("table").tBodies[0];
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  all("th", head.parentElement).forEach(one => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const cells = [...body.rows].map(row => row.cells[column]);
  const known = cell => cell.classList.contains("number") ? cell.dataset.value !== undefined : cell.textContent !== "";
  const compare = (a, b) => a.dataset.value !== undefined && b.dataset.value !== undefined ? a.dataset.value - b.dataset.value
    : a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  // what is unknown comes last, either way
  cells.sort((a, b) => known(b) - known(a) || (known(a) ? sign * compare(a, b) : 0));
  body.append(...cells.map(cell => cell.parentElement));
});

const filter = document.getElementById("filter");
if (filter) {
  const shell = filter.closest(".filter"), rows = all("tbody tr", shell.nextElementSibling);
  shell.hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    const shown = rows.filter(row => !row.hidden).length;
    document.getElementById("filtered").textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

// a page from a file may use the clipboard only where the browser allows it: else the command is marked, ready to be copied
for (const button of all("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Marked";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

const unfold = () => {
  const target = document.getElementById(location.hash.slice(1)), folded = target?.closest("details:not([open])");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", unfold);
document.addEventListener("click", event => { if (event.target.closest("a")) setTimeout(unfold); });
unfold();

// what is printed is open
let folded = [];
addEventListener("beforeprint", () => {
  folded = all("details:not([open])");
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
