// How the map draws: the grid, trails, devices, their names, the scale. Where things are is the map's to say.

const NICE_STEPS = [10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005];
const STALE_MS = 60_000;
const MOST_NAMES = 300;
const METRES = { kmh: [1000, "km", 1, "m"], mph: [1609.344, "mi", 0.3048, "ft"] };

// Web Mercator, the world as a square from 0 to 1.
export const toX = (lon) => (lon + 180) / 360;
export const toY = (lat) => {
  const clamped = Math.max(-85.05, Math.min(85.05, lat)) * Math.PI / 180;
  return (1 - Math.log(Math.tan(clamped) + 1 / Math.cos(clamped)) / Math.PI) / 2;
};
const toLon = (x) => x * 360 - 180;
const toLat = (y) => Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180 / Math.PI;

// The theme's colours, from the style sheet.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  return {
    dark: style.colorScheme.includes("dark"), ground: named("--page"), line: named("--line"), text: named("--text"),
    soft: named("--muted"), edge: named("--surface"),
  };
}

export function drawGrid(c, map, colour) {
  const corner = map.toWorld(0, 0);
  const opposite = map.toWorld(map.width, map.height);
  const span = (opposite.x - corner.x) * 360;
  const step = NICE_STEPS.findLast((candidate) => span / candidate <= 10) ?? 10;
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  c.strokeStyle = colour.line;
  c.fillStyle = colour.soft;
  c.lineWidth = 1;
  c.font = "11px system-ui, sans-serif";
  c.beginPath();
  for (let lon = Math.ceil(toLon(corner.x) / step) * step; lon <= toLon(opposite.x); lon += step) {
    const [x] = map.toScreen({ x: toX(lon), y: 0 });
    c.moveTo(x, 0); c.lineTo(x, map.height);
    c.fillText(`${Math.abs(lon).toFixed(digits)}°${lon < 0 ? "W" : "E"}`, x + 4, 12);
  }
  for (let lat = Math.ceil(toLat(opposite.y) / step) * step; lat <= toLat(corner.y); lat += step) {
    const [, y] = map.toScreen({ x: 0, y: toY(lat) });
    c.moveTo(0, y); c.lineTo(map.width, y);
    c.fillText(`${Math.abs(lat).toFixed(digits)}°${lat < 0 ? "S" : "N"}`, 70, y - 4);
  }
  c.stroke();
}

export function drawTrail(c, map, device, selected, now, colour) {
  const points = [...device.trail.slice(0, -1), map.place(device, now)];
  if (points.length < 2) return;
  c.strokeStyle = `hsl(${device.hue} 70% ${colour.dark ? 60 : 40}%)`;
  c.lineWidth = selected ? 4 : 2;
  c.lineJoin = "round";
  const bands = 4; // older parts paler
  const size = Math.ceil((points.length - 1) / bands);
  for (let start = 0, band = 1; start < points.length - 1; start += size, band++) {
    c.globalAlpha = (selected ? 0.9 : 0.65) * band / bands;
    c.beginPath();
    points.slice(start, start + size + 1).forEach((point, number) => {
      const [x, y] = map.toScreen(point);
      if (number) c.lineTo(x, y); else c.moveTo(x, y);
    });
    c.stroke();
  }
  c.globalAlpha = 1;
}

export function drawDevice(c, device, [x, y], selected, serverTime, colour) {
  const stale = serverTime - device.position.ts > STALE_MS;
  c.fillStyle = stale ? "#8a9690" : `hsl(${device.hue} 75% ${colour.dark ? 60 : 40}%)`;
  c.strokeStyle = colour.edge;
  c.lineWidth = 2;
  c.beginPath();
  const { course, speed } = device.position;
  if (course !== undefined && (speed === undefined || speed > 1)) {
    c.save();
    c.translate(x, y);
    c.rotate(course * Math.PI / 180);
    c.moveTo(0, selected ? -13 : -10); c.lineTo(selected ? 9 : 7, 8); c.lineTo(0, 4); c.lineTo(selected ? -9 : -7, 8);
    c.closePath();
    c.restore();
  } else {
    c.arc(x, y, selected ? 8 : 6, 0, 2 * Math.PI);
  }
  c.fill();
  c.stroke();
}

/**
 * Where names have room: beside, above or below their device, over no other name; who finds none has none for now. The
 * first of `wanted` choose first. Pure.
 * @param {{id: string, x: number, y: number, width: number}[]} wanted
 * @returns {{id: string, left: number, top: number, right: number, bottom: number}[]}
 */
export function placeNames(wanted) {
  const placed = [];
  for (const { id, x, y, width } of wanted.slice(0, MOST_NAMES)) {
    for (const [left, top] of [[x + 12, y - 8], [x - 12 - width, y - 8], [x - width / 2, y - 28], [x - width / 2, y + 12]]) {
      const box = { id, left, top, right: left + width, bottom: top + 16 };
      const isFree = placed.every((other) =>
        box.right < other.left || box.left > other.right || box.bottom < other.top || box.top > other.bottom);
      if (!isFree) continue;
      placed.push(box);
      break;
    }
  }
  return placed;
}

export function drawNames(c, map, places, colour) {
  c.lineJoin = "round";
  const font = (id) => `${id === map.selected ? "600 13px" : "12px"} system-ui, sans-serif`;
  const wanted = [...places].map(([id, [x, y]]) => {
    c.font = font(id);
    const device = map.devices.get(id);
    if (device.nameFont !== c.font) [device.nameFont, device.nameWidth] = [c.font, c.measureText(id).width];
    return { id, x, y, width: device.nameWidth };
  });
  wanted.sort((a, b) => (b.id === map.selected) - (a.id === map.selected));
  map.names = placeNames(wanted);
  for (const { id, left, bottom } of map.names) {
    c.font = font(id);
    c.lineWidth = 3;
    c.strokeStyle = colour.ground;
    c.strokeText(id, left, bottom - 4);
    c.fillStyle = colour.text;
    c.fillText(id, left, bottom - 4);
  }
}

export function drawScale(c, map, colour) {
  const metresPerPixel = 40_075_016 * Math.cos(toLat(map.view.y) * Math.PI / 180) / map.scale;
  const [long, longName, short, shortName] = METRES[map.units];
  const most = metresPerPixel * 120;
  const [unit, name] = most >= long ? [long, longName] : [short, shortName];
  const power = 10 ** Math.floor(Math.log10(most / unit));
  const count = [5, 2, 1].map((factor) => factor * power).find((length) => length * unit <= most);
  const pixels = count * unit / metresPerPixel;
  const [x, y] = [16, map.height - map.covered.bottom - 18];
  c.strokeStyle = c.fillStyle = colour.soft;
  c.lineWidth = 2;
  c.beginPath();
  c.moveTo(x, y - 6); c.lineTo(x, y); c.lineTo(x + pixels, y); c.lineTo(x + pixels, y - 6);
  c.stroke();
  c.font = "12px system-ui, sans-serif";
  c.fillText(`${count} ${name}`, x + 6, y - 8);
}
