// The token and the cell that the pointer is over, and the cell that was clicked.

export class Choice {
  hovered = -1; // a token, which takes precedence over the selected one

  cell = null;
  picked = null;

  hover(token, cell) {
    Object.assign(this, { hovered: token, cell });
  }

  pick(cell) {
    Object.assign(this, { hovered: -1, cell: null, picked: cell });
  }

  // Forgets a cell that the maps do not have.
  settle({ n, m }) {
    if (this.picked && !(this.picked.query < n && this.picked.key < m)) this.picked = null;
  }

  // The token and the cell to mark. token: the selected one, -1 for none.
  marked(token) {
    if (this.hovered >= 0) return { focus: this.hovered, cell: this.cell };
    return { focus: token, cell: this.picked?.query === token ? this.picked : null };
  }

  // Zooms in or out at the marked cell or token.
  zoom(viewport, factor, token, maps) {
    const { focus, cell } = this.marked(token);
    const { query, key } = cell ?? { query: maps.query(focus), key: maps.key(focus) };
    const [x, y] = [(key + 0.5) / maps.m, (query + 0.5) / maps.n];
    if (query < 0 && key < 0) viewport.by(factor);
    else viewport.towards(factor, { x: key < 0 ? 0.5 : x, y: query < 0 ? 0.5 : y });
  }
}
