// The dataflow graph: equations by scope, folded where there are many, coloured by sharding.
"use strict";
const MOST = 40;                         // what is shown at once of a part before it is folded
const trees = new Map();

// A tree of parts: {label, first, last, parts} where equations first..last are inside; a leaf is one
// equation. Parts follow each other in the program, so that what is between them is a graph again.
function tree() {
  if (trees.has(view)) return trees.get(view);
  const bodies = new Map();
  view.equations.forEach((e, n) => push(bodies, e.inside, n));
  const leaf = n => {
    const inner = bodies.get(n);
    const part = {label: view.equations[n].op, equations: [n], parts: null, open: false};
    if (inner) {
      part.parts = inner.map(leaf);
      part.equations = [n, ...part.parts.flatMap(p => p.equations)];
      part.parts = fold(part.parts);
    }
    return part;
  };
  const scoped = (parts, depth) => {     // runs of equations that have a scope in common
    const found = [];
    for (const part of parts) {
      const name = view.equations[part.equations[0]].scope[depth];
      if (name !== undefined && found.length && found[found.length - 1].label === name && found[found.length - 1].run)
        found[found.length - 1].parts.push(part);
      else found.push(name === undefined ? part : {label: name, run: true, parts: [part], open: false});
    }
    return found.map(p => {
      if (!p.run) return p;
      const inner = scoped(p.parts, depth + 1);
      if (found.length === 1) return {...p, parts: inner, only: true};
      if (p.parts.length === 1) return p.parts[0];
      return {...p, parts: fold(inner), equations: p.parts.flatMap(q => q.equations)};
    }).flatMap(p => p.only ? p.parts : [p]);
  };
  const top = fold(scoped((bodies.get(-1) || []).map(leaf), 0));
  trees.set(view, top);
  if (view.equations.length <= MOST) openAll(top);
  return top;
}
function lineOf(part) {
  const places = part.equations.map(n => view.equations[n].place).filter(p => p >= 0).map(p => view.places[p][1]);
  const low = Math.min(...places.slice(0, 500)), high = Math.max(...places.slice(0, 500));
  return !places.length ? "" : low === high ? `line ${low}` : `lines ${low} to ${high}`;
}
function fold(parts) {                   // many parts as few that hold them
  if (parts.length <= MOST) return parts;
  const size = Math.ceil(parts.length / 20), found = [];
  for (let i = 0; i < parts.length; i += size) {
    const held = parts.slice(i, i + size);
    const part = {equations: held.flatMap(p => p.equations), parts: held.length > MOST ? fold(held) : held, open: false};
    found.push(held.length === 1 ? held[0] : {...part, label: lineOf(part)});
  }
  return found;
}
function shownParts(parts, inside = null) {
  return parts.flatMap(p => (p.within = inside, p.parts && p.open) ? shownParts(p.parts, p) : [p]);
}
function openAll(parts) {
  for (const p of parts) if (p.parts) { p.open = true; openAll(p.parts); }
}
function unfoldAll() {
  openAll(tree());
  showGraph();
}

// Where each part and argument stands: a row below all that it reads, in the middle of these.
function placed() {
  const parts = shownParts(tree()), owner = new Int32Array(view.equations.length).fill(-1);
  const nodes = parts.map((part, number) => ({part, number, row: 0, ways: new Map()}));
  nodes.forEach((node, i) => node.part.equations.forEach(n => { owner[n] = i; }));
  const inputs = new Map(), arguments_ = view.values.map((v, n) => n).filter(n => view.values[n].equation < 0 && view.values[n].inside < 0);
  const together = arguments_.length > 12;
  const input = v => {
    const key = together ? -1 : v;
    if (!inputs.has(key)) inputs.set(key, {input: key, row: 0, ways: new Map(), values: arguments_});
    return inputs.get(key);
  };
  nodes.forEach((node, i) => {
    for (const n of node.part.equations) for (const v of view.equations[n].in) {
      const value = view.values[v], from = value.equation >= 0 ? nodes[owner[value.equation]]
        : value.inside < 0 ? input(v) : owner[value.inside] >= 0 ? nodes[owner[value.inside]] : null;
      if (from && from !== node && !node.ways.has(from)) node.ways.set(from, value.type);
    }
    for (const from of node.ways.keys()) if (!from.part || from.number < i) node.row = Math.max(node.row, from.row + 1);
  });
  return arrange([...inputs.values(), ...nodes]);
}
function arrange(nodes) {
  const levels = [];
  nodes.forEach(n => (levels[n.row] ||= []).push(n));
  let width = 0;
  for (const level of levels) {
    for (const n of level) {
      n.title = n.part ? n.part.label + (n.part.parts ? ` (${n.part.equations.length})` : "")
        : n.input < 0 ? `${n.values.length} arguments` : called(n.input);
      const out = n.part && !n.part.parts ? view.equations[n.part.equations[0]].out : n.part ? lastOut(n.part) : n.input >= 0 ? [n.input] : [];
      n.type = out.length ? view.values[out[0]].type : -1;
      n.under = n.type >= 0 ? view.types[n.type].text : "";
      n.width = Math.min(260, Math.max(n.title.length, n.under.length) * 7 + 18);
      const middles = [...n.ways.keys()].map(f => f.x).filter(x => x !== undefined);
      n.wish = middles.length ? middles.reduce((a, b) => a + b, 0) / middles.length : 0;
    }
    level.sort((a, b) => a.wish - b.wish);
    const all = level.reduce((sum, n) => sum + n.width + 24, -24), center = level.reduce((sum, n) => sum + n.wish, 0) / level.length;
    let x = center - all / 2;
    for (const n of level) { n.x = x + n.width / 2; n.y = n.row * 78 + 10; x += n.width + 24; }
  }
  const left = Math.min(0, ...nodes.map(n => n.x - n.width / 2)), right = Math.max(...nodes.map(n => n.x + n.width / 2), 0);
  nodes.forEach(n => { n.x += 14 - left; });
  width = right - left + 28;
  return {nodes, width, height: levels.length * 78 + 20};
}
const lastOut = part => { const e = view.equations[part.equations[part.equations.length - 1]]; return e.out || []; };

let drawn = null;
function showGraph() {
  const section = $("graph"), opened = [];
  const collect = parts => parts.forEach(p => { if (p.parts && p.open) { opened.push(p); collect(p.parts); } });
  collect(tree());
  drawn = placed();
  const legend = make("div", {class: "legend"}, make("span", {class: "faint"}, "split over:"),
    ...[...colorsShown()].map(([text, c]) => make("span", {}, make("i", {class: "dot", color: c}), text)));
  const bar = make("div", {class: "bar"}, opened.length ? "open: " : "choose a dashed box to open it",
    ...opened.slice(0, 12).map(p => make("button", {title: "fold", onclick: () => { p.open = false; showGraph(); }}, `${p.label} ×`)), legend);
  const canvas = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  canvas.setAttribute("width", drawn.width);
  canvas.setAttribute("height", drawn.height);
  const holder = make("div", {style: "overflow:visible"});
  holder.append(canvas);
  const center = section.scrollLeft;
  section.replaceChildren(bar, holder);
  section.onscroll = () => drawGraph(canvas);
  drawGraph(canvas);
  if (!center) section.scrollLeft = Math.max(0, (drawn.width - section.clientWidth) / 2);
}
function colorsShown() {
  const found = new Map([["nothing", "var(--faint)"]]);
  for (const n of drawn?.nodes || []) if (n.type >= 0) {
    const c = color(n.type);
    if (c !== "var(--faint)") found.set(view.types[n.type].axes.map(a => a.join("+") || "-").join(", "), c);
    if (found.size > 12) break;
  }
  return found;
}
function drawGraph(canvas) {             // what is in sight, and the ways that pass through it
  const section = $("graph"), top = section.scrollTop - 300, end = section.scrollTop + section.clientHeight + 300;
  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const ways = [], boxes = [];
  for (const n of drawn.nodes) {
    for (const [from, type] of n.ways) {
      if (from.y > end || n.y < top || ways.length > 4000) continue;
      const [x1, y1, x2, y2] = [from.x, from.y + 44, n.x, n.y], bend = Math.max(12, Math.min(60, (y2 - y1) / 2));
      ways.push(svg("path", {d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`, style: `--c:${color(type)}`}));
    }
    if (n.y < top || n.y > end || boxes.length > 2000) continue;
    const g = svg("g", {class: `node${n.part?.parts ? " fold" : ""}`, tabindex: 0, role: "button", "aria-label": `${n.title} ${n.under}`});
    g.append(svg("rect", {class: "box", x: n.x - n.width / 2, y: n.y, width: n.width, height: 44,
      style: `--c:${n.type >= 0 ? color(n.type) : "var(--faint)"}`}));
    [[n.title, 18, 600], [n.under, 34, 400]].forEach(([text, y, weight]) => {
      const written = svg("text", {x: n.x - n.width / 2 + 9, y: n.y + y, "font-weight": weight});
      const fits = Math.floor((n.width - 16) / 7);
      written.textContent = text.length > fits ? `${text.slice(0, fits - 1)}…` : text;
      g.append(written);
    });
    const act = () => {
      if (n.part?.parts) { n.part.open = true; showGraph(); }
      else if (n.part) detailValue(view.equations[n.part.equations[0]].out[0] ?? 0);
      else if (n.input >= 0) detailValue(n.input);
      else detail(make("h2", {}, "arguments"), ...n.values.slice(0, 200).map(v => make("div", {}, valueLink(v))));
    };
    g.addEventListener("click", act);
    g.addEventListener("keydown", event => { if (event.key === "Enter") act(); });
    boxes.push(g);
  }
  canvas.replaceChildren(...ways, ...boxes);
}
