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

  // The token and the cell to mark. token: the selected one, -1 for none.
  marked(token) {
    if (this.hovered >= 0) return { focus: this.hovered, cell: this.cell };
    return { focus: token, cell: this.picked?.query === token ? this.picked : null };
  }

  // Zooms in or out at the marked cell or token of a text of n tokens.
  zoom(viewport, factor, token, n) {
    const { focus, cell } = this.marked(token);
    const { query, key } = cell ?? { query: focus, key: focus };
    if (query < 0) viewport.by(factor);
    else viewport.towards(factor, { x: (key + 0.5) / n, y: (query + 0.5) / n });
  }
}
