// A map: where devices are and how they came there, what is looked at, and what a hand does with it.

import { colours, drawDevice, drawGrid, drawNames, drawScale, drawTrail, toX, toY } from "/live/drawing.js";
import { Tiles } from "/live/tiles.js";

const TRAIL_POINTS = 90;
const GLIDE_MS = 1000;
const FARTHEST = 1.5;
const CLOSEST = 24;
const FOLLOWED_FROM = 14; // nearer than that a device is not brought by following it

function hue(id) {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.codePointAt(0)) % 9973;
  return (sum * 137.508) % 360;
}

export class LiveMap {
  constructor(canvas, ground, tilesUrl, onSelect) {
    this.canvas = canvas;
    this.ground = ground;
    this.tiles = new Tiles(ground, tilesUrl);
    this.onSelect = onSelect;
    this.onFollow = () => {};
    this.devices = new Map();
    this.selected = null;
    this.view = { x: 0.5, y: 0.35, zoom: 3 };
    this.fitting = true; // the view fits all devices until somebody moves it
    this.followed = null; // the device that stays in the middle
    this.trails = true;
    this.units = "kmh";
    this.names = []; // where they are drawn
    this.pointers = new Map();
    this.clock = Date.now; // of the server's time
    this.covered = { right: 0, bottom: 0 }; // pixels that something else is drawn over
    this.themeChanged();
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themeChanged());
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
    this.resize();
    const frame = () => { this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  clear() {
    this.devices.clear();
    this.selected = null;
    this.fit();
  }

  remove(id) {
    this.devices.delete(id);
    if (this.selected === id) this.selected = null;
    if (this.followed === id) this.follow(null);
  }

  themeChanged() { this.colour = colours(); }

  // A device that sends late, from when it was offline, does not jump back.
  put(position, glide) {
    const at = { x: toX(position.lon), y: toY(position.lat) };
    const known = this.devices.get(position.deviceId);
    if (known && known.position.ts > position.ts) return;
    const now = performance.now();
    if (!known) {
      this.devices.set(position.deviceId, {
        position, from: at, to: at, moved: now, trail: [at], hue: hue(position.deviceId),
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

  fit() {
    this.follow(null);
    this.fitting = true;
  }

  // Null: nobody.
  follow(id) {
    if (id !== null) [this.fitting, this.view.zoom] = [false, Math.max(this.view.zoom, FOLLOWED_FROM)];
    this.followed = id;
    this.onFollow(id);
  }

  // By hand: then the hand is right.
  moveBy(x, y) {
    this.fitting = false;
    if (this.followed !== null) this.follow(null);
    this.view.x += x / this.scale;
    this.view.y += y / this.scale;
  }

  zoomBy(steps, cx = this.width / 2, cy = this.height / 2) {
    const before = this.toWorld(cx, cy);
    this.view.zoom = Math.max(FARTHEST, Math.min(CLOSEST, this.view.zoom + steps));
    const after = this.toWorld(cx, cy);
    this.view.x += before.x - after.x;
    this.view.y += before.y - after.y;
    this.fitting = false;
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
    for (const one of [this.canvas, this.ground]) {
      one.width = Math.round(this.width * ratio);
      one.height = Math.round(this.height * ratio);
    }
    this.tiles.drawn = "";
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  middle(now) {
    const device = this.devices.get(this.followed);
    if (!device) return;
    const at = this.place(device, now);
    this.view.x = at.x + this.covered.right / 2 / this.scale;
    this.view.y = at.y + this.covered.bottom / 2 / this.scale;
  }

  fitAll() {
    if (!this.fitting || !this.devices.size) return;
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
    const now = performance.now();
    this.fitAll();
    this.middle(now);
    const c = this.context;
    c.clearRect(0, 0, this.width, this.height);
    this.tiles.draw(this.view, this.width, this.height);
    if (!this.tiles.template) drawGrid(c, this, this.colour);
    if (this.trails) {
      for (const [id, device] of this.devices) drawTrail(c, this, device, id === this.selected, now, this.colour);
    }
    const places = new Map();
    for (const [id, device] of this.devices) {
      const [x, y] = this.toScreen(this.place(device, now));
      if (x < -50 || y < -50 || x > this.width + 50 || y > this.height + 50) continue;
      places.set(id, [x, y]);
      drawDevice(c, device, [x, y], id === this.selected, this.clock(), this.colour);
    }
    drawNames(c, this, places, this.colour);
    drawScale(c, this, this.colour);
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
      } else if (Math.hypot(at.x - this.pressed.x, at.y - this.pressed.y) > 4 || !this.fitting) {
        this.moveBy(before.x - at.x, before.y - at.y);
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
        this.moveBy(...moves[event.key]);
      } else if (event.key === "f" && this.selected !== null) {
        this.follow(this.followed === this.selected ? null : this.selected);
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
