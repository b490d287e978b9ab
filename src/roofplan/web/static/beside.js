"use strict";
// Up to four answers beside each other, their intervals on one scale.

const answer = document.getElementById("answer"), status_ = document.getElementById("status"), box = document.getElementById("beside");
const say = (text) => { status_.textContent = text; };

// An address of this server, whatever host a text names; null of what is no address.
function here(text) {
  try { const url = new URL(text, location.origin); return /^https?:$/.test(url.protocol) ? url.pathname + url.search + url.hash : null; } catch { return null; }
}

function asks() { return new URLSearchParams(location.search).getAll("ask").map(here).filter(Boolean).slice(0, MOST_BESIDE); }

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); answer.focus(); });

function go(list) {
  keepBeside(list);
  history.pushState(null, "", sideBySide(list));
  show();
}

box.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = document.getElementById("ask").value.trim();
  if (!text) return;
  if (asks().length >= MOST_BESIDE) { say("Four answers stand here already."); return; }
  if (!here(text)) { say("That is no address of a question."); return; }
  go([...asks(), here(text)]);
  document.getElementById("ask").value = "";
});
addEventListener("popstate", () => show());

async function show() {
  if (!location.search && keptBeside().length) history.replaceState(null, "", sideBySide(keptBeside()));
  const list = asks(), given = new URLSearchParams(location.search).getAll("ask").length;
  answer.replaceChildren();
  if (!list.length) { say("Nothing stands here yet."); return; }
  say("Working …");
  const found = await Promise.all(list.map(async (one) => {
    try {
      const url = new URL(one, location.origin);
      return (await ask(url.pathname.slice(1), await inputsOf(url.href))).document;
    } catch (fault) { return { status: "error", error: { message: fault.message } }; }
  }));
  const plans = found.map((one) => (one.plans || [])[0] || null);
  const heads = list.map((one, place) => el("th", { scope: "col" }, el("a", { href: one }, plans[place] ? `${(found[place].model || {}).id || ""} ${heading(plans[place])}` : one), " ",
    el("button", { type: "button", "aria-label": `Remove ${one}`, onclick: () => go(list.filter((_, at) => at !== place)) }, "−")));
  const names = [...new Set(plans.flatMap((plan) => Object.keys((plan && plan.metrics) || {})))];
  const rows = names.map((name) => {
    const every = plans.map((plan) => plan && plan.metrics[name]).filter(Boolean);
    const least = Math.min(...every.map((one) => one.low)), most = Math.max(...every.map((one) => one.high));
    return el("tr", {}, el("th", { scope: "row" }, words(name)), plans.map((plan) => {
      const one = plan && plan.metrics[name];
      return one ? el("td", {}, `${shown(one.value, one.unit)} `, grade(one), range(one, least, most)) : el("td", { class: "help" }, plan ? "absent" : "");
    }));
  });
  const memory = el("tr", {}, el("th", { scope: "row" }, "memory of a device"), plans.map((plan) => el("td", {}, plan && plan.memory && plan.memory.weights ? memoryBar(plan.memory) : "")));
  answer.append(...found.map((one, place) => { const bad = failure(one); if (bad) bad.prepend(el("p", {}, list[place])); return bad; }).filter(Boolean));
  answer.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Answers side by side" }, el("table", { id: "besides" }, el("thead", {}, el("tr", {}, el("td", {}, ""), heads)), el("tbody", {}, rows, memory))));
  answer.dataset.status = "ok";
  const left = given > list.length ? ` ${given - list.length} more of the address are left out: at most ${MOST_BESIDE} questions of this server stand here.` : "";
  say(`${plans.filter(Boolean).length} of ${list.length} have a plan.${left}`);
}

show();
