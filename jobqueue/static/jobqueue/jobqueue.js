// The dashboard's script: live refresh, ages, copying, shortcuts. Without it all the rest works.
"use strict";
addEventListener("DOMContentLoaded", () => {
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const named = (name, within) => $(`[data-jq="${name}"]`, within);
const root = $("[data-jq-now]");
const words = named("words")?.dataset;
if (!root || !words) return;
const stored = (name, value) => {
  try {
    if (value !== undefined) localStorage[name] = value;
    return localStorage[name] || "";
  } catch { return ""; } // storage may be forbidden
};

// Ages go by the server's clock: this machine's may be wrong.
let asOf = root.dataset.jqNow;
let offset = Date.parse(asOf) - Date.now();
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["", Infinity]];
const age = (time) => {
  const passed = (Date.now() + offset - Date.parse(time.dateTime)) / 1000;
  const left = Math.abs(passed);
  if (left < 1) return words.now;
  const at = UNITS.findIndex((each) => left >= each[1]);
  const [[unit, size], [small, part]] = UNITS.slice(at);
  const rest = left < 2 * size && Math.floor(left % size / part); // two hours need no minutes
  const text = `${Math.floor(left / size)} ${unit}` + (rest ? ` ${rest} ${small}` : "");
  return (passed > 0 ? words.ago : words.in).replace("%s", text);
};
const selected = (node) => { const chosen = getSelection(); return !chosen.isCollapsed && chosen.containsNode(node, true); };
const tellAges = () => $$("time[data-jq-age]").forEach((time) => {
  const text = age(time);
  if (time.textContent !== text && !selected(time)) time.textContent = text;
});
setInterval(tellAges, 15000);

// Live regions
const bar = named("live");
const regions = $$("[data-jq-live]").map((node) => ({ node, state: "on" }));
const paused = () => stored("jq-live") === "off";
const every = (region) => +stored("jq-live") || +region.node.dataset.jqEvery;
const asleep = () => Date.now() - touched > 1800000;
let touched = Date.now();
let pointer = false;
const set = (region, state) => {
  region.state = state;
  // The words of the states stand in the order of their weight.
  const worst = Object.keys(bar.dataset).find((name) => regions.some((each) => each.state === name));
  const text = (bar.dataset[worst] || "").replace("%s", asOf.slice(11, 19));
  const line = named("live-status", bar);
  if (line.textContent !== text) line.textContent = text;
};
const obstacle = ({ node }) => {
  if (paused()) return "paused";
  if (document.hidden) return "hidden";
  if (asleep()) return "idle";
  if (pointer) return "pointer";
  if ($("dialog[open]")) return "dialog";
  if (node.contains(document.activeElement)) return "focus";
  if (selected(node)) return "selected";
  return $("details[open]:not([data-jq-open])", node) ? "details" : ""; // but what the page opens itself
};
const arrive = (within) => $$("[data-jq-copy], [data-jq=shortcuts]", within).forEach((button) => { button.hidden = false; });
const swap = (node, html) => {
  const closed = $$("details:not([open])", node).map((each) => each.id);
  const scrolled = $$(".jq-scroll, pre", node).map((each) => [each.scrollLeft, each.scrollTop]);
  node.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  arrive(node);
  $$("details", node).forEach((each) => { each.open &&= !closed.includes(each.id); });
  $$(".jq-scroll, pre", node).forEach((each, n) => { [each.scrollLeft, each.scrollTop] = scrolled[n] || [0, 0]; });
};
const ask = (url) => fetch(url, { redirect: "manual", cache: "no-store", signal: AbortSignal.timeout(15000) });
const isOut = (answer) => answer.type === "opaqueredirect" || [401, 403, 404].includes(answer.status);
const refresh = async (region) => {
  clearTimeout(region.timer);
  if (region.busy || region.state === "final" || region.state === "out") return;
  let reason = obstacle(region);
  if (!reason) {
    region.busy = true;
    try {
      const answer = await ask(region.node.dataset.jqLive);
      if (isOut(answer)) return set(region, "out");
      if (!answer.ok) throw answer;
      const html = await answer.text();
      region.wait = 0;
      reason = obstacle(region);
      if (!reason) {
        asOf = answer.headers.get("X-JQ-Now");
        offset = Date.parse(asOf) - Date.now();
        swap(region.node, html);
        if (answer.headers.has("X-JQ-Final")) return set(region, "final");
      }
    } catch {
      reason = "error";
      region.wait = Math.min(60, 2 * (region.wait || every(region)));
    } finally { region.busy = false; }
  }
  set(region, reason || "on");
  // What is in the way says not when it goes.
  const delay = !reason ? every(region) : reason === "error" ? region.wait : 1;
  if (reason !== "paused") region.timer = setTimeout(refresh, delay * 1000, region);
};
const all = () => regions.forEach(refresh);
const choose = (value) => {
  if (value === "off" && !paused()) stored("jq-last", stored("jq-live"));
  stored("jq-live", value);
  show();
  all();
};
const toggle = () => choose(paused() ? stored("jq-last") : "off");
const show = () => {
  named("pause", bar).setAttribute("aria-pressed", paused());
  named("every", bar).value = stored("jq-live");
};
if (bar && regions.length) {
  bar.hidden = false;
  named("pause", bar).addEventListener("click", toggle);
  named("every", bar).addEventListener("change", (event) => choose(event.target.value));
  show();
  regions.forEach((region) => {
    set(region, paused() ? "paused" : "on");
    region.timer = setTimeout(refresh, every(region) * 1000, region);
  });
}
arrive(document);
const touch = () => {
  const slept = asleep();
  touched = Date.now();
  if (slept) all();
};
for (const name of ["keydown", "pointermove", "pointerdown"]) addEventListener(name, touch);
addEventListener("pointerdown", () => { pointer = true; });
for (const name of ["pointerup", "pointercancel", "dragend", "blur"]) addEventListener(name, () => { pointer = false; });
addEventListener("visibilitychange", () => { if (!document.hidden) { tellAges(); all(); } });

// The list's bar: rows are never moved under the reader.
const newer = $("[data-jq-newer]");
const look = async () => {
  if (!document.hidden && !paused() && !asleep() && !$("input.action-select:checked")) {
    try {
      const answer = await ask(newer.dataset.jqNewer);
      if (isOut(answer)) return;
      const { n, capped } = await answer.json();
      const number = n.toLocaleString(document.documentElement.lang) + (capped ? "+" : "");
      const text = (n === 1 ? words.one : words.many).replace("%s", number);
      const link = $("a", newer);
      if (link.textContent !== text) link.textContent = text;
      newer.hidden = !n;
    } catch { /* asked again */ }
  }
  setTimeout(look, 10000);
};
if (newer) setTimeout(look, 10000);

// What has become of a change is read out, and the next Tab goes on from there.
const told = named("told");
if (told && /\/act\/\w+\/$/.test(document.referrer.split("?")[0])) {
  told.tabIndex = -1;
  told.focus();
}

// Copying; a site on plain HTTP has no clipboard.
const copy = async (text) => {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};
addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-jq-copy]");
  const before = button?.textContent;
  if (!button || before === words.copied) return;
  await copy($(button.dataset.jqCopy).textContent);
  button.focus();
  button.textContent = words.copied;
  setTimeout(() => { button.textContent = before; }, 2000);
});

// Shortcuts: none changes data.
const help = named("keys");
let going = 0;
const step = (by) => {
  const rows = $$('[data-jq$="-row"]').filter((row) => $("a", row));
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[here < 0 && by < 0 ? rows.length - 1 : here + by];
  if (row) $("a", row).focus();
};
const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  x: () => $("input.action-select", document.activeElement.closest("tr") || root)?.click(),
  r: all,
  p: () => regions.length && toggle(),
  "?": () => help.showModal(),
};
if (!$("[x-data]")) KEYS["/"] = () => $('#searchbar, [data-jq="search"]')?.focus(); // else the theme has its own
addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (stored("jq-keys") === "off" || event.ctrlKey || event.altKey || event.metaKey || $("dialog[open]")) return;
  if (target.isContentEditable || target.closest("textarea, select, input:not([type=checkbox])")) return;
  if (key === "g") { going = Date.now(); return; }
  const tab = Date.now() - going < 1500 && /^[a-z]$/.test(key) && $(`[data-jq^="tab-${key}"]`);
  const act = tab ? () => tab.click() : KEYS[key];
  going = 0;
  if (!act) return;
  event.preventDefault();
  act();
});
named("shortcuts").addEventListener("click", () => help.showModal());
const on = $("input", help);
on.checked = stored("jq-keys") !== "off";
on.addEventListener("change", () => stored("jq-keys", on.checked ? "" : "off"));
});
