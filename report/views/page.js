// The page of an explanation: what the parts share, the lines, the programs.
"use strict";
const $ = id => document.getElementById(id);
let views = [], view = null, tab = "lines", theme = "";
const index = new Map();                 // of each view what is looked up in it

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "color") element.style.setProperty("--c", value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
  return element;
}
const link = (text, act) => make("button", {class: "link", onclick: act}, text);
function quantity(n, unit) {
  if (n < 1000) return `${Math.round(n)} ${unit}`;
  for (const prefix of "kMGTPE") {
    n /= 1000;
    if (n < 1000 || prefix === "E") return `${+n.toPrecision(3)} ${prefix}${unit}`;
  }
}
function duration(t) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]])
    if (t >= scale) return `${+(t / scale).toPrecision(3)} ${unit}`;
  return t ? `${+(t / 1e-9).toPrecision(3)} ns` : "0 s";
}
const push = (map, key, value) => map.has(key) ? map.get(key).push(value) : map.set(key, [value]);

// What is looked up: by line its values, collectives, warnings and seconds; readers; colours.
function lookups() {
  let found = index.get(view);
  if (found) return found;
  found = {values: new Map(), collectives: new Map(), warnings: new Map(), seconds: new Map(),
           readers: new Map(), heirs: new Map(), colors: new Map(), groups: new Map()};
  const key = place => place < 0 ? null : `${view.places[place][0]}:${view.places[place][1]}`;
  view.values.forEach((v, n) => {
    if (v.place >= 0) push(found.values, key(v.place), n);
    for (const [, , from] of v.from) if (from >= 0) push(found.heirs, from, n);
  });
  view.collectives.forEach((c, n) => push(found.collectives, key(c.place), n));
  view.warnings.forEach((w, n) => push(found.warnings, key(w.place), n));
  for (const [place, t] of view.seconds)
    found.seconds.set(key(place), (found.seconds.get(key(place)) || 0) + t);
  view.equations.forEach((e, n) => new Set(e.in).forEach(v => push(found.readers, v, n)));
  view.causes.forEach(c => c.groups.forEach(g => g.members.forEach(n => found.groups.set(n, g))));
  index.set(view, found);
  return found;
}
const layout = type => type.axes.map(a => a.join("+")).join(",");
function color(type) {                   // one for each way of splitting; grey for what is whole
  const key = layout(view.types[type]);
  if (!/[^,]/.test(key)) return "var(--faint)";
  const known = lookups().colors;
  if (!known.has(key)) known.set(key, `hsl(${(known.size * 137.5 + 215) % 360} 62% 52%)`);
  return known.get(key);
}
const called = n => view.values[n].name || view.values[n].text || `a value of ${
  view.values[n].equation < 0 ? "the program" : view.equations[view.values[n].equation].op}`;
const where = place => place < 0 ? "" : `${view.files[view.places[place][0]].name}:${view.places[place][1]}`;

// A list of which only the rows in sight are elements. render(i): the row's element.
class List {
  constructor(element, step) {
    this.element = element; this.inner = make("div"); this.count = 0; this.chosen = -1;
    element.append(this.inner); element.tabIndex = 0;
    element.addEventListener("scroll", () => this.draw(), {passive: true});
    new ResizeObserver(() => this.draw()).observe(element);
    element.addEventListener("keydown", event => {
      const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9}[event.key];
      if (by === undefined || !this.count) return;
      event.preventDefault();
      step(Math.max(0, Math.min(this.count - 1, this.chosen + by)));
    });
  }
  show(count, longest, render) {
    this.count = count; this.render = render;
    this.inner.style.height = `${count * 20}px`; this.inner.style.minWidth = `${longest + 10}ch`;
    this.draw();
  }
  draw() {
    if (!this.render) return;
    const first = Math.max(0, Math.floor(this.element.scrollTop / 20) - 5);
    const last = Math.min(this.count, first + Math.ceil(this.element.clientHeight / 20) + 10);
    const rows = [];
    for (let i = first; i < last; i++) {
      const row = this.render(i);
      row.style.top = `${i * 20}px`;
      rows.push(row);
    }
    this.inner.replaceChildren(...rows);
  }
  reveal(i) {
    const top = i * 20, box = this.element;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 40)
      box.scrollTop = top - box.clientHeight / 3;
    this.draw();
  }
}

// -- source and program ---------------------------------------------------------------------------
let file = 0, line = 0, stage = 0, rows = [], sourceList, programList;

function showSource() {
  const lines = view.files[file]?.lines || [], first = view.files[file]?.first || 1;
  const known = lookups();
  sourceList.show(lines.length, lines.reduce((n, t) => Math.max(n, t.length), 0) + 60, i => {
    const key = `${file}:${i + first}`, row = make("div", {class: "row"});
    row.classList.toggle("on", i + first === line);
    row.append(make("span", {class: "no"}, String(i + first)), lines[i]);
    const shown = shownValues(key).slice(0, 3);
    for (const n of shown) row.append(make("span", {class: "hint"},
      make("i", {class: "dot", color: color(view.values[n].type)}),
      `${view.values[n].name ? view.values[n].name + ": " : ""}${view.types[view.values[n].type].text}`));
    const moved = known.collectives.get(key);
    if (moved) {
      const bytes = moved.reduce((n, c) => n + view.collectives[c].bytes * view.collectives[c].count, 0);
      row.append(make("span", {class: "cost"}, `${[...new Set(moved.map(c => view.collectives[c].kind))].join(", ")} ${
        quantity(bytes, "B")}`));
    }
    if (known.warnings.has(key)) row.append(make("span", {class: "cost"}, "warning"));
    row.onclick = () => chooseLine(file, i + first);
    row.onmouseenter = () => markNear(file, i + first);
    return row;
  });
}
// The named values of a line, each type once; where none has a name its last value.
function shownValues(key) {
  const all = lookups().values.get(key) || [];
  const named = all.filter(n => view.values[n].name);
  const seen = new Set();
  return (named.length ? named : all.slice(-1)).filter(n => {
    const text = view.values[n].name + view.values[n].type;
    return !seen.has(text) && seen.add(text);
  });
}
function stageRows() {                   // the rows of the stage, those that are gone among them
  const own = view.stages[stage].rows.map(r => [r[0], r[1], r[2], ""]);
  if (!$("differences").checked || !stage) return own;
  const before = view.stages[stage - 1].rows, all = [];
  let at = 0;
  for (const [a, b, c, d] of view.stages[stage].changes) {
    while (at < c) all.push(own[at++]);
    for (let i = a; i < b; i++) all.push([before[i][0], before[i][1], -1, "gone"]);
    while (at < d) { own[at][3] = "new"; all.push(own[at++]); }
  }
  while (at < own.length) all.push(own[at++]);
  return all;
}
function closing(text) {                 // behind the bracket that closes the first
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "[") depth++;
    if (text[i] === "]" && !--depth) return i + 1;
  }
  return 0;
}
let near = "";
const rowKey = place => place < 0 ? "" : `${view.places[place][0]}:${view.places[place][1]}`;
function showProgram() {
  rows = stageRows();
  programList.show(rows.length, rows.reduce((n, r) => Math.max(n, r[0].length), 0), i => {
    const [text, place, collective, change] = rows[i];
    const row = make("div", {class: `row ${change}`});
    row.classList.toggle("on", place >= 0 && rowKey(place) === `${file}:${line}`);
    row.classList.toggle("near", place >= 0 && rowKey(place) === near);
    const match = /^(\s*[^=#]*? = )([a-z][\w-]*)(.*)$/.exec(place >= 0 ? text : "");
    if (match) {                         // operands stay in sight: of other lines params are left out
      const [, results, op, rest] = match, end = rest[0] === "[" ? closing(rest) : 0;
      row.append(results, make("span", {class: collective >= 0 ? "op loud" : "op"}, op), end ? make("span",
        {class: "params", title: rest.slice(0, end)}, row.classList.contains("on") ? rest.slice(0, end) : "[…]") : "", rest.slice(end));
    }
    else row.append(text);
    if (collective >= 0) row.append(make("span", {class: "cost"}, view.collectives[collective].heading));
    row.onclick = () => place < 0 ? null : chooseLine(view.places[place][0], view.places[place][1], i);
    return row;
  });
}
function markNear(f, n) {
  near = `${f}:${n}`;
  programList.draw();
}
function chooseLine(f, n, row = -1) {
  if (f !== file) { file = f; $("file").value = f; showSource(); }
  line = n; near = "";
  sourceList.chosen = n - view.files[f].first;
  if (row < 0) row = rows.findIndex(r => rowKey(r[1]) === `${f}:${n}`);
  programList.chosen = row;
  if (row >= 0) programList.reveal(row); else programList.draw();
  sourceList.reveal(sourceList.chosen);
  detailLine();
}
const goTo = place => { if (place >= 0) { choose("lines"); chooseLine(view.places[place][0], view.places[place][1]); } };
const placeLink = place => place < 0 ? "" : link(where(place), () => goTo(place));

// -- the page -------------------------------------------------------------------------------------
const TABS = {lines: ["lines", () => { showSource(); showProgram(); }], collectives: ["collectives", showCollectives],
  graph: ["graph", () => showGraph()], time: ["time", () => showTime()], memory: ["memory", () => showMemory()]};
function choose(name) {
  tab = name;
  for (const key of Object.keys(TABS)) {
    $(key).hidden = key !== name;
    $(`tab-${key}`).setAttribute("aria-selected", key === name);
    $(`tab-${key}`).tabIndex = key === name ? 0 : -1;
  }
  TABS[name][1]();
}
function open(n) {
  view = views[n];
  document.title = `${view.name}: shardtrace`;
  file = view.files.findIndex((f, i) => view.places.some(p => p[0] === i) && f.lines.length);
  const first = view.collectives.find(c => c.place >= 0)?.place ?? view.values.find(v => v.place >= 0)?.place;
  if (first !== undefined) file = view.places[first][0];
  file = Math.max(0, file); stage = view.stages.length - 1; line = 0;
  $("about").replaceChildren(make("span", {class: "faint"}, `${view.topology}, mesh ${
    view.mesh.map(([a, size]) => `${a}=${size}`).join(", ") || "of one device"}`));
  $("totals").replaceChildren(...view.totals.map(([name, value]) => {
    const [main, ...rest] = value.split(/(?=, | \(| of )/);
    return make("div", {}, make("dt", {}, name), make("dd", {}, make("b", {}, main), make("small", {}, rest.join(""))));
  }));
  $("tab-collectives").textContent = `collectives (${view.collectives.length})`;
  $("file").replaceChildren(...view.files.map((f, i) => make("option", {value: i}, f.name)));
  $("file").value = file;
  $("stage").replaceChildren(...view.stages.map((s, i) => make("option", {value: i}, s.name)));
  $("stage").value = stage;
  detail(make("div", {class: "faint"}, "Choose a line, a value, or a collective."));
  choose(tab);
  if (first !== undefined) chooseLine(file, view.places[first][1]);
}
function fromHash() {                    // #tab=graph, #line=0:12, #value=3, #theme=dark, #view=1
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of asked) {
    if (key === "theme") document.documentElement.dataset.theme = value;
    if (key === "view" && views[+value]) { $("view").value = value; open(+value); }
  }
  for (const [key, value] of asked) {
    if (key === "tab" && TABS[value]) choose(value);
    if (key === "stage" && view.stages[+value]) { $("stage").value = stage = +value; $("differences").checked = true; showProgram(); }
    if (key === "line") chooseLine(...value.split(":").map(Number));
    if (key === "value" && view.values[+value]) detailValue(+value);
    if (key === "unfold") unfoldAll();
  }
}
async function data() {
  const held = $("data");
  if (held.type === "application/json") return JSON.parse(held.textContent);
  const bytes = Uint8Array.from(atob(held.textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
async function start() {
  views = await data();
  sourceList = new List($("source"), i => chooseLine(file, i + view.files[file].first));
  programList = new List($("program"), i => {
    programList.chosen = i;
    if (rows[i][1] >= 0) chooseLine(view.places[rows[i][1]][0], view.places[rows[i][1]][1], i);
    else programList.reveal(i);
  });
  $("view").replaceChildren(...views.map((v, i) => make("option", {value: i}, v.label || v.name)));
  $("view").hidden = views.length < 2;
  $("view").onchange = event => open(+event.target.value);
  $("file").onchange = event => { file = +event.target.value; line = 0; showSource(); };
  $("stage").onchange = event => { stage = +event.target.value; showProgram(); };
  $("differences").onchange = showProgram;
  $("theme").onclick = () => {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    choose(tab);
  };
  for (const name of Object.keys(TABS)) $(`tab-${name}`).onclick = () => {
    if (matchMedia("(max-width: 900px)").matches) detail();       // room for what was chosen
    choose(name);
  };
  $("tabs").addEventListener("keydown", event => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key], names = Object.keys(TABS);
    if (!by) return;
    choose(names[(names.indexOf(tab) + by + names.length) % names.length]);
    $(`tab-${tab}`).focus();
  });
  open(0);
  fromHash();
  addEventListener("hashchange", fromHash);
  document.documentElement.dataset.ready = "yes";
}
