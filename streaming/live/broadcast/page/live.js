// The connection and everything on the page but the map: connects again by itself and subscribes to what was watched.

import { LiveMap } from "/live/map.js";

const byId = (id) => document.getElementById(id);
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 10_000;
const ASK_EVENTS_EVERY_MS = 10_000;
const SILENT_MS = 70_000;
const MOST_ROWS = 200;
const REFUSALS = { 4401: "A token is needed", 4403: "This page may not connect" };

let socket = null;
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
let wanted = new URLSearchParams(location.search).get("event") ?? "";
let retryMs = FIRST_RETRY_MS;
let heardAt = 0;
let frames = [];
let lags = [];
let askedAt = 0;
let aheadMs = 0; // this machine's clock, of the server's
const rows = new Map();
const map = new LiveMap(byId("map"), select);
const serverTime = map.clock = () => Date.now() - aheadMs;

function select(id) {
  map.select(id);
  for (const [device, row] of rows) row.setAttribute("aria-selected", String(device === id));
}

function show(state, text) {
  byId("state").dataset.state = state;
  byId("state").textContent = text;
}

function connect() {
  show("connecting", "connecting");
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const fresh = socket = new WebSocket(`${scheme}://${location.host}/ws`);
  fresh.onopen = () => {
    heardAt = Date.now();
    if (token) say({ type: "auth", token });
    askForEvents();
    if (wanted) subscribe();
  };
  fresh.onmessage = (event) => {
    if (socket !== fresh) return;
    heardAt = Date.now();
    hear(JSON.parse(event.data));
  };
  fresh.onclose = (event) => { if (socket === fresh) lost(event.code, event.reason); };
}

function lost(code, reason) {
  socket = null;
  if (code in REFUSALS) {
    const why = `${REFUSALS[code]}: ${reason || code}`;
    byId("why").textContent = why;
    byId("ask").hidden = code !== 4401;
    show("refused", code === 4401 ? "refused" : why);
    if (code === 4401) return;
  } else {
    show("connecting", code === 1008 ? "too slow, connecting again" : "connecting again");
  }
  setTimeout(connect, retryMs * (0.5 + Math.random() / 2));
  retryMs = Math.min(LONGEST_RETRY_MS, retryMs * 2);
}

function say(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function askForEvents() {
  askedAt = Date.now();
  say({ type: "events" });
}

function subscribe() { say({ type: "subscribe", topic: `event:${wanted}` }); }

function hear(message) {
  if (message.type === "position") {
    if (message.topic !== `event:${wanted}`) return;
    frames.push(performance.now());
    lags.push(Math.round(serverTime() - message.ts));
    put(message, true);
  } else if (message.type === "subscribed") {
    if (message.topic !== `event:${wanted}`) return;
    forgetAllBut(new Set(message.snapshot.map((position) => position.deviceId)));
    for (const position of message.snapshot) put(position, false);
    retryMs = FIRST_RETRY_MS;
    show("live", "live");
  } else if (message.type === "events") {
    aheadMs = (askedAt + Date.now()) / 2 - message.now;
    offer(message.events);
  } else if (message.type === "error") {
    show("refused", message.message);
  }
}

// After an outage, devices that no longer take part would stay where they were last seen.
function forgetAllBut(present) {
  for (const id of [...map.devices.keys()].filter((known) => !present.has(known))) {
    map.remove(id);
    rows.get(id)?.remove();
    rows.delete(id);
  }
}

function offer(events) {
  const picker = byId("event");
  const names = events.map((found) => found.event);
  if (wanted && !names.includes(wanted)) events = [{ event: wanted, devices: 0 }, ...events];
  const texts = events.map((found) => `${found.event} (${found.devices})`);
  if (texts.join() !== [...picker.options].map((option) => option.text).join()) {
    picker.replaceChildren(...events.map((found, number) => new Option(texts[number], found.event)));
  }
  if (!wanted && events.length) choose(events[0].event);
  picker.value = wanted;
  if (!events.length) show("live", "live, no events yet");
}

function choose(event) {
  if (wanted && wanted !== event) say({ type: "unsubscribe", topic: `event:${wanted}` });
  wanted = event;
  map.clear();
  rows.clear();
  frames = [];
  byId("rows").replaceChildren();
  const address = new URL(location.href);
  address.searchParams.set("event", event);
  history.replaceState(null, "", address);
  subscribe();
}

function put(position, glide) {
  map.put(position, glide);
  byId("empty").hidden = true;
  const current = map.devices.get(position.deviceId);
  if (current.position !== position) return; // an old one, late
  let row = rows.get(position.deviceId);
  if (!row) {
    if (rows.size >= MOST_ROWS) return;
    row = document.createElement("tr");
    row.dataset.device = position.deviceId;
    for (let cell = 0; cell < 5; cell++) row.append(document.createElement("td"));
    row.children[0].textContent = row.children[0].title = position.deviceId;
    row.addEventListener("click", () => select(position.deviceId));
    rows.set(position.deviceId, row);
    const after = [...rows.keys()].filter((id) => id > position.deviceId).sort()[0];
    byId("rows").insertBefore(row, after ? rows.get(after) : null);
  }
  row.children[1].textContent = position.lat.toFixed(5);
  row.children[2].textContent = position.lon.toFixed(5);
  row.children[3].textContent = position.speed === undefined ? "" : Math.round(position.speed);
}

function age(ms) {
  if (ms < 60_000) return `${Math.max(0, Math.round(ms / 1000))} s`;
  return ms < 3_600_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}

setInterval(() => {
  const now = performance.now();
  frames = frames.filter((at) => now - at < 5000);
  const middle = lags.sort((a, b) => a - b)[Math.floor(lags.length / 2)];
  lags = [];
  byId("rate").textContent = (frames.length / 5).toFixed(frames.length < 50 ? 1 : 0);
  byId("devices").textContent = map.devices.size;
  if (middle !== undefined) byId("lag").textContent = middle < 10_000 ? `${Math.max(0, middle)} ms` : age(middle);
  else if (!frames.length) byId("lag").textContent = "–";
  byId("empty").hidden = map.devices.size > 0;
  for (const [id, row] of rows) row.children[4].textContent = age(serverTime() - map.devices.get(id).position.ts);
}, 1000);

// A connection that went away without a word, as on a train: the browser would wait for minutes.
setInterval(() => {
  if (socket?.readyState === WebSocket.OPEN) {
    askForEvents();
    if (Date.now() - heardAt > SILENT_MS) { const stale = socket; lost(1006, "silent"); stale.close(); }
  }
}, ASK_EVENTS_EVERY_MS);

byId("event").addEventListener("change", (event) => choose(event.target.value));
byId("closer").addEventListener("click", () => map.zoomBy(1));
byId("farther").addEventListener("click", () => map.zoomBy(-1));
byId("fit").addEventListener("click", () => map.fit());

// Devices are fitted into what the list leaves of the map: beside it, or above it on a phone.
function uncover() {
  const phone = window.matchMedia("(max-width: 700px)").matches;
  const list = byId("list").getBoundingClientRect();
  map.covered = phone ? { right: 0, bottom: list.height } : { right: byId("list").open ? list.width + 13 : 0, bottom: 0 };
}
if (window.matchMedia("(max-width: 700px)").matches) byId("list").open = false;
new ResizeObserver(uncover).observe(byId("list"));
window.addEventListener("resize", uncover);

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("ask").hidden = true;
  retryMs = FIRST_RETRY_MS;
  connect();
});

connect();
