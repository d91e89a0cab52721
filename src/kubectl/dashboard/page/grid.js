// Where the cells of the map of GPUs are: one for each GPU, those of a node together.

/** Sides of a cell in CSS pixels, the largest that keeps the map within its height. */
const SIZES = [16, 14, 12, 10, 8, 7, 6, 5, 4, 3];
const MOST_IN_A_ROW = 8;

/**
 * Places nodes with these numbers of GPUs on an area of this width: `{size, pitch, height, x, y}`, the latter two by
 * node.
 */
export function layout(counts, width, mostHeight) {
  for (const size of SIZES) {
    const placed = place(counts, width, size);
    if (placed.height <= mostHeight || size === SIZES.at(-1)) return placed;
  }
  return undefined;
}

function place(counts, width, size) {
  const pitch = size + (size > 5 ? 1 : 0);
  const gap = Math.max(2, Math.round(size / 2));
  const x = new Int32Array(counts.length);
  const y = new Int32Array(counts.length);
  let [left, top, tallest] = [0, 0, 0];
  counts.forEach((count, at) => {
    const wide = Math.max(1, Math.min(count, MOST_IN_A_ROW)) * pitch;
    const high = Math.max(1, Math.ceil(count / MOST_IN_A_ROW)) * pitch;
    if (left > 0 && left + wide > width) {
      [left, top, tallest] = [0, top + tallest + Math.ceil(gap / 2), 0];
    }
    [x[at], y[at]] = [left, top];
    left += wide + gap;
    tallest = Math.max(tallest, high);
  });
  return { size, pitch, x, y, height: top + tallest };
}

/** Offset of a node's GPU from its first one. */
export function offset(gpu, pitch) {
  return [(gpu % MOST_IN_A_ROW) * pitch, Math.floor(gpu / MOST_IN_A_ROW) * pitch];
}

/** `[node, gpu]` by number at a point, or undefined. */
export function cellAt({ pitch, x, y }, counts, left, top) {
  // Nodes are in reading order: the last one that begins above and left of the point.
  let [low, high] = [0, counts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (y[middle] <= top) low = middle + 1;
    else high = middle;
  }
  const row = low - 1;
  for (let node = row; node >= 0 && y[node] === y[row]; node -= 1) {
    if (x[node] > left) continue;
    const column = Math.floor((left - x[node]) / pitch);
    const gpu = Math.floor((top - y[node]) / pitch) * MOST_IN_A_ROW + column;
    return column < MOST_IN_A_ROW && gpu < counts[node] ? [node, gpu] : undefined;
  }
  return undefined;
}

/** First and last row, exclusive, of a list of rows of one height that are in sight, with some more on each side. */
export function rowsInSight(above, viewport, height, count, more) {
  const first = Math.max(0, Math.floor(above / height) - more);
  const last = Math.min(count, Math.ceil((above + viewport) / height) + more);
  return [Math.min(first, count), Math.max(last, Math.min(first, count))];
}
