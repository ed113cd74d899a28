// The ground under the devices: square pictures from LIVE_TILES_URL, on a canvas of their own. Other people's pictures
// would make the map's canvas unreadable to scripts, and theirs can be darkened apart.

const SIDE = 256;
const CLOSEST = 19; // what tile servers have
const KEPT = 400;
const AT_ONCE = 8; // a server of somebody else's: no more than a browser asks for by itself
const AGAIN_MS = 30_000;

export class Tiles {
  /** @param {HTMLCanvasElement} canvas @param {string} template like https://host/{z}/{x}/{y}.png */
  constructor(canvas, template) {
    this.canvas = canvas;
    this.template = template;
    this.kept = new Map(); // by z/x/y, the longest unused first
    this.loading = 0;
    this.drawn = ""; // what is on the canvas
    this.arrived = 0;
  }

  // `view`: its middle in the world's unit square, and its zoom.
  draw(view, width, height) {
    if (!this.template) return;
    const wanted = `${view.x} ${view.y} ${view.zoom} ${width} ${height} ${this.arrived}`;
    if (wanted === this.drawn && !this.loading) return;
    this.drawn = wanted;
    const c = this.canvas.getContext("2d");
    const ratio = this.canvas.width / width;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const zoom = Math.max(0, Math.min(CLOSEST, Math.round(view.zoom)));
    const across = 2 ** zoom;
    const side = SIDE * 2 ** (view.zoom - zoom);
    const left = view.x * across * side - width / 2;
    const top = view.y * across * side - height / 2;
    const missing = [];
    for (let y = Math.max(0, Math.floor(top / side)); y < Math.min(across, (top + height) / side); y++) {
      for (let column = Math.floor(left / side); column < (left + width) / side; column++) {
        const x = ((column % across) + across) % across;
        const place = [column * side - left, y * side - top, side];
        if (!this.put(c, zoom, x, y, place)) missing.push([Math.hypot(place[0] - width / 2, place[1] - height / 2), zoom, x, y]);
      }
    }
    missing.sort((a, b) => a[0] - b[0]);
    for (const [, z, x, y] of missing) this.load(z, x, y);
  }

  // True: the tile is there. Otherwise a part of a coarser one stands in for it, if there is one.
  put(c, zoom, x, y, [left, top, side]) {
    for (let up = 0; up <= Math.min(zoom, 5); up++) {
      const image = this.used(`${zoom - up}/${x >> up}/${y >> up}`);
      if (!image) continue;
      const part = image.width / 2 ** up;
      const [u, v] = [(x % 2 ** up) * part, (y % 2 ** up) * part];
      // Half a pixel more: no seams between tiles at odd sizes.
      c.drawImage(image, u, v, part, part, left, top, side + 0.5, side + 0.5);
      return up === 0;
    }
    return false;
  }

  used(key) {
    const found = this.kept.get(key);
    if (!found) return null;
    this.kept.delete(key);
    this.kept.set(key, found);
    return found.image;
  }

  load(zoom, x, y) {
    const key = `${zoom}/${x}/${y}`;
    const known = this.kept.get(key);
    if (this.loading >= AT_ONCE || (known && performance.now() < known.again)) return;
    const image = new Image();
    const entry = { image: null, again: Infinity };
    this.kept.set(key, entry);
    this.loading++;
    const ended = (loaded) => {
      this.loading--;
      this.arrived++;
      entry.image = loaded;
      entry.again = loaded ? Infinity : performance.now() + AGAIN_MS;
      for (const oldest of this.kept.keys()) {
        if (this.kept.size <= KEPT) break;
        this.kept.delete(oldest);
      }
    };
    image.onload = () => ended(image);
    image.onerror = () => ended(null);
    image.src = this.template.replace("{z}", zoom).replace("{x}", x).replace("{y}", y)
      .replace("{r}", window.devicePixelRatio > 1 ? "@2x" : "");
  }
}
