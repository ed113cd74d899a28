// Everything on the page but the map and the connection: what is watched, its list, its numbers.

import { LiveClient } from "/live/client.js";
import { LiveMap } from "/live/map.js";

const byId = (id) => document.getElementById(id);
const MOST_ROWS = 200;
const TOKEN_NEEDED = 4401;

const UNITS = { kmh: ["km/h", 1], mph: ["mph", 1 / 1.609344] };

const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
let wanted = new URLSearchParams(location.search).get("event") ?? "";
let stopWatching = () => {};
let frames = [];
let lags = [];
const rows = new Map();
const map = new LiveMap(byId("map"), byId("ground"), byId("ground").dataset.tiles, select);
const live = new LiveClient(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, { token });
const serverTime = map.clock = () => live.now();

function select(id) {
  map.select(id);
  if (map.followed !== null && map.followed !== id) map.follow(null);
  byId("follow").disabled = id === null;
  for (const [device, row] of rows) row.setAttribute("aria-selected", String(device === id));
}

function show(state, text) {
  byId("state").dataset.state = state;
  byId("state").textContent = text;
}

live.onState = (state, why, code) => {
  if (state === "refused") {
    const text = why[0].toUpperCase() + why.slice(1);
    byId("why").textContent = text;
    byId("ask").hidden = code !== TOKEN_NEEDED;
    show(state, code === TOKEN_NEEDED ? "refused" : text);
  } else {
    show(state, state === "live" ? "live" : code === 1008 ? "too slow, connecting again" : code ? "connecting again" : "connecting");
  }
};
live.onEvents = offer;
live.onError = (_code, message) => show("refused", message);

function watch() {
  stopWatching();
  stopWatching = live.subscribe(`event:${wanted}`, {
    onPosition(position) {
      frames.push(performance.now());
      lags.push(Math.round(serverTime() - position.ts));
      put(position, true);
    },
    onSnapshot(positions) {
      forgetAllBut(new Set(positions.map((position) => position.deviceId)));
      for (const position of positions) put(position, false);
    },
  });
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
  wanted = event;
  map.clear();
  rows.clear();
  frames = [];
  byId("rows").replaceChildren();
  const address = new URL(location.href);
  address.searchParams.set("event", event);
  history.replaceState(null, "", address);
  watch();
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
  row.children[3].textContent = speed(position);
}

function speed(position) {
  return position.speed === undefined ? "" : Math.round(position.speed * UNITS[map.units][1]);
}

function chooseUnits(units) {
  map.units = units;
  byId("units").value = units;
  byId("speed").textContent = UNITS[units][0];
  for (const [id, row] of rows) row.children[3].textContent = speed(map.devices.get(id).position);
}

// What somebody chose last time; a browser may keep nothing.
function remembered(name) {
  try { return localStorage.getItem(name) ?? ""; } catch { return ""; }
}

function remember(name, value) {
  try { localStorage.setItem(name, value); } catch { /* then only for now */ }
}

function showTheme(theme) {
  if (theme !== "light" && theme !== "dark") return;
  document.documentElement.dataset.theme = theme;
  map.themeChanged();
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

byId("event").addEventListener("change", (event) => choose(event.target.value));
byId("closer").addEventListener("click", () => map.zoomBy(1));
byId("farther").addEventListener("click", () => map.zoomBy(-1));
byId("fit").addEventListener("click", () => map.fit());
byId("follow").addEventListener("click", () => map.follow(map.followed === null ? map.selected : null));
map.onFollow = (id) => byId("follow").setAttribute("aria-pressed", String(id !== null));
byId("trails").addEventListener("click", (event) => {
  map.trails = !map.trails;
  event.currentTarget.setAttribute("aria-pressed", String(map.trails));
});
byId("units").addEventListener("change", (event) => {
  chooseUnits(event.target.value);
  remember("units", event.target.value);
});
// The dashboard, around us, tells its theme when asked and when it changes. Nobody else may frame this page.
window.addEventListener("message", (event) => {
  if (event.source === window.parent) showTheme(event.data?.theme);
});
if (window.parent !== window) window.parent.postMessage("theme?", "*");
if (remembered("units") in UNITS) chooseUnits(remembered("units"));

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
  live.token = byId("token").value.trim();
  byId("ask").hidden = true;
  live.connect();
});

if (wanted) watch();
