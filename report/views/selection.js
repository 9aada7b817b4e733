// What is selected of an explanation: a line, a value, a device grid; collectives by their cause.

// -- what is selected -----------------------------------------------------------------------------
function detail(...children) {
  $("detail").replaceChildren(...children.filter(Boolean));
  $("detail").scrollTop = 0;
}
function detailLine() {
  const key = `${file}:${line}`, known = lookups(), source = view.files[file];
  const values = [...new Set(known.values.get(key) || [])], seconds = known.seconds.get(key);
  const text = source.lines[line - source.first] || "";
  detail(make("div", {class: "faint"}, `${source.name}:${line}`), make("div", {class: "code"}, text.trim()),
    seconds ? make("div", {}, `computation ${duration(seconds)}`) : null,
    ...(known.warnings.get(key) || []).map(n => warning(view.warnings[n])),
    ...collectivesOf(known.collectives.get(key) || []),
    values.length ? make("h2", {}, "values") : null,
    ...values.slice(0, 60).map(n => make("div", {}, valueLink(n))),
    values.length > 60 ? make("div", {class: "faint"}, `and ${values.length - 60} more`) : null);
}
const valueLink = n => link(make("span", {}, make("i", {class: "dot", color: color(view.values[n].type)}),
  `${called(n)}: ${view.types[view.values[n].type].text}`), () => detailValue(n));
const warning = w => make("div", {}, make("b", {class: "loud"}, `${w.kind} `), w.text,
  w.fix ? make("div", {}, `fix: ${w.fix}`) : null);
function collectivesOf(numbers) {        // equal ones together, as among the causes
  const groups = new Map();
  for (const n of numbers) push(groups, lookups().groups.get(n), n);
  return [...groups].flatMap(([g, members]) => {
    const c = view.collectives[members[0]], one = members.length === 1;
    return [make("h2", {class: "loud"}, c.heading + (one ? "" : `, ${members.length} times`)),
      make("div", {}, c.verdict), make("ul", {}, ...(one ? c.reasons : g.reasons).map(r => make("li", {}, r)))];
  });
}
function detailValue(n) {
  const v = view.values[n], type = view.types[v.type], known = lookups();
  const split = type.axes.some(a => a.length);
  const parts = [link("back to the line", () => { if (v.place >= 0) goTo(v.place); }),
    make("h2", {}, make("i", {class: "dot", color: color(v.type)}), called(n)),
    make("div", {class: "code"}, type.text),
    split ? make("div", {class: "faint"}, `on a device: [${type.block.join(", ")}]`) :
      make("div", {class: "faint"}, "whole on every device"),
    type.unreduced.length ? make("div", {}, `a sum still to be finished over ${type.unreduced.join(", ")}`) : null];
  if (split) parts.push(make("h2", {}, "its axes come from"), ...v.from.map(way));
  const heirs = [...new Set(known.heirs.get(n) || [])].slice(0, 12);
  const readers = (known.readers.get(n) || []).slice(0, 12);
  if (readers.length || heirs.length) parts.push(make("h2", {}, "and go to"), make("ul", {},
    ...readers.map(e => make("li", {}, `${view.equations[e].op} `, placeLink(view.equations[e].place), " ",
      ...view.equations[e].out.slice(0, 2).map(valueLink))),
    ...heirs.filter(h => !readers.some(e => view.equations[e].out.includes(h))).map(h => make("li", {}, valueLink(h)))));
  parts.push(make("h2", {}, "devices"), deviceGrid(type));
  detail(...parts);
}
function way([dim, axis, from, text, place]) {     // an axis from here to its annotation
  const steps = make("ul", {}), first = {from, text, place};
  let step = first;
  for (let i = 0; i < 40 && step; i++) {
    if (step.from < 0) {
      steps.append(make("li", {}, step.text || "an equation", " ", placeLink(step.place)));
      break;
    }
    steps.append(make("li", {}, `${step.text} `, placeLink(step.place), " from ", valueLink(step.from)));
    const next = view.values[step.from].from.find(f => f[1] === axis);
    step = next && {from: next[2], text: next[3], place: next[4]};
  }
  return make("div", {}, make("b", {}, axis), ` on dimension ${dim}`, steps);
}
function deviceGrid(type) {              // which devices hold which block of an array
  const axes = view.mesh.map(([name, size]) => ({name, size}));
  const total = axes.reduce((n, a) => n * a.size, 1);
  if (total > 65536) return make("div", {class: "faint"}, `${total.toLocaleString()} devices: too many to draw`);
  const part = (device, name) => {       // the position along an axis, or a part of one: x:(1)4
    const match = axes.some(a => a.name === name) ? null : /^(.*):\((\d+)\)(\d+)$/.exec(name);
    const base = match ? match[1] : name;
    let rest = device, position = 0, size = 1;
    for (const a of [...axes].reverse()) {
      if (a.name === base) { position = rest % a.size; size = a.size; break; }
      rest = Math.floor(rest / a.size);
    }
    if (!match) return [position, size];
    const [pre, n] = [+match[2], +match[3]];
    return [Math.floor(position / (size / (pre * n))) % n, n];
  };
  const pieces = type.axes.map(own => own.reduce((n, a) => n * part(0, a)[1], 1));
  const dims = pieces.map((n, d) => [n, d]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 2)
    .map(p => p[1]).sort((a, b) => a - b);
  const count = d => d === undefined ? 1 : pieces[d];
  const [down, right] = dims.length > 1 ? dims : [undefined, dims[0]];
  const height = Math.min(count(down), 32), width = Math.min(count(right), 16), cells = new Map();
  for (let device = 0; device < total; device++) {
    const at = d => d === undefined ? 0 : type.axes[d].reduce((n, a) => n * part(device, a)[1] + part(device, a)[0], 0);
    const [i, j] = [at(down), at(right)];
    if (i < height && j < width) push(cells, i * width + j, device);
  }
  const grid = make("div", {class: "grid", role: "img", "aria-label": "which devices hold which block",
    style: `grid-template-columns: repeat(${width}, minmax(max-content, 1fr))`});
  for (let k = 0; k < height * width; k++) {
    const held = cells.get(k) || [];
    grid.append(make("span", {color: `hsl(${k * 360 / (height * width) | 0} 65% 75%)`, title: held.slice(0, 99).join(" ")},
      held.length > 4 ? `${held.slice(0, 3).join(" ")} … ${held.length}` : held.join(" ")));
  }
  const name = d => d === undefined ? "" : `dimension ${d}`;
  const left = count(down) > height || count(right) > width;
  return make("div", {}, make("div", {class: "faint"}, [down === undefined ? "" : `down: ${name(down)}`,
    right === undefined ? "one value" : `across: ${name(right)}`].filter(Boolean).join(", ")), grid,
    left ? make("div", {class: "faint"}, `the first ${height} x ${width} of ${count(down)} x ${count(right)} blocks`) : null);
}

// -- collectives by cause -------------------------------------------------------------------------
function showCollectives() {
  const cards = view.causes.map((cause, n) => {
    const inside = make("div", {class: "in"}), card = make("details", {class: "card"},
      make("summary", {}, cause.text ? make("b", {}, `because of ${cause.described}`) : cause.described,
        make("span", {class: "bars"}, make("i", {style: `width:${100 * cause.bytes / (view.received_bytes || 1)}%`}))), inside);
    const fill = () => { if (card.open && !inside.firstChild) inside.append(...cause.groups.map(group)); };
    card.addEventListener("toggle", fill);
    if (n < 3) { card.open = true; fill(); }
    return card;
  });
  const warnings = view.warnings.map(w => make("div", {class: "card"}, make("div", {class: "top"}, warning(w), " ", placeLink(w.place))));
  $("collectives").replaceChildren(
    ...(cards.length ? cards : [make("p", {}, "Nothing is communicated.")]),
    ...(warnings.length ? [make("h2", {}, "warnings"), ...warnings] : []));
}
function group(g) {
  const c = view.collectives[g.members[0]];
  const more = g.members.length > 1 ? `, in ${g.members.length} places` : "";
  const source = c.place >= 0 ? view.files[view.places[c.place][0]] : null;
  const text = source?.lines[view.places[c.place][1] - source.first] || "";
  return make("div", {class: "group"}, make("b", {class: "loud"}, c.heading + more), " ", placeLink(c.place),
    make("div", {class: "code"}, text.trim()), make("div", {}, c.verdict),
    make("ul", {}, ...g.reasons.map(r => make("li", {}, r)), ...g.instead.map(r => make("li", {class: "faint"}, `instead: ${r}`))),
    ...(g.fixes || []).map(f => make("div", {class: "group"}, make("b", {}, f.removes ? "avoided by: " : "less by: "), f.text,
      ...f.diff.map(([old, now]) => make("div", {class: "diff"}, make("del", {}, `- ${old}`), make("ins", {}, `+ ${now}`))),
      make("div", {class: "faint"}, f.effect))),
    g.fixes && !g.fixes.length ? make("div", {class: "faint"}, "nothing that was tried avoids it") : null);
}
