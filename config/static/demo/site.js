// Keeps the jobs on the page up to date: fetches them each second and shows what changed.
(() => {
  "use strict";
  const EVERY = 1000; // milliseconds
  const board = document.getElementById("jobs");
  const live = document.getElementById("live");
  const pause = document.getElementById("pause");
  let shown = null;
  let paused = false;

  function say(text) {
    if (live.textContent !== text) live.textContent = text;
  }

  function isBeingSelected() {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && board.contains(selection.anchorNode);
  }

  async function refresh() {
    try {
      const answer = await fetch(board.dataset.url, { signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const text = await answer.text();
      if (paused) return;
      if (text !== shown && !isBeingSelected()) {
        board.innerHTML = text; // our own template, which escapes what it shows
        shown = text;
      }
      say("Updating live");
    } catch (error) {
      say("The site does not answer; trying again");
    }
  }

  async function keepRefreshing() {
    if (!paused && !document.hidden) await refresh();
    setTimeout(keepRefreshing, EVERY);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    if (paused) say("Paused");
  });
  setTimeout(keepRefreshing, EVERY);
})();
