// The dashboard's script: live refresh, ages, copying, shortcuts. Without it all the rest works.
"use strict";
(() => {
  const root = document.querySelector("[data-jq-now]");
  if (!root) return;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const keep = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(name) || "";
      localStorage.setItem(name, value);
    } catch { /* storage may be forbidden */ }
    return value || "";
  };
  const words = ($('[data-jq="words"]') || root).dataset;

  // The server's clock: this machine's may be wrong.
  const [entry] = performance.getEntriesByType("navigation");
  let offset = Date.parse(root.dataset.jqNow) - performance.timeOrigin - (entry ? entry.responseStart : 0);
  let asOf = root.dataset.jqNow;
  const age = (time) => {
    const seconds = (Date.now() + offset - Date.parse(time.dateTime)) / 1000;
    let left = Math.abs(seconds);
    if (left < 1) return words.now;
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([n]) => left >= 2 * n) || [1, "s"];
    left = left >= 60 && size === 1 ? `1 min${left >= 61 ? ` ${Math.floor(left - 60)} s` : ""}` : `${Math.floor(left / size)} ${unit}`;
    return (seconds > 0 ? words.ago : words.in).replace("%s", left);
  };
  const tellAges = () => $$("time[data-jq-age]").forEach((time) => {
    const text = age(time);
    if (words.ago && time.textContent !== text && !frozen(time)) time.textContent = text;
  });
  const frozen = (node) => { const chosen = getSelection(); return !chosen.isCollapsed && chosen.containsNode(node, true); };
  setInterval(() => document.hidden || tellAges(), 15000);

  // Live regions
  const bar = $('[data-jq="live"]');
  const regions = $$("[data-jq-live]").map((node) => ({ node, base: +node.dataset.jqEvery || 5, state: "on" }));
  const newer = $("[data-jq-newer]");
  const choice = () => keep("jq-live");
  const paused = () => choice() === "off";
  const every = (region) => +choice() || region.base;
  let touched = Date.now();
  let pointer = false;

  const say = () => {
    if (!bar) return;
    const order = ["out", "error", "idle", "paused", "hidden", "pointer", "dialog", "selected", "details", "focus", "on", "final"];
    const state = order.find((name) => regions.some((region) => region.state === name)) || "on";
    const text = (bar.dataset[state] || "").replace("%s", asOf.slice(11, 19));
    const line = $('[data-jq="live-status"]', bar);
    if (line.textContent !== text) line.textContent = text;
  };
  const set = (region, state) => { region.state = state; say(); };
  const obstacle = ({ node }) => {
    if (paused()) return "paused";
    if (document.hidden) return "hidden";
    if (Date.now() - touched > 1800000) return "idle";
    if (pointer) return "pointer";
    if ($("dialog[open]")) return "dialog";
    if (node.contains(document.activeElement)) return "focus";
    if (frozen(node)) return "selected";
    // Those with an id are opened again after the swap.
    return $$("details[open]:not([id])", node).some((each) => !each.jqOpen) ? "details" : "";
  };
  const arrive = (within) => {
    $$("details[open]", within).forEach((each) => { each.jqOpen = true; });
    $$("[data-jq-copy]", within).forEach((button) => { button.hidden = false; });
  };
  const swap = (node, html) => {
    const open = new Map($$("details[id]", node).map((each) => [each.id, each.open]));
    const shut = $$("details:not([id])", node).map((each) => each.jqOpen && !each.open);
    const scrolled = $$(".jq-scroll, pre", node).map((each) => [each.scrollLeft, each.scrollTop]);
    const fresh = new DOMParser().parseFromString(html, "text/html");
    node.replaceChildren(...fresh.body.childNodes);
    arrive(node);
    $$("details[id]", node).forEach((each) => { if (open.has(each.id)) each.open = open.get(each.id); });
    $$("details:not([id])", node).forEach((each, n) => { if (shut[n]) each.open = false; });
    $$(".jq-scroll, pre", node).forEach((each, n) => { if (scrolled[n]) [each.scrollLeft, each.scrollTop] = scrolled[n]; });
  };
  const ask = (url) => fetch(url, { redirect: "manual", cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(15000) });
  const gone = (answer) => answer.type === "opaqueredirect" || [401, 403, 404].includes(answer.status);
  const refresh = async (region) => {
    clearTimeout(region.timer);
    if (region.busy || region.state === "final" || region.state === "out") return;
    let reason = obstacle(region);
    if (reason) {
      set(region, reason);
      if (reason !== "paused") region.timer = setTimeout(refresh, 1000, region);
      return;
    }
    region.busy = true;
    let delay = every(region);
    try {
      const answer = await ask(region.node.dataset.jqLive);
      if (gone(answer)) return set(region, "out");
      if (!answer.ok) throw new Error(answer.status);
      const html = await answer.text();
      region.wait = 0;
      reason = obstacle(region);
      if (reason) delay = 1;
      else {
        const now = answer.headers.get("X-JQ-Now");
        if (now) { asOf = now; offset = Date.parse(now) - Date.now(); }
        if (html !== region.html) swap(region.node, html);
        region.html = html;
        if (answer.headers.get("X-JQ-Final")) return set(region, "final");
      }
      set(region, reason || "on");
    } catch {
      delay = region.wait = Math.min(60, 2 * (region.wait || delay));
      set(region, "error");
    } finally {
      region.busy = false;
      if (region.state !== "out" && region.state !== "final") region.timer = setTimeout(refresh, delay * 1000, region);
    }
  };
  const all = () => regions.forEach(refresh);
  const choose = (value) => {
    if (value === "off" && !paused()) keep("jq-last", choice());
    keep("jq-live", value);
    show();
    all();
  };
  const toggle = () => choose(paused() ? keep("jq-last") : "off");
  const show = () => {
    $('[data-jq="pause"]', bar).setAttribute("aria-pressed", paused());
    $('[data-jq="every"]', bar).value = choice();
  };
  if (bar && regions.length) {
    bar.hidden = false;
    $('[data-jq="pause"]', bar).addEventListener("click", toggle);
    $('[data-jq="every"]', bar).addEventListener("change", (event) => choose(event.target.value));
    show();
    regions.forEach((region) => {
      set(region, paused() ? "paused" : "on");
      region.timer = setTimeout(refresh, every(region) * 1000, region);
    });
  }
  arrive(document);
  const touch = () => {
    touched = Date.now();
    if (regions.some((region) => region.state === "idle")) all();
  };
  ["keydown", "pointermove"].forEach((name) => addEventListener(name, touch, { passive: true }));
  addEventListener("pointerdown", () => { touch(); pointer = true; });
  ["pointerup", "pointercancel", "dragend", "blur"].forEach((name) => addEventListener(name, () => { pointer = false; }));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { tellAges(); all(); } });

  // The list's bar: rows are never moved under the reader.
  const look = async () => {
    if (!document.hidden && !paused() && Date.now() - touched < 1800000 && !$("input.action-select:checked")) {
      try {
        const answer = await ask(newer.dataset.jqNewer);
        if (gone(answer)) return;
        const { n, capped, text } = await answer.json();
        const link = $("a", newer) || newer.appendChild(document.createElement("a"));
        const line = text || (newer.dataset[n === 1 ? "one" : "many"] || "%s newer jobs").replace("%s", n + (capped ? "+" : ""));
        if (!link.getAttribute("href")) link.href = "?";
        if (n && link.textContent !== line) link.textContent = line;
        newer.hidden = !n;
      } catch { /* asked again */ }
    }
    setTimeout(look, 10000);
  };
  if (newer) setTimeout(look, 10000);

  // Copying; a site on plain HTTP has no clipboard.
  const copy = async (text) => {
    if (navigator.clipboard) try { return await navigator.clipboard.writeText(text); } catch { /* the old way */ }
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "jq-hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-jq-copy]");
    if (!button) return;
    const before = button.textContent;
    const source = document.getElementById(button.dataset.jqCopy.replace("#", ""));
    if (!source || before === words.copied) return;
    await copy(source.textContent);
    button.focus();
    button.textContent = words.copied;
    setTimeout(() => { button.textContent = before; }, 2000);
  });

  // Shortcuts: none changes data.
  const help = $('[data-jq="keys"]');
  const keysOff = () => keep("jq-keys") === "off";
  const themed = !!$("[x-data]"); // a theme with a search of its own
  const tabs = { o: "overview", j: "jobs", q: "queues", w: "workers", r: "reconcile", a: "audit" };
  let going = 0;
  const step = (by) => {
    const rows = $$('#result_list tbody tr, [data-jq$="-row"]').filter((row) => $("a", row));
    const here = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by];
    if (row) $("a", row).focus();
  };
  const does = {
    "/": () => { const field = !themed && $('#searchbar, [data-jq="search"]'); if (field) { field.focus(); field.select(); } return field; },
    j: () => step(1),
    k: () => step(-1),
    x: () => { const row = document.activeElement.closest("tr"); const box = row && $("input.action-select", row); if (box) box.click(); },
    r: () => { regions.forEach((region) => { region.wait = 0; }); all(); },
    p: () => bar && !bar.hidden && toggle(),
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (keysOff() || event.ctrlKey || event.altKey || event.metaKey || event.isComposing || $("dialog[open]")) return;
    if (target.isContentEditable || target.closest("textarea, select, input:not([type=checkbox])")) return;
    if (Date.now() - going < 1500 && tabs[key]) {
      const tab = $(`[data-jq="tab-${tabs[key]}"]`);
      event.preventDefault();
      if (tab) tab.click();
    } else if (key === "g") { going = Date.now(); return; }
    else if (Object.hasOwn(does, key) && does[key]() !== false) event.preventDefault();
    going = 0;
  });
  const opener = $('[data-jq="shortcuts"]');
  if (help && opener) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
    const box = $("input", help);
    box.checked = !keysOff();
    box.addEventListener("change", () => keep("jq-keys", box.checked ? "on" : "off"));
  }
})();
