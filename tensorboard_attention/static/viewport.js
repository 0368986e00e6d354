// The visible part of a map, shared by pictures side by side. x, y: the first visible key and query,
// as fractions of all.
export class Viewport {
  zoom = 1;
  x = 0;
  y = 0;

  // Zoom by a factor around a point, given as fractions of the visible part.
  by(factor, at = { x: 0.5, y: 0.5 }, most = 64) {
    const zoom = Math.min(most, Math.max(1, this.zoom * factor));
    this.pan(at.x / this.zoom - at.x / zoom, at.y / this.zoom - at.y / zoom, zoom);
  }

  pan(x, y, zoom = this.zoom) {
    this.zoom = zoom;
    const inside = (value) => Math.min(1 - 1 / zoom, Math.max(0, value));
    this.x = inside(this.x + x);
    this.y = inside(this.y + y);
  }

  restore([zoom, x, y] = [1, 0, 0]) {
    this.x = this.y = 0;
    this.pan(x, y, Math.min(64, Math.max(1, zoom)));
  }

  // Zoom at a point, given as fractions of all. Zooming in centres it if it is not visible.
  towards(factor, { x, y }) {
    const at = () => ({ x: (x - this.x) * this.zoom, y: (y - this.y) * this.zoom });
    const seen = () => Object.values(at()).every((each) => each >= 0 && each <= 1);
    if (factor > 1 && !seen())
      this.pan(x - 0.5 / this.zoom - this.x, y - 0.5 / this.zoom - this.y);
    this.by(factor, seen() ? at() : undefined);
  }

  // Centre the row of a token, or the column of a key of cross attention, if it is not visible.
  reveal(maps, token) {
    const query = maps.query(token);
    const seen = 1 / this.zoom;
    const x = (maps.key(token) + 0.5) / maps.m;
    const y = (query + 0.5) / maps.n;
    if (query < 0 && (x < this.x || x > this.x + seen)) this.pan(x - seen / 2 - this.x, 0);
    if (query >= 0 && (y < this.y || y > this.y + seen)) this.pan(0, y - seen / 2 - this.y);
  }
}
