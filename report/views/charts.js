// Pictures over time: what a device computes and exchanges in a step, and what it holds.
"use strict";
// A picture that is drawn anew at each size. draw(context, width, height, colour).
function picture(height, label, draw) {
  const canvas = make("canvas", {tabindex: 0, role: "img", "aria-label": label, style: `height:${height}px`});
  const paint = () => {
    const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const ink = name => {                // light-dark() of a custom property, as a colour
      canvas.style.color = `var(--${name})`;
      return getComputedStyle(canvas).color;
    };
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    draw(context, width, height, ink, style);
  };
  new ResizeObserver(paint).observe(canvas);
  canvas.paint = paint;
  return canvas;
}
const laneColor = lane => lane ? `hsl(${(lane * 137.5 + 320) % 360} 65% 55%)` : "hsl(215 55% 55%)";

function showTime() {
  const {lanes, events, seconds} = view.timeline, high = 26, top = 6;
  let from = 0, to = seconds || 1, at = -1;
  const canvas = picture(lanes.length * (high + 16) + 34, "computation and communication over a step", (g, width, height, ink) => {
    const x = t => (t - from) / (to - from) * width;
    lanes.forEach(([lane], i) => {
      const y = top + i * (high + 16);
      g.fillStyle = ink("faint");
      g.fillText(lane, 4, y + 7);
      g.fillStyle = ink("raised");
      g.fillRect(0, y + 15, width, high);
    });
    let last = lanes.map(() => -1);      // no more than one for each column
    events.forEach(([lane, start, took, , , , loop], n) => {
      const [a, b] = [x(start), x(start + took)];
      if (b < 0 || a > width || (b < last[lane] && n !== at)) return;
      const y = top + lane * (high + 16) + 15;
      g.globalAlpha = loop ? 0.3 : 1;    // what runs in it is drawn over it
      g.fillStyle = laneColor(lane);
      g.fillRect(a, y, Math.max(1, b - a - (b - a > 4 ? 1 : 0)), high);
      g.globalAlpha = 1;
      if (b - a > 60) {
        g.fillStyle = loop ? ink("ink") : "#fff";
        g.save(); g.beginPath(); g.rect(a, y, b - a - 4, high); g.clip();
        g.fillText(events[n][3], Math.max(a, 0) + 4, y + high / 2); g.restore();
      }
      if (n === at) { g.strokeStyle = ink("loud"); g.lineWidth = 2; g.strokeRect(a, y - 1, Math.max(3, b - a), high + 2); }
      last[lane] = Math.max(last[lane], Math.floor(a) + 1);
    });
    g.fillStyle = ink("faint");
    g.fillText(duration(from), 4, height - 10);
    const end = duration(to);
    g.fillText(end, width - 4 - g.measureText(end).width, height - 10);
  });
  const zoom = (factor, middle) => {
    const wide = Math.min(seconds, (to - from) * factor);
    from = Math.max(0, Math.min(seconds - wide, middle - (middle - from) * factor)); to = from + wide;
    canvas.paint();
  };
  const time = event => from + event.offsetX / canvas.clientWidth * (to - from);
  const show = n => {
    at = n;
    if (n < 0) return;
    const [lane, start, took, op, place, collective] = events[n];
    if (start < from || start > to) { const wide = to - from; from = Math.max(0, start - wide / 3); to = from + wide; }
    canvas.paint();
    detail(make("h2", {}, op), make("div", {}, `${lanes[lane][0]}, ${duration(took)} from ${duration(start)} on`), placeLink(place),
      ...(collective < 0 ? [] : collectivesOf([collective])));
  };
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event));
  }, {passive: false});
  canvas.addEventListener("click", event => {
    const t = time(event), lane = Math.floor((event.offsetY - top) / (high + 16)), near = 3 * (to - from) / canvas.clientWidth;
    show(events.findIndex(e => e[0] === lane && e[1] - near <= t && t <= e[1] + e[2] + near));
  });
  canvas.addEventListener("keydown", event => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (by) { event.preventDefault(); show(Math.max(0, Math.min(events.length - 1, at + by))); }
    if (event.key === "+") zoom(0.7, (from + to) / 2);
    if (event.key === "-") zoom(1.4, (from + to) / 2);
  });
  $("time").replaceChildren(make("div", {class: "bar"}, make("button", {onclick: () => zoom(0.6, (from + to) / 2), "aria-label": "closer"}, "+"),
    make("button", {onclick: () => zoom(1.7, (from + to) / 2), "aria-label": "further"}, "−"),
    make("button", {onclick: () => { from = 0; to = seconds || 1; canvas.paint(); }}, "all"), "arrow keys go from event to event"), canvas,
    make("h2", {}, "busy"), make("table", {}, ...lanes.map(([lane, t], i) => make("tr", {}, make("td", {},
      make("i", {class: "dot", color: laneColor(i)}), lane), make("td", {class: "n"}, duration(t)),
      make("td", {class: "n"}, seconds ? `${Math.round(100 * t / seconds)}%` : "")))),
    make("p", {class: "faint"}, "By the cost model, every iteration of a loop counted; drawn are the first of them."));
}

function showMemory() {
  const {peak, moments, held, others, at} = view.memory;
  let chosen = moments.reduce((best, m, n) => m[2] > moments[best]?.[2] ? n : best, 0);
  const canvas = picture(220, "bytes that a device holds while each equation runs", (g, width, height, ink) => {
    const base = height - 20, tall = base - 24, most = peak || 1, wide = width / Math.max(1, moments.length);
    g.fillStyle = "hsl(215 55% 55%)";
    let column = -1, high = 0;
    moments.forEach((m, n) => {
      const x = Math.floor(n * wide);
      if (x !== column) { column = x; high = 0; }
      if (m[2] <= high) return;
      high = m[2];
      g.fillRect(n * wide, base - tall * m[2] / most, Math.max(1, wide - (wide > 6 ? 1 : 0)), tall * m[2] / most);
    });
    const line = base - tall * view.memory.arguments / most;
    g.strokeStyle = ink("ink"); g.setLineDash([4, 4]);
    g.beginPath(); g.moveTo(0, line); g.lineTo(width, line); g.stroke(); g.setLineDash([]);
    g.fillStyle = ink("ink");
    g.fillText(`arguments ${quantity(view.memory.arguments, "B")}`, 6, line - 8);
    if (moments.length) {
      const x = (chosen + 0.5) * wide, m = moments[chosen];
      g.fillStyle = ink("loud");
      g.fillRect(x - 1, base - tall * m[2] / most, 2, tall * m[2] / most);
      const text = `${quantity(m[2], "B")} in ${m[0]}`;
      g.fillText(text, Math.max(4, Math.min(width - g.measureText(text).width - 4, x - 40)), 10);
    }
    g.fillStyle = ink("faint");
    g.fillText("equations of the program, in order", 6, height - 8);
  });
  const show = n => {
    if (!moments[n]) return;
    chosen = n; canvas.paint();
    detail(make("h2", {}, moments[n][0]), make("div", {}, `${quantity(moments[n][2], "B")} held`), placeLink(moments[n][1]));
  };
  canvas.addEventListener("click", event => show(Math.floor(event.offsetX / canvas.clientWidth * moments.length)));
  canvas.addEventListener("keydown", event => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (by) { event.preventDefault(); show(Math.max(0, Math.min(moments.length - 1, chosen + by))); }
  });
  $("memory").replaceChildren(canvas, make("h2", {}, `held at the peak of ${quantity(peak, "B")} `, placeLink(at)),
    make("table", {}, ...held.map(([name, type, bytes, place]) => make("tr", {}, make("td", {class: "code"}, `${name}: ${type}`),
      make("td", {}, placeLink(place)), make("td", {class: "n"}, quantity(bytes, "B"),
        make("span", {class: "bars"}, make("i", {style: `width:${100 * bytes / (peak || 1)}%`})))))),
    others ? make("p", {class: "faint"}, `and ${others} smaller ones`) : "");
}
start();
