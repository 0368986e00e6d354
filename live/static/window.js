// Which tokens of a long text the model sees.

// Twin of window_start: the first position that the model sees when it predicts token `count`.
export function windowStart(count, contextLength) {
  const half = Math.max(1, Math.floor(contextLength / 2));
  return half * Math.max(0, Math.ceil((count - contextLength) / half));
}
