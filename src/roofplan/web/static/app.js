"use strict";
// A page: the address becomes a form, the form becomes an address, and the answer stands below.

const form = document.getElementById("question"), answer = document.getElementById("answer");
const status_ = document.getElementById("status"), bar = document.getElementById("progress"), stop = document.getElementById("stop");
const path = form.dataset.question;
let running = null, config = null, misread = "";

// The form ---------------------------------------------------------------------------------------

const boxes = (name) => [...form.querySelectorAll(`[name="${CSS.escape(name)}"]`)];

function addBox(first) {
  const box = first.cloneNode();
  box.value = "";
  box.id = "";
  box.removeAttribute("placeholder");
  box.required = false;
  box.setAttribute("aria-label", `${first.name}, another`);
  const line = el("div", { class: "again" }, box, el("button", { type: "button", "aria-label": `Remove this ${first.name}`, onclick: () => line.remove() }, "−"));
  const all = boxes(first.name);
  const last = all[all.length - 1];
  (last.closest(".again") || last).after(line);
  return box;
}

for (const first of form.querySelectorAll("[data-several]")) {
  first.after(el("button", { type: "button", class: "another", onclick: () => addBox(first).focus() }, "Another"));
}

async function fill(inputs) {
  for (const line of form.querySelectorAll(".again")) line.remove();
  for (const box of form.elements) {
    if (box.type === "checkbox") box.checked = false;
    else if (box.name) box.value = "";
  }
  useConfig("");
  for (const [name, value] of Object.entries(inputs)) {
    const [first] = boxes(name);
    if (!first) continue;
    if (name === "model" && typeof value === "object" && !Array.isArray(value)) { useConfig(JSON.stringify(value)); continue; }
    if (first.type === "checkbox") { first.checked = value === true || value === "true" || value === "1"; continue; }
    const values = Array.isArray(value) ? value : [value];
    first.value = values[0];
    for (const other of values.slice(1)) {
      if (first.dataset.several) addBox(first).value = other;
      else first.value += `,${other}`;
    }
    if (first.closest("details.more")) first.closest("details.more").open = true;
  }
}

function given() {
  const inputs = {};
  for (const box of form.elements) {
    if (!box.name || (box.type === "checkbox" ? !box.checked : !box.value.trim())) continue;
    const value = box.type === "checkbox" ? true : box.value.trim();
    if (boxes(box.name)[0].dataset.several) (inputs[box.name] ||= []).push(value);
    else inputs[box.name] = value;
  }
  if (config) inputs.model = config;
  return inputs;
}

async function address(inputs, before = `/${path}`) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(inputs)) {
    if (name === "model" && typeof value === "object") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, one);
  }
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%40", "@");
  const hash = typeof inputs.model === "object" && inputs.model ? `#config=${await packed(JSON.stringify(inputs.model))}` : "";
  return `${before}${text ? `?${text}` : ""}${hash}`;
}

// A configuration --------------------------------------------------------------------------------

const configBox = document.getElementById("config"), configFile = document.getElementById("config-file");

function useConfig(text) {
  const model = boxes("model")[0];
  config = null;
  misread = "";
  if (!model || !configBox) return;
  try { config = text.trim() ? JSON.parse(text) : null; } catch (fault) { misread = `The config.json cannot be read: ${fault.message}`; }
  if (!misread && text.trim() && (config === null || typeof config !== "object" || Array.isArray(config))) { config = null; misread = "A config.json is a JSON object."; }
  if (misread) say(misread);
  model.required = !config && model.hasAttribute("aria-required");
  model.disabled = Boolean(config);
  model.placeholder = config ? `config.json of a ${config.model_type || "model"}` : "";
  if (configBox.value !== text) configBox.value = text;
  if (config) configBox.closest("details").open = true;
}

if (configBox) {
  configBox.addEventListener("change", () => useConfig(configBox.value));
  configFile.addEventListener("change", async () => { if (configFile.files[0]) useConfig(await configFile.files[0].text()); });
}

// Asking -----------------------------------------------------------------------------------------

function say(text) { status_.textContent = text; }

async function run(inputs, { keep = true, quiet = false } = {}) {
  if (running) running.abort();
  const mine = (running = new AbortController());
  if (keep) history.pushState(null, "", await address(inputs));
  stop.hidden = false;
  answer.setAttribute("aria-busy", "true");
  say("Working …");
  const started = performance.now();
  try {
    const bundle = await ask(path, inputs, {
      signal: mine.signal,
      told: ({ done, whole, what }) => { bar.hidden = false; bar.max = whole || 1; bar.value = done; say(`${done.toLocaleString("en")} of ${whole.toLocaleString("en")} ${what}`); },
    });
    if (running !== mine) return;
    await render(bundle, inputs);
    const seconds = (performance.now() - started) / 1e3;
    say(bundle.document.status === "ok" ? `Answered in ${digits(seconds)} s.` : bundle.document.status === "no_plan" ? "No plan." : "The question cannot be answered.");
    if (!quiet) answer.focus({ preventScroll: true });
  } catch (fault) {
    if (running !== mine) return;
    say(fault.name === "AbortError" ? "Stopped." : `No answer: ${fault.message}`);
  } finally {
    if (running === mine) { running = null; stop.hidden = true; bar.hidden = true; answer.removeAttribute("aria-busy"); }
  }
}

stop.addEventListener("click", () => {
  if (!running) return;
  running.abort();
  answer.replaceChildren();
  form.querySelector("button[type=submit]").focus();
});
form.addEventListener("submit", (event) => { event.preventDefault(); if (misread) say(misread); else run(given()); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); answer.focus(); });
addEventListener("popstate", () => open_(false));

function change(more) {
  const inputs = { ...given(), ...more };
  fill(inputs).then(() => run(inputs));
}

// The answer -------------------------------------------------------------------------------------

async function copied(text, button) {
  try { await navigator.clipboard.writeText(text); } catch {
    const box = el("textarea", { class: "skip" }); box.value = text; document.body.append(box); box.select(); document.execCommand("copy"); box.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}

function copier(label, text) {
  return text ? el("button", { type: "button", "data-copies": text, onclick: (event) => copied(text, event.currentTarget) }, label) : null;
}

function launchOf(document) {
  const plan = (document.plans || [])[0];
  return plan ? [plan.launch, plan.emit].find((one) => typeof one === "string") : null;
}

async function tools(bundle, inputs) {
  const { document: found } = bundle;
  const out = el("div", { class: "tools" }, copier("Copy command", bundle.command), copier("Copy Python", bundle.python), copier("Copy JSON", JSON.stringify(found, null, 1)), copier("Copy launch line", launchOf(found)));
  out.append(el("button", { type: "button", id: "save", onclick: () => save(inputs) }, "Save as a file"));
  out.append(el("button", { type: "button", onclick: () => print() }, "Print"));
  if (found.plans) {
    const mine = await address(inputs);
    const besides = () => [...keptBeside().filter((one) => one !== mine), mine].slice(-MOST_BESIDE);
    out.append(el("a", { class: "button", href: sideBySide(besides()), onclick: (event) => { keepBeside(besides()); event.currentTarget.href = sideBySide(keptBeside().length ? keptBeside() : [mine]); } }, "Set beside"));
  }
  if (inputs.model && typeof inputs.model === "object") out.append(el("button", { type: "button", onclick: () => download(new Blob([JSON.stringify(inputs.model, null, 1)]), "config.json") }, "Save config.json"));
  else out.append(el("a", { class: "button", href: await address(inputs, `/api/${path}`) }, "JSON"));
  return out;
}

function download(blob, name) {
  const place = URL.createObjectURL(blob);
  const link = el("a", { href: place, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(place), 10_000);
}

async function save(inputs) {
  try {
    const response = await fetch(`/save/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ inputs }) });
    if (!response.ok) throw new Error(`the server says ${response.status}`);
    download(await response.blob(), `roofplan-${path.replaceAll("/", "-")}.html`);
  } catch (fault) { say(`Not saved: ${fault.message}`); }
}

function remedies(found) {
  const out = [];
  const wrong = found.error ? String(found.error.value ?? "") : "";
  const box = wrong && [...form.elements].find((one) => one.name && one.type === "text" && one.value.toLowerCase().includes(wrong.toLowerCase()));
  if (box) for (const one of found.error.nearest || []) {
    const at = box.value.toLowerCase().indexOf(wrong.toLowerCase());
    const mended = box.value.slice(0, at) + one + box.value.slice(at + wrong.length);
    out.push(el("button", { type: "button", onclick: () => { box.value = mended; run(given()); } }, `Did you mean ${one}?`));
  }
  if (found.no_plan) for (const one of found.no_plan.relax || []) {
    const changes = { [one.argument.replace(/^--/, "").replaceAll("-", "_")]: String(one.needed), ...Object.fromEntries(Object.entries(one.also || {}).map(([name, value]) => [name.replace(/^--/, "").replaceAll("-", "_"), String(value)])) };
    for (const name of Object.keys(changes)) if (boxes(name).length && boxes(name)[0].dataset.several) changes[name] = [changes[name]];
    out.push(el("button", { type: "button", onclick: () => change(changes) }, one.text || `${one.argument} ${one.needed}`));
  }
  return out.length ? el("p", { class: "buttons" }, out) : null;
}

function planCard(plan, number) {
  const rest = Object.fromEntries(Object.entries(plan).filter(([name]) => !["metrics", "memory", "explain", "id", "strategy", "machine", "source_ids", "launch", "reproduce", "points"].includes(name)));
  const out = el("article", { class: "plan" }, el("h3", {}, `${number}. ${heading(plan)}`));
  if (plan.bound) out.append(el("p", { class: "help" }, Object.entries(plan.bound).filter(([, one]) => one && one.limit).map(([phase, one]) => `${phase}: ${words(one.limit)} binds (${Math.round(100 * one.share)}%)`).join(" · ")));
  if (plan.metrics) out.append(metricTable(plan.metrics));
  if (["serve", "train"].includes(path) && !Object.keys(plan.metrics || {}).some((name) => name.startsWith("cost"))) out.append(el("p", { class: "help" }, "Cost: absent, since no price of this machine is known. Give one under price, such as 2.50USD/h."));
  if (plan.memory && plan.memory.capacity && plan.memory.weights) out.append(el("h4", {}, "Memory of a device"), memoryBar(plan.memory));
  else if (plan.memory) out.append(part("memory", object(plan.memory, 1)));
  if (plan.points && plan.points.length) out.append(part("other loads", table(plan.points, "Other loads")));
  out.append(part("more of this plan", object(rest, 1)));
  if (plan.launch) out.append(part("launch", typeof plan.launch === "string" ? el("pre", { tabindex: 0 }, plan.launch) : object(plan.launch, 1)));
  if (plan.reproduce) out.append(part("reproduce", el("pre", { tabindex: 0 }, plan.reproduce)));
  return out;
}

function why(inputs) {
  if (form.dataset.explains !== "1") return null;
  const box = el("details", { class: "part", id: "why" }, el("summary", {}, "Why: formulas, numbers and sources"));
  box.addEventListener("toggle", async () => {
    if (!box.open || box.dataset.asked) return;
    box.dataset.asked = "1";
    const wait = el("p", {}, "Working …");
    box.append(wait);
    try {
      const { document: found } = await ask(path, { ...inputs, explain: true, depth: "12" });
      const every = treesOf({ ...found, sources: null });
      wait.replaceWith(...(every.length ? every.map(([, one]) => tree(one)) : [el("p", {}, "Nothing is computed here.")]));
      if (found.sources) box.append(part("sources", object(found.sources, 1)));
    } catch (fault) { wait.textContent = `No answer: ${fault.message}`; delete box.dataset.asked; }
  });
  return box;
}

async function render(bundle, inputs) {
  const { document: found } = bundle;
  const parts = [];
  const refused = failure(found);
  if (refused) parts.push(refused, remedies(found));
  for (const one of found.warnings || []) parts.push(el("p", { class: "warning" }, one.text));
  for (const one of bundle.remarks || []) parts.push(el("p", { class: "warning" }, one));
  if (found.status === "ok" || !found.status) {
    parts.push(el("p", { class: "asked" }, bundle.command || ""), await tools(bundle, inputs));
    if (found.plans && found.plans.length) {
      parts.push(el("h2", {}, found.plans.length > 1 ? "Plans, best first" : "The plan"), el("div", { class: "plans" }, found.plans.map((plan, place) => planCard(plan, place + 1))));
      if (path === "serve") parts.push(explorer(found, inputs));
    }
    const { plans, ...rest } = found;
    const drawings = el("section", { class: "charts", "aria-label": "Pictures" });
    if (!plans && bundle.text) parts.push(el("pre", { tabindex: 0, "aria-label": "The answer as text" }, bundle.text));
    if (bundle.pictures.length) parts.push(el("h2", {}, "Pictures"), drawings);
    parts.push(why(inputs));
    parts.push(el("h2", {}, plans ? "More" : "Every figure"), object(rest));
    if (bundle.rows.length > 1) parts.push(part(`every row (${bundle.rows.length.toLocaleString("en")})`, table(bundle.rows, "Rows")));
    if (plans && bundle.text) parts.push(part("as text", el("pre", { tabindex: 0 }, bundle.text)));
    if (found.sources) parts.push(part("sources", object(found.sources, 1)));
    answer.replaceChildren(...parts.filter(Boolean));
    if (bundle.pictures.length) await pictures(bundle.pictures, drawings);
  } else {
    parts.push(copierRow(bundle));
    if (bundle.text) parts.push(part("as text", el("pre", { tabindex: 0 }, bundle.text), true));
    answer.replaceChildren(...parts.filter(Boolean));
  }
  answer.dataset.status = found.status || "ok";
  if (bundle.command) document.title = `${bundle.command.replace(/^roofplan /, "")} · roofplan`;
}

function copierRow(bundle) {
  return bundle.command ? el("div", { class: "tools" }, copier("Copy command", bundle.command), copier("Copy Python", bundle.python)) : null;
}

// Memory of a rank, with sliders -----------------------------------------------------------------

function explorer(found, inputs) {
  const plan = found.plans[0];
  const place = el("div", {}, memoryBar(plan.memory)), said = el("p", { class: "help", role: "status" });
  const pinned = { ...inputs, on: [plan.machine.text], engine: plan.engine, top: "1" };
  for (const name of ["tpot", "ttft", "budget", "power", "devices", "rate", "slo", "best", "context"]) delete pinned[name];
  const most = plan.machine.count;
  const degrees = [1, 2, 4, 8, 16, 32, 64].filter((one) => one <= most && most % one === 0);
  const state = { input: Number(found.inputs.input) || 1024, users: plan.concurrency, tp: plan.strategy.tp, precision: inputs.precision || "" };
  let asking = null, later = 0;
  const update = () => { clearTimeout(later); later = setTimeout(again, 120); };
  async function again() {
    if (asking) asking.abort();
    const mine = (asking = new AbortController());
    const other = { ...pinned, input: String(Math.round(state.input)), concurrency: String(Math.round(state.users)), strategy: `tp=${state.tp},pp=${plan.strategy.pp}` };
    if (state.precision) other.precision = state.precision; else delete other.precision;
    try {
      const { document: now } = await ask("serve", other, { signal: mine.signal });
      if (asking !== mine) return;
      if (now.status === "ok") {
        const best = now.plans[0];
        place.replaceChildren(memoryBar(best.memory));
        said.textContent = `${heading(best)}: TPOT ${shown(best.metrics.tpot.value, "s")} [${shown(best.metrics.tpot.low, "s")}, ${shown(best.metrics.tpot.high, "s")}]`;
      } else {
        place.replaceChildren();
        const { message, relax = [] } = now.no_plan || now.error;
        said.textContent = relax.length ? `${message}; smallest change: ${relax[0].text}` : message;
      }
    } catch (fault) { if (fault.name !== "AbortError") said.textContent = fault.message; }
  }
  const slider = (name, label, least, top, read, show) => {
    const out = el("output", {}, read() ? show(read()) : "default");
    const box = el("input", { type: "range", min: Math.log2(least), max: Math.log2(top), step: "0.25", "aria-label": label });
    box.value = Math.log2(Math.max(least, read() || 0));
    box.addEventListener("input", () => { state[name] = Math.round(2 ** Number(box.value)); out.textContent = show(state[name]); update(); });
    return el("label", {}, `${label}: `, out, box);
  };
  const choice = (name, label, values) => {
    const box = el("select", { "aria-label": label, onchange: () => { state[name] = box.value; update(); } }, values.map(([value, text]) => el("option", { value, selected: String(state[name]) === String(value) }, text)));
    return el("label", {}, `${label} `, box);
  };
  const count = (value) => Math.round(value).toLocaleString("en");
  return el("section", { id: "explorer", "aria-label": "Memory of a device, explored" }, el("h2", {}, "What fills a device"), el("div", { class: "sliders" },
    slider("input", "Prompt, tokens", 64, 131072 - (Number(found.inputs.output) || 0), () => state.input, count),
    slider("users", "Users at once", 1, Math.max(1024, plan.concurrency), () => state.users, count),
    choice("tp", "Tensor parallel", degrees.map((one) => [one, one])),
    choice("precision", "Weights", [["", "as published"], ...[...document.querySelectorAll("#formats option")].map((one) => [one.value, one.value])])), place, said);
}

// Start ------------------------------------------------------------------------------------------

async function open_(first) {
  let inputs = {};
  try { inputs = await inputsOf(location.href); } catch (fault) { say(`The address cannot be read: ${fault.message}`); answer.replaceChildren(); return; }
  const asked = Object.keys(inputs).length > 0;
  if (!asked && form.dataset.first) inputs = await inputsOf(`/${path}?${form.dataset.first}`);
  await fill(inputs);
  await run(inputs, { keep: false, quiet: true });
}

open_(true);
