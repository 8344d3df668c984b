"use strict";
// Draws the report from the data beside it. Every text goes in as a text node, so a name is never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const tip = document.getElementById("tip");

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "circle", "text"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function explained(node, text) {
  node.addEventListener("pointermove", (event) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
  });
  node.addEventListener("pointerleave", () => { tip.hidden = true; });
  return node;
}

// --- the roofline ---------------------------------------------------------------------------------------------------

const W = 1130, H = 560, LEFT = 84, RIGHT = 240, TOP = 14, BOTTOM = 44, GAP = 15;

function prefixed(value) {
  const step = Math.max(0, Math.min(6, Math.floor(Math.log10(value) / 3 + 1e-9)));
  return `${Number((value / 1000 ** step).toPrecision(3))} ${["", "k", "M", "G", "T", "P", "E"][step]}FLOP/s`;
}

function powers(low, high) {
  const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high));
  const step = Math.max(1, Math.ceil((last - first) / 10));
  return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, i) => 10 ** (first + i * step));
}

function roofline(chart) {
  const [[x0, x1], [y0, y1]] = chart.limits;
  const x = (v) => LEFT + (W - LEFT - RIGHT) * Math.log(v / x0) / Math.log(x1 / x0);
  const y = (v) => H - BOTTOM - (H - TOP - BOTTOM) * Math.log(v / y0) / Math.log(y1 / y0);
  const line = (a, b, c, d, kind, width = 1) =>
    make("line", { x1: a, y1: b, x2: c, y2: d, class: kind, "stroke-width": width });
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "roofline: FLOP/s over FLOP/byte" });
  for (const v of powers(x0, x1)) {
    svg.append(line(x(v), TOP, x(v), H - BOTTOM, "grid"));
    svg.append(make("text", { x: x(v), y: H - BOTTOM + 17, "text-anchor": "middle" }, v < 1e6 ? String(+v.toPrecision(3)) : v.toExponential()));
  }
  for (const v of powers(y0, y1)) {
    svg.append(line(LEFT, y(v), W - RIGHT, y(v), "grid"));
    svg.append(make("text", { x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, prefixed(v)));
  }
  svg.append(make("text", { x: (LEFT + W - RIGHT) / 2, y: H - 8, "text-anchor": "middle" }, "intensity, FLOP/byte"));

  const top = chart.ceilings[0].rate, angle = Math.atan2(y(1) - y(2), x(2) - x(1)) * 180 / Math.PI;
  chart.slopes.forEach(({ rate, text }, i) => {
    const foot = Math.max(x0, y0 / rate), start = 1.15 * foot;
    svg.append(line(x(foot), y(foot * rate), x(top / rate), y(top), "roof", i ? 0.8 : 1.8));
    svg.append(make("text", { transform: `translate(${x(start)} ${y(start * rate) - 7}) rotate(${-angle})` }, text));
  });
  const steepest = chart.slopes[chart.slopes.length - 1].rate;
  let last = -Infinity;
  for (const ceiling of chart.ceilings) {
    const at = y(ceiling.rate), ridge = x(ceiling.rate / steepest);
    last = Math.max(at + 4, last + GAP);
    svg.append(line(ridge, at, W - RIGHT, at, "roof", ceiling.rate === top ? 1.8 : 0.8));
    svg.append(make("path", { d: `M${ridge - 4} ${at}l4 -4l4 4l-4 4z`, class: "mark" }));
    svg.append(make("text", { x: W - RIGHT + 8, y: last }, ceiling.text));
  }
  svg.append(line(x(chart.ridge), TOP, x(chart.ridge), H - BOTTOM, "ridge"));
  const [side, anchor] = x(chart.ridge) > (LEFT + W - RIGHT) / 2 ? [-5, "end"] : [5, "start"];
  svg.append(make("text", { x: x(chart.ridge) + side, y: H - BOTTOM - 6, "text-anchor": anchor, class: "soft" }, chart.ridge_text));

  const longest = Math.max(1e-30, ...chart.dots.map((d) => d.seconds));
  const groups = new Map();
  for (const dot of [...chart.dots].sort((a, b) => b.seconds - a.seconds)) {
    if (!groups.has(dot.legend)) groups.set(dot.legend, svg.appendChild(make("g")));
    const circle = make("circle", {
      cx: x(dot.intensity), cy: y(dot.rate), r: Math.max(2.2, 13 * Math.sqrt(dot.seconds / longest)),
      fill: chart.colours[dot.legend] ?? chart.other, class: "dot",
    });
    groups.get(dot.legend).append(explained(circle, dot.text));
  }
  const arrows = svg.appendChild(make("g"));
  for (const arrow of chart.arrows) {
    const [a, b, c, d] = [x(arrow.before[0]), y(arrow.before[1]), x(arrow.after[0]), y(arrow.after[1])];
    const turn = Math.atan2(d - b, c - a) * 180 / Math.PI;
    arrows.append(explained(line(a, b, c, d, "hit"), arrow.text), line(a, b, c, d, "arrow", 1.2));
    arrows.append(make("path", { d: "M0 0l-7 -3.2v6.4z", class: "mark", transform: `translate(${c} ${d}) rotate(${turn})` }));
    arrows.append(make("circle", { cx: a, cy: b, r: 2.6, class: "start" }));
  }

  const tools = make("div", { class: "tools" });
  const toggle = (text, colour, group) => {
    const button = make("button", { type: "button", "aria-pressed": "true" });
    if (colour) {
      const swatch = make("span", { class: "swatch" });
      swatch.style.background = colour;
      button.append(swatch);
    }
    button.append(text);
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      group.style.display = shown ? "" : "none";
    });
    tools.append(button);
  };
  for (const [name, text] of chart.legend) toggle(text, chart.colours[name] ?? chart.other, groups.get(name));
  if (chart.arrows.length) toggle(chart.arrows_text, null, arrows);
  return [make("div", { class: "chart" }, svg), tools];
}

// --- tables: a cell is a text, or [number or null, text] ------------------------------------------------------------

const value = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const said = (cell) => (Array.isArray(cell) ? cell[1] : cell);

function order(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
}

function table(view) {
  const body = make("tbody");
  const rows = view.rows.map((cells) => {
    const row = make("tr");
    cells.forEach((cell, i) => {
      const kind = view.columns[i][1];
      const drawn = make("td", { class: kind === "bar" ? "right bar" : kind }, said(cell));
      if (kind === "bar") drawn.style.backgroundSize = `${100 * (value(cell) ?? 0)}% 70%`;
      row.append(drawn);
    });
    return { cells, row, text: cells.map(said).join("\n").toLowerCase() };
  });
  body.append(...rows.map((r) => r.row));
  const heads = view.columns.map(([title, kind], i) => {
    const button = make("button", { type: "button" }, title);
    const head = make("th", { class: kind === "bar" ? "right" : kind, scope: "col" }, button);
    button.addEventListener("click", () => {
      const numeric = kind === "bar" || kind === "right";
      const now = head.getAttribute("aria-sort");
      const sort = now ? (now === "descending" ? "ascending" : "descending") : numeric ? "descending" : "ascending";
      heads.forEach((h) => { h.removeAttribute("aria-sort"); h.firstChild.textContent = h.dataset.title; });
      head.setAttribute("aria-sort", sort);
      button.textContent = `${title} ${sort === "descending" ? "▼" : "▲"}`;
      rows.sort((a, b) => order(value(a.cells[i]), value(b.cells[i]), sort === "descending" ? -1 : 1));
      body.append(...rows.map((r) => r.row));
    });
    head.dataset.title = title;
    return head;
  });
  const drawn = make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  const filter = make("input", { type: "search", placeholder: "filter", "aria-label": "filter rows" });
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const r of rows) r.row.hidden = !r.text.includes(wanted);
  });
  return { drawn, filter: rows.length > 12 ? filter : null };
}

function section(part) {
  main.append(make("h2", {}, part.title));
  if (part.note) main.append(make("p", {}, part.note));
  const tools = make("div", { class: "tools" }), place = make("div");
  const show = (view, button) => {
    for (const other of tools.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    const { drawn, filter } = table(view);
    tools.querySelector("input")?.remove();
    if (filter) tools.append(filter);
    place.replaceChildren(...(view.note ? [make("p", {}, view.note)] : []), drawn);
  };
  const buttons = part.views.map((view) => {
    const button = make("button", { type: "button" }, view.name);
    button.addEventListener("click", () => show(view, button));
    return button;
  });
  if (buttons.length > 1) tools.append(...buttons);
  main.append(tools, place);
  show(part.views[0], buttons[0]);
}

const LONG = 240;

// A text; of a long one, such as the formula of a large model, only the start until it is opened.
function folded(text) {
  if (text.length <= LONG) return text;
  const start = `${text.slice(0, LONG / 2)}… (${text.length.toLocaleString("en")} characters)`;
  return make("details", {}, make("summary", {}, start), text);
}

main.append(make("h1", {}, data.title), make("p", {}, data.subtitle));
const facts = make("dl");
for (const [name, text] of data.facts) facts.append(make("dt", {}, name), make("dd", {}, folded(text)));
main.append(facts, make("h2", {}, "Roofline"), make("p", {}, data.chart.note), ...roofline(data.chart));
data.sections.forEach(section);
