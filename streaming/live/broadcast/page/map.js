// A map without tiles: Web Mercator, a graticule, devices that glide from fix to fix, and the way they came.

const TRAIL_POINTS = 90;
const GLIDE_MS = 1000;
const STALE_MS = 60_000;
const NICE_STEPS = [10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005];
const FARTHEST = 1.5;
const CLOSEST = 24;

const toX = (lon) => (lon + 180) / 360;
const toY = (lat) => {
  const clamped = Math.max(-85.05, Math.min(85.05, lat)) * Math.PI / 180;
  return (1 - Math.log(Math.tan(clamped) + 1 / Math.cos(clamped)) / Math.PI) / 2;
};
const toLon = (x) => x * 360 - 180;
const toLat = (y) => Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180 / Math.PI;

function hue(id) {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.codePointAt(0)) % 9973;
  return (sum * 137.508) % 360;
}

export class LiveMap {
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.devices = new Map();
    this.selected = null;
    this.view = { x: 0.5, y: 0.35, zoom: 3 };
    this.following = true; // the view fits all devices until somebody moves it
    this.pointers = new Map();
    this.clock = Date.now; // of the server's time
    this.covered = { right: 0, bottom: 0 }; // pixels that something else is drawn over
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
    this.resize();
    const frame = () => { this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  clear() {
    this.devices.clear();
    this.selected = null;
    this.following = true;
  }

  remove(id) {
    this.devices.delete(id);
    if (this.selected === id) this.selected = null;
  }

  // A device that sends late, from when it was offline, does not jump back.
  put(position, glide) {
    const at = { x: toX(position.lon), y: toY(position.lat) };
    const known = this.devices.get(position.deviceId);
    if (known && known.position.ts > position.ts) return;
    const now = performance.now();
    if (!known) {
      this.devices.set(position.deviceId, {
        position, from: at, to: at, moved: now, trail: [at], colour: hue(position.deviceId),
      });
      return;
    }
    known.from = glide ? this.place(known, now) : at;
    known.to = at;
    known.moved = now;
    known.position = position;
    const last = known.trail[known.trail.length - 1];
    if (last.x !== at.x || last.y !== at.y) known.trail.push(at);
    if (known.trail.length > TRAIL_POINTS) known.trail.shift();
  }

  place(device, now) {
    const part = Math.min(1, (now - device.moved) / GLIDE_MS);
    return {
      x: device.from.x + (device.to.x - device.from.x) * part,
      y: device.from.y + (device.to.y - device.from.y) * part,
    };
  }

  select(id) { this.selected = id; }

  fit() { this.following = true; }

  zoomBy(steps, cx = this.width / 2, cy = this.height / 2) {
    const before = this.toWorld(cx, cy);
    this.view.zoom = Math.max(FARTHEST, Math.min(CLOSEST, this.view.zoom + steps));
    const after = this.toWorld(cx, cy);
    this.view.x += before.x - after.x;
    this.view.y += before.y - after.y;
    this.following = false;
  }

  get scale() { return 256 * 2 ** this.view.zoom; }

  toWorld(px, py) {
    return { x: this.view.x + (px - this.width / 2) / this.scale, y: this.view.y + (py - this.height / 2) / this.scale };
  }

  toScreen(point) {
    return [this.width / 2 + (point.x - this.view.x) * this.scale, this.height / 2 + (point.y - this.view.y) * this.scale];
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth || 1;
    this.height = this.canvas.clientHeight || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  follow() {
    if (!this.following || !this.devices.size) return;
    let [left, right, top, bottom] = [1, 0, 1, 0];
    for (const device of this.devices.values()) {
      for (const point of [device.to, device.trail[0]]) {
        left = Math.min(left, point.x); right = Math.max(right, point.x);
        top = Math.min(top, point.y); bottom = Math.max(bottom, point.y);
      }
    }
    const free = { width: this.width - this.covered.right, height: this.height - this.covered.bottom };
    const room = 0.82;
    const scale = Math.min(
      free.width * room / Math.max(right - left, 1e-6), free.height * room / Math.max(bottom - top, 1e-6));
    const zoom = Math.max(FARTHEST, Math.min(17, Math.log2(scale / 256)));
    const target = {
      x: (left + right) / 2 + (this.width - free.width) / 2 / (256 * 2 ** zoom),
      y: (top + bottom) / 2 + (this.height - free.height) / 2 / (256 * 2 ** zoom),
      zoom,
    };
    const far = Math.abs(target.zoom - this.view.zoom) > 2;
    const ease = far ? 1 : 0.08;
    for (const name of ["x", "y", "zoom"]) this.view[name] += (target[name] - this.view[name]) * ease;
  }

  draw() {
    this.follow();
    const c = this.context;
    const dark = this.dark.matches;
    c.clearRect(0, 0, this.width, this.height);
    this.drawGraticule(c, dark);
    const now = performance.now();
    const labels = this.devices.size <= 40;
    for (const [id, device] of this.devices) this.drawTrail(c, device, id === this.selected, now, dark);
    for (const [id, device] of this.devices) this.drawDevice(c, id, device, now, dark, labels);
    this.drawScale(c, dark);
  }

  drawGraticule(c, dark) {
    const corner = this.toWorld(0, 0);
    const opposite = this.toWorld(this.width, this.height);
    const span = (opposite.x - corner.x) * 360;
    const step = NICE_STEPS.findLast((candidate) => span / candidate <= 10) ?? 10;
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    c.strokeStyle = dark ? "#24312b" : "#d3dbd7";
    c.fillStyle = dark ? "#6f8078" : "#7b8a83";
    c.lineWidth = 1;
    c.font = "11px system-ui, sans-serif";
    c.beginPath();
    for (let lon = Math.ceil(toLon(corner.x) / step) * step; lon <= toLon(opposite.x); lon += step) {
      const [x] = this.toScreen({ x: toX(lon), y: 0 });
      c.moveTo(x, 0); c.lineTo(x, this.height);
      c.fillText(`${Math.abs(lon).toFixed(digits)}°${lon < 0 ? "W" : "E"}`, x + 4, 12);
    }
    for (let lat = Math.ceil(toLat(opposite.y) / step) * step; lat <= toLat(corner.y); lat += step) {
      const [, y] = this.toScreen({ x: 0, y: toY(lat) });
      c.moveTo(0, y); c.lineTo(this.width, y);
      c.fillText(`${Math.abs(lat).toFixed(digits)}°${lat < 0 ? "S" : "N"}`, 70, y - 4);
    }
    c.stroke();
  }

  drawTrail(c, device, selected, now, dark) {
    const points = [...device.trail.slice(0, -1), this.place(device, now)];
    if (points.length < 2) return;
    c.strokeStyle = `hsl(${device.colour} 70% ${dark ? 60 : 40}%)`;
    c.lineWidth = selected ? 4 : 2;
    c.lineJoin = "round";
    const bands = 4; // older parts paler
    const size = Math.ceil((points.length - 1) / bands);
    for (let start = 0, band = 1; start < points.length - 1; start += size, band++) {
      c.globalAlpha = (selected ? 0.9 : 0.65) * band / bands;
      c.beginPath();
      points.slice(start, start + size + 1).forEach((point, number) => {
        const [x, y] = this.toScreen(point);
        if (number) c.lineTo(x, y); else c.moveTo(x, y);
      });
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  drawDevice(c, id, device, now, dark, labels) {
    const [x, y] = this.toScreen(this.place(device, now));
    if (x < -50 || y < -50 || x > this.width + 50 || y > this.height + 50) return;
    const stale = this.clock() - device.position.ts > STALE_MS;
    const selected = id === this.selected;
    c.fillStyle = stale ? "#8a9690" : `hsl(${device.colour} 75% ${dark ? 60 : 40}%)`;
    c.strokeStyle = dark ? "#0c1210" : "#ffffff";
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
    if (labels || selected) {
      c.font = `${selected ? "600 13px" : "12px"} system-ui, sans-serif`;
      c.lineWidth = 3;
      c.strokeStyle = dark ? "#111916" : "#eef2f0";
      c.strokeText(id, x + 12, y + 4);
      c.fillStyle = dark ? "#e7efeb" : "#17211d";
      c.fillText(id, x + 12, y + 4);
    }
  }

  drawScale(c, dark) {
    const metresPerPixel = 40_075_016 * Math.cos(toLat(this.view.y) * Math.PI / 180) / this.scale;
    const longest = metresPerPixel * 120;
    const power = 10 ** Math.floor(Math.log10(longest));
    const metres = [5, 2, 1].map((factor) => factor * power).find((length) => length <= longest);
    const pixels = metres / metresPerPixel;
    const [x, y] = [16, this.height - this.covered.bottom - 18];
    c.strokeStyle = c.fillStyle = dark ? "#93a39b" : "#5c6b64";
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x, y - 6); c.lineTo(x, y); c.lineTo(x + pixels, y); c.lineTo(x + pixels, y - 6);
    c.stroke();
    c.font = "12px system-ui, sans-serif";
    c.fillText(metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, x + 6, y - 8);
  }

  listen() {
    const canvas = this.canvas;
    const where = (event) => ({ x: event.offsetX, y: event.offsetY });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, where(event));
      this.pressed = where(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      const at = where(event);
      if (this.pointers.size === 2) {
        const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
        const apart = (point) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
        this.zoomBy(Math.log2(apart(at) / apart(before)), (at.x + other.x) / 2, (at.y + other.y) / 2);
      } else if (Math.hypot(at.x - this.pressed.x, at.y - this.pressed.y) > 4 || !this.following) {
        this.view.x -= (at.x - before.x) / this.scale;
        this.view.y -= (at.y - before.y) / this.scale;
        this.following = false;
      }
      this.pointers.set(event.pointerId, at);
    });
    const release = (event) => {
      const at = where(event);
      const tap = this.pointers.size === 1 && this.pressed && Math.hypot(at.x - this.pressed.x, at.y - this.pressed.y) < 5;
      this.pointers.delete(event.pointerId);
      if (tap && event.type === "pointerup") this.onSelect(this.nearest(at));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(-event.deltaY / 300, event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, -60], ArrowDown: [0, 60] };
      if (event.key in moves) {
        this.view.x += moves[event.key][0] / this.scale;
        this.view.y += moves[event.key][1] / this.scale;
        this.following = false;
      } else if (event.key === "+" || event.key === "-") this.zoomBy(event.key === "+" ? 0.5 : -0.5);
      else if (event.key === "0") this.fit();
    });
  }

  nearest(at) {
    let found = null;
    let least = 24;
    const now = performance.now();
    for (const [id, device] of this.devices) {
      const [x, y] = this.toScreen(this.place(device, now));
      const distance = Math.hypot(x - at.x, y - at.y);
      if (distance < least) [found, least] = [id, distance];
    }
    return found;
  }
}
