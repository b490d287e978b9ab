"use strict";
// How values, intervals, tables, trees and pictures look. Nothing is computed here but positions on the screen.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const GRADES = { measured: "m", calibrated: "c", borrowed: "b", guessed: "g" };
const GRADE_MEANING = {
  measured: "measured on this system",
  calibrated: "fitted on runs of this architecture, precision and software",
  borrowed: "fitted on runs of relatives",
  guessed: "no runs near it",
};

function digits(value, most = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-4) return value.toExponential(most - 1);
  if (size >= 10 ** (most - 1)) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(most)));
}

const SCALES = {
  s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]],
  B: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  W: [[1e6, "MW"], [1e3, "kW"], [1, "W"]],
  J: [[1e9, "GJ"], [1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"]],
};

function shown(value, unit) {
  if (value === null || value === undefined) return "unknown";
  if (typeof value !== "number") return String(value);
  const scales = SCALES[unit];
  if (scales && value !== 0) {
    const [scale, name] = scales.find(([size]) => Math.abs(value) >= size) || scales[scales.length - 1];
    return `${digits(value / scale)} ${name}`;
  }
  return unit && unit !== "1" ? `${digits(value)} ${unit}` : digits(value, 4);
}

const words = (name) => name.replaceAll("_", " ");
const isMetric = (x) => x !== null && typeof x === "object" && "value" in x && "low" in x && "high" in x;
const isTree = (x) => x !== null && typeof x === "object" && "name" in x && "value" in x && ("formula" in x || "parts" in x);
const isSourced = (x) => x !== null && typeof x === "object" && "value" in x && "text" in x && "source" in x;
const isScalar = (x) => x === null || typeof x !== "object";

// Intervals --------------------------------------------------------------------------------------

// A range on a logarithmic axis: `least` to `most`, by default a factor of four either side of the value.
function range(metric, least = null, most = null) {
  const { value, low, high } = metric;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 14");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "range");
  svg.setAttribute("role", "img");
  const said = `${shown(low, metric.unit)} to ${shown(high, metric.unit)}`;
  svg.setAttribute("aria-label", `90% interval ${said}`);
  const title = document.createElementNS(svg.namespaceURI, "title");
  title.textContent = `90% interval: ${said}`;
  svg.append(title);
  if (!(value > 0) || !(low > 0) || !(high > 0)) return svg;
  const from = Math.log(least ?? Math.min(low, value / 4)), to = Math.log(most ?? Math.max(high, value * 4));
  const at = (x) => (to > from ? Math.max(0, Math.min(100, (100 * (Math.log(x) - from)) / (to - from))) : 50);
  const put = (name, parts) => {
    const node = document.createElementNS(svg.namespaceURI, name);
    for (const [key, part] of Object.entries(parts)) node.setAttribute(key, part);
    svg.append(node);
  };
  put("line", { class: "axis", x1: 0, x2: 100, y1: 7, y2: 7 });
  put("rect", { class: "span", x: at(low), width: Math.max(0.6, at(high) - at(low)), y: 3, height: 8 });
  put("rect", { class: "mark", x: Math.min(98.6, Math.max(0, at(value) - 0.7)), width: 1.4, y: 0, height: 14 });
  return svg;
}

function grade(metric) {
  if (!metric.grade) return null;
  const causes = Object.entries(metric.causes || {}).sort((a, b) => b[1] - a[1]);
  const why = causes.map(([name, size]) => `${name} ±${(100 * size).toFixed(0)}%`).join(", ");
  const said = `${metric.grade}: ${GRADE_MEANING[metric.grade]}${why ? `. Why it may be off: ${why}` : ""}`;
  return el("span", { class: "grade", title: said, tabindex: 0, role: "img", "aria-label": said }, GRADES[metric.grade]);
}

function metricTable(metrics, caption) {
  const rows = Object.entries(metrics).map(([name, one]) =>
    el("tr", {}, el("th", { scope: "row" }, words(name)), el("td", { class: "number" }, shown(one.value, one.unit), " ", grade(one)),
      el("td", {}, range(one), el("span", { class: "interval" }, `${shown(one.low, one.unit)} – ${shown(one.high, one.unit)}`))));
  const head = ["figure", "value, grade", "90% interval"].map((name) => el("th", { scope: "col" }, name));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption || "Figures" },
    el("table", {}, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}

// Tables and objects -----------------------------------------------------------------------------

function flat(row, before = "", depth = 0) {
  const out = {};
  for (const [name, value] of Object.entries(row)) {
    if (isMetric(value)) out[before + name] = value;
    else if (isSourced(value)) out[before + name] = value;
    else if (isScalar(value)) out[before + name] = value;
    else if (!Array.isArray(value) && depth < 1) Object.assign(out, flat(value, `${before}${name} `, depth + 1));
    else if (Array.isArray(value) && value.every(isScalar)) out[before + name] = value.join(", ");
  }
  return out;
}

function cell(value) {
  if (value === undefined || value === null || value === "") return el("td", {}, "");
  if (isMetric(value)) return el("td", { class: "number", title: `90% interval: ${shown(value.low, value.unit)} to ${shown(value.high, value.unit)}` }, shown(value.value, value.unit));
  if (isSourced(value)) return el("td", { class: "number", title: `${value.text}; ${value.source}` }, shown(value.value, value.unit));
  if (typeof value === "number") return el("td", { class: "number" }, Number.isInteger(value) ? value.toLocaleString("en") : digits(value, 4));
  return el("td", {}, typeof value === "boolean" ? (value ? "yes" : "no") : String(value));
}

const FIRST = 40;

function table(rows, caption) {
  const flattened = rows.map((row) => flat(row));
  const names = [...new Set(flattened.flatMap((row) => Object.keys(row)))];
  const line = (row) => el("tr", {}, names.map((name) => cell(row[name])));
  const body = el("tbody", {}, flattened.slice(0, FIRST).map(line));
  const whole = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, words(name))))), body));
  if (rows.length <= FIRST) return whole;
  const more = el("button", { type: "button", onclick: () => { body.replaceChildren(...flattened.map(line)); more.remove(); } }, `Show all ${rows.length.toLocaleString("en")} rows`);
  return el("div", {}, whole, more);
}

const APART = new Set(["schema_version", "command", "status", "versions", "inputs", "warnings", "sources", "source_ids", "error", "no_plan", "search"]);

// Any object of an answer: figures as a table with intervals, scalars as a list, lists of objects as tables, the rest folded.
function object(value, depth = 0, leave = APART) {
  const out = el("div", {}), metrics = {}, scalars = [], parts = [];
  for (const [name, one] of Object.entries(value)) {
    if (depth === 0 && leave.has(name)) continue;
    if (one === null || one === undefined) continue;
    if (isMetric(one)) metrics[name] = one;
    else if (isSourced(one)) scalars.push([name, el("span", { title: one.source }, `${shown(one.value, one.unit)} `, el("span", { class: "help" }, `(${one.text}; ${one.source})`))]);
    else if (isScalar(one)) { if (name !== "unit" || depth === 0) scalars.push([name, typeof one !== "number" ? String(one) : typeof value.unit === "string" ? shown(one, value.unit) : digits(one, 6)]); }
    else if (isTree(one)) parts.push([name, tree(one)]);
    else if (Array.isArray(one)) {
      if (!one.length) continue;
      if (one.every(isScalar)) scalars.push([name, one.join(", ")]);
      else if (one.every(isTree)) parts.push([name, el("div", {}, one.map((each) => tree(each)))]);
      else parts.push([name, table(one, words(name))]);
    } else parts.push([name, object(one, depth + 1)]);
  }
  if (Object.keys(metrics).length) out.append(metricTable(metrics));
  if (scalars.length) out.append(el("dl", {}, scalars.flatMap(([name, one]) => [el("dt", {}, words(name)), el("dd", {}, one)])));
  for (const [name, one] of parts) out.append(part(words(name), one, depth === 0));
  return out;
}

function part(name, content, open = false) {
  return el("details", { class: "part", open }, el("summary", {}, name), content);
}

// Trees ------------------------------------------------------------------------------------------

function tree(term, open = true) {
  const head = [el("strong", {}, term.name), ` = ${shown(term.value, term.unit)} `];
  const about = [];
  if (term.formula) about.push(el("div", { class: "formula" }, term.formula));
  if (term.law) about.push(el("div", { class: "sources" }, `law: ${term.law}`));
  if (term.sources && term.sources.length) about.push(el("div", { class: "sources" }, `sources: ${term.sources.join("; ")}`));
  if (!term.parts || !term.parts.length) return el("div", { class: "tree", title: [term.formula, ...(term.sources || [])].filter(Boolean).join("\n") }, el("div", {}, head), about);
  const joined = { sum: "sum of", max: "the longest of" }[term.combine] || term.combine || "of";
  return el("details", { class: "tree", open }, el("summary", {}, head, el("span", { class: "help" }, `${joined} ${term.parts.length}`)), about,
    el("ul", {}, term.parts.map((one) => el("li", {}, tree(one, false)))));
}

function treesOf(value, path = []) {
  if (isScalar(value)) return [];
  if (isTree(value)) return [[path, value]];
  return Object.entries(value).flatMap(([name, one]) => treesOf(one, [...path, name]));
}

// Memory -----------------------------------------------------------------------------------------

const MEMORY = ["weights", "kv_cache", "activations", "runtime", "free", "left_alone"];

function memoryBar(memory) {
  const parts = MEMORY.map((name, place) => [name, memory[name], place]).filter(([, size]) => size > 0);
  const whole = parts.reduce((sum, [, size]) => sum + size, 0);
  const said = parts.map(([name, size]) => `${words(name)} ${shown(size, "B")}`).join(", ");
  const bar = el("div", { class: "memory", role: "img", "aria-label": `Memory of a device: ${said}` });
  for (const [name, size, place] of parts) {
    const piece = el("span", { class: `c${place}`, title: `${words(name)}: ${shown(size, "B")}` });
    piece.style.width = `${(100 * size) / whole}%`;
    bar.append(piece);
  }
  const legend = parts.map(([name, size, place]) => el("li", {}, el("i", { class: `c${place}` }), `${words(name)} ${shown(size, "B")}`));
  return el("div", {}, bar, el("ul", { class: "legend" }, legend));
}

// Addresses of the answers that stand side by side, the newest last, kept by this browser alone.
const MOST_BESIDE = 4;

function keptBeside() { try { return JSON.parse(localStorage.getItem("beside")) || []; } catch { return []; } }

function keepBeside(list) { try { localStorage.setItem("beside", JSON.stringify(list)); } catch { /* nothing is kept in a private window */ } }

function sideBySide(list) { const query = new URLSearchParams(); for (const one of list) query.append("ask", one); return `/side-by-side?${query}`; }

// What a plan is called: machine, degrees, engine, format, users.
function heading(plan) {
  if (plan.stages) return plan.stages.map((one) => `${one.member} layers ${one.layers.join("–")}`).join(" · ");
  const degrees = plan.strategy ? Object.entries(plan.strategy).filter(([, n]) => typeof n === "number" && n > 1).map(([name, n]) => `${name}${n}`).join(" ") : "";
  return [plan.machine && plan.machine.text, degrees || "one device", plan.engine || plan.framework, plan.precision && plan.precision.weights, plan.concurrency && `${plan.concurrency} users`].filter(Boolean).join(" · ");
}

// Pictures ---------------------------------------------------------------------------------------

function theme() {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: ink, tickColor: ink };
  return { background: null, title: { color: ink, anchor: "start", frame: "bounds" }, axis, legend: { labelColor: ink, titleColor: ink, symbolBaseFillColor: ink, symbolBaseStrokeColor: ink }, view: { stroke: line }, text: { color: ink }, rule: { color: ink }, header: { labelColor: ink, titleColor: ink } };
}

function fitted(spec, width, over = 0) {
  const room = width > 1130 && !spec.hconcat ? width / 2 - 12 : width;
  const beside = spec.autosize ? 0 : 150;  // such a width holds labels and legends too
  const most = Math.max(160, Math.min(spec.width || 640, room - beside) - over / (spec.hconcat || [1]).length);
  const narrow = (one) => ({ ...one, ...(typeof one.width === "number" ? { width: Math.min(one.width, most) } : {}) });
  const out = narrow(spec);
  for (const many of ["hconcat", "vconcat", "concat"]) if (out[many]) out[many] = out[many].map(narrow);
  if (typeof out.title === "string") out.title = lines(out.title, Math.max(30, Math.floor((spec.autosize ? most : room) / 7.8)));
  if (out.hconcat && width < 900) { out.vconcat = out.hconcat; delete out.hconcat; }
  return recoloured(out, 0.4 * room);
}

// A text in lines of at most so many characters.
function lines(text, most) {
  const out = [""];
  for (const word of text.split(" ")) {
    const longer = `${out.at(-1)} ${word}`.trim();
    if (longer.length > most && out.at(-1)) out.push(word); else out[out.length - 1] = longer;
  }
  return out;
}

// Black marks follow the ink of the page; labels leave room for what they label.
function recoloured(value, label) {
  if (Array.isArray(value)) return value.map((one) => recoloured(one, label));
  if (value === null || typeof value !== "object") return value;
  const out = {};
  for (const [name, one] of Object.entries(value)) {
    if (name === "values" || name === "data") out[name] = one;
    else if (name === "labelLimit") out[name] = Math.min(one, label);
    else out[name] = one === "black" ? getComputedStyle(document.documentElement).getPropertyValue("--ink").trim() : recoloured(one, label);
  }
  return out;
}

// What stands beside the pointer, inside the window.
function tooltip(_, event, __, value) {
  let box = document.getElementById("vg-tooltip-element");
  if (!box) { box = el("div", { id: "vg-tooltip-element", "aria-hidden": "true" }); document.body.append(box); }
  box.classList.toggle("visible", value !== null && value !== undefined && value !== "");
  if (!box.classList.contains("visible")) return;
  const rows = typeof value === "object" ? Object.entries(value).filter(([, one]) => one !== "" && one !== null) : [["", value]];
  box.replaceChildren(el("table", {}, rows.map(([name, one]) => el("tr", {}, el("td", { class: "key" }, name), el("td", {}, typeof one === "number" ? digits(one, 4) : String(one))))));
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 4))}px`;
}

async function pictures(specs, place) {
  let drawn = 0;
  for (const spec of specs) {
    const box = el("figure", { class: spec.hconcat ? "chart wide" : "chart", tabindex: 0, role: "group", "aria-label": typeof spec.title === "string" ? spec.title : "Picture" });
    place.append(box);
    const options = { actions: { export: true, source: false, compiled: false, editor: false }, renderer: "svg", ast: true, defaultStyle: false, config: theme(), tooltip };
    const draw = async (over) => { await vegaEmbed(box, fitted(spec, place.clientWidth || 720, over), options); return box.querySelector("svg.marks"); };
    try {
      const over = (await draw(0)).width.baseVal.value - box.clientWidth;  // labels and legends stand beside what has a width
      const drawing = over > 0 ? await draw(over) : box.querySelector("svg.marks");
      drawing.setAttribute("aria-hidden", "true");
      drawn += 1;
    } catch (fault) { console.error(fault); box.append(el("p", { class: "error" }, `This picture cannot be drawn: ${fault.message}`)); }
  }
  place.dataset.drawn = drawn;
}

// Asking -----------------------------------------------------------------------------------------

// Asks for the answer of a question as a page shows it; tells of progress; can be stopped.
async function ask(path, inputs, { told = () => {}, signal } = {}) {
  const response = await fetch(`/page/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ inputs }), signal });
  if (!response.ok || !response.body) {
    const text = await response.text();
    try { return { document: JSON.parse(text), text: "", pictures: [], rows: [], remarks: [] }; } catch { throw new Error(text.trim() || `the server says ${response.status}`); }
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the server ended before its answer");
    held += value;
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const [kind, data] = held.slice(0, end).split("\n", 2).map((line) => line.slice(line.indexOf(":") + 2));
      held = held.slice(end + 2);
      if (kind === "progress") told(JSON.parse(data));
      else return { text: "", pictures: [], rows: [], remarks: [], ...JSON.parse(data) };
    }
  }
}

// Inputs of an address: texts, lists of what stands several times, and a configuration behind #.
async function inputsOf(address) {
  const url = new URL(address, location.origin);
  const inputs = {};
  for (const name of new Set(url.searchParams.keys())) {
    const values = url.searchParams.getAll(name).filter((one) => one !== "");
    if (values.length) inputs[name] = values.length > 1 ? values : values[0];
  }
  const packed = new URLSearchParams(url.hash.slice(1)).get("config");
  if (packed) {
    try { inputs.model = JSON.parse(await unpacked(packed)); } catch { throw new Error("the configuration behind # is damaged; copy the whole link"); }
  }
  return inputs;
}

async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let plain = "";
  for (const one of bytes) plain += String.fromCharCode(one);
  return btoa(plain).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpacked(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const stream = new Blob([Uint8Array.from(plain, (one) => one.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

function failure(document) {
  if (document.error) return el("div", { class: "error", role: "alert" }, el("p", {}, document.error.message));
  if (document.no_plan) return el("div", { class: "error", role: "alert" }, el("p", {}, document.no_plan.message));
  return null;
}
