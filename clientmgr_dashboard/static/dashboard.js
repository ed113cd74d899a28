// Help for pages that also work without it: parts that stay current, colours, and choosing many rows.
"use strict";

// The element inside one with data-live="/path" is updated from that path every two seconds, while somebody can see it;
// or every data-live-every seconds.
const LIVE_EVERY_MS = 2000;
// Without a limit, a request that is neither answered nor refused would stop the updates silently.
const ANSWER_WITHIN_MS = 8000;

// In place as far as possible, so that focus and scroll positions survive.
function patch(old, fresh) {
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
  } else if (old instanceof Element) {
    // What somebody has unfolded stays so.
    const isOwn = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    patchChildren(old, fresh);
  } else if (old.data !== fresh.data) {
    old.data = fresh.data;
  }
}

function patchChildren(old, fresh) {
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  for (const node of before.slice(after.length)) node.remove();
  after.forEach((node, place) => (place < before.length ? patch(before[place], node) : old.append(node)));
}

function keepCurrent(element) {
  const say = (text, state) => {
    const status = document.getElementById("live-status");
    if (status && status.textContent !== text) status.textContent = text;
    if (status) status.dataset.state = state;
  };
  const every = Number(element.dataset.liveEvery || 0) * 1000 || LIVE_EVERY_MS;
  const look = async () => {
    // Rows must not move away under somebody who is choosing them.
    const isChoosing = () => element.querySelector("tbody input:checked") !== null;
    if (document.visibilityState === "visible" && isChoosing()) {
      say("waits while you choose", "live");
    } else if (document.visibilityState === "visible") {
      try {
        const answer = await fetch(element.dataset.live, {
          headers: { "X-Requested-With": "fetch" },
          redirect: "error",
          signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
        });
        if (!answer.ok) throw new Error(String(answer.status));
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!isChoosing()) patch(element.firstElementChild, fresh.body.firstElementChild);
        element.dispatchEvent(new Event("patched", { bubbles: true }));
        say("live", "live");
      } catch {
        say("not connected: these are the last numbers", "lost");
      }
    }
    setTimeout(look, every);
  };
  say("live", "live");
  setTimeout(look, every);
}

function chooseColours(button) {
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // Then it counts for this page only.
    }
    show();
  });
  show();
}

// A form with data-choose: one box chooses all rows, and a label says how many are chosen.
function chooseMany(form) {
  // Asked for anew each time: rows come and go while the page stays current.
  const boxes = () => [...form.querySelectorAll("tbody input[type=checkbox]")];
  const all = () => form.querySelector("input[data-all]");
  const show = () => {
    const [any, chosen] = [boxes().length, boxes().filter((box) => box.checked).length];
    for (const button of form.querySelectorAll("button[data-needs-choice]")) button.disabled = chosen === 0;
    if (all()) {
      all().hidden = any === 0;
      all().checked = chosen > 0 && chosen === any;
      all().indeterminate = chosen > 0 && chosen < any;
    }
    const label = form.querySelector("[data-chosen]");
    if (label) label.textContent = chosen ? `${chosen} chosen` : "";
  };
  form.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) for (const box of boxes()) box.checked = event.target.checked;
    show();
  });
  form.addEventListener("patched", show);
  show();
}

// The key / goes to the search, Escape back to the page.
function searchByKey(field) {
  document.addEventListener("keydown", (event) => {
    const isWriting = event.target.closest?.("input, select, textarea, [contenteditable]");
    if (event.key === "/" && !isWriting && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape" && event.target === field) {
      document.getElementById("main").focus();
    }
  });
}

for (const field of document.querySelectorAll(".top .search input[type=search]")) searchByKey(field);
for (const element of document.querySelectorAll("[data-live]")) keepCurrent(element);
for (const button of document.querySelectorAll("[data-theme-toggle]")) chooseColours(button);
for (const form of document.querySelectorAll("form[data-choose]")) chooseMany(form);

// The live map is in a frame, of another origin: it asks for our colours, and is told when they change.
function shareColours(frame) {
  const tell = () => {
    const theme = document.documentElement.dataset.theme ?? "";
    frame.contentWindow.postMessage({ theme }, new URL(frame.src).origin);
  };
  window.addEventListener("message", (event) => {
    if (event.source === frame.contentWindow && event.data === "theme?") tell();
  });
  new MutationObserver(tell).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
for (const frame of document.querySelectorAll("iframe.live")) shareColours(frame);
