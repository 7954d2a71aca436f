// A long chain beside an empty half of the pane is hard to read: its rows are cut into columns that stand side by side, read like the
// columns of a newspaper. Cuts are made where few edges cross; those go up again in the gap between two columns.

/** Shorter than this, a chain stays in one piece: it is read without scrolling. */
const TALL = 480;
const CHANNEL = 26;
const LANE = 5;
/** A cut that more edges cross is none: their lanes would be a knot. */
const MOST_CROSSING = 6;

export interface Columns {
  /** Per row: its column, and how far it is moved. */
  of: Int32Array;
  dx: Float64Array;
  dy: Float64Array;
  width: number;
  height: number;
  /** The points between the last row of a column and the first of the next, for the nth edge that goes there. */
  turn(from: number, nth: number, x0: number, x1: number): number[];
}

/**
 * `crossing[r]`: how many edges go from row r or above to a row below it; `left`, `right`: the extent of each row. `aspect` is the pane's
 * width by its height. Null where one column is best.
 */
export function columns(top: Float64Array, height: Float64Array, left: Float64Array, right: Float64Array, crossing: Int32Array, aspect: number): Columns | null {
  const rows = height.length;
  if (rows < 4 || !(aspect > 0)) return null;
  const whole = top[rows - 1] + height[rows - 1];
  const widest = right.reduce((a, b) => Math.max(a, b)) - left.reduce((a, b) => Math.min(a, b));
  if (whole < TALL) return null;
  const wanted = Math.min(Math.round(Math.sqrt((aspect * whole) / (widest + CHANNEL))), Math.floor(whole / (TALL / 2)));
  // A row cannot be cut: where one is as tall as all the others, columns would stand beside it half empty.
  const target = Math.max(whole / wanted, 1.1 * height.reduce((a, b) => Math.max(a, b)));
  if (wanted < 2 || whole < 1.6 * target) return null;
  const firsts = cuts(top, height, crossing, target);
  if (firsts.length < 2) return null;

  const of = new Int32Array(rows);
  const dx = new Float64Array(rows);
  const dy = new Float64Array(rows);
  const lanes = firsts.map((first) => (first ? crossing[first - 1] : 0));
  const above = 12 + LANE * Math.max(...lanes);
  const gaps: number[] = [];
  const ends: number[] = [];
  let x = 0;
  let deepest = 0;
  firsts.forEach((first, column) => {
    const next = firsts[column + 1] ?? rows;
    let low = Infinity;
    let high = -Infinity;
    for (let r = first; r < next; r++) {
      low = Math.min(low, left[r]);
      high = Math.max(high, right[r]);
    }
    if (column) x += CHANNEL + LANE * lanes[column];
    gaps.push(x - CHANNEL / 2);
    for (let r = first; r < next; r++) {
      of[r] = column;
      dx[r] = x - low;
      dy[r] = above - top[first];
    }
    x += high - low;
    ends.push(top[next - 1] + height[next - 1] - top[first] + above);
    deepest = Math.max(deepest, ends[column]);
  });
  return {
    of, dx, dy, width: x, height: deepest + above,
    turn(from, nth, x0, x1) {
      const channel = gaps[from + 1] - LANE * nth;
      const low = ends[from] + 8 + LANE * nth;
      const high = above - 8 - LANE * nth;
      return [x0, low, channel, low, channel, high, x1, high];
    },
  };
}

/** The first rows of the columns: near `target` apart, where the fewest edges cross. */
function cuts(top: Float64Array, height: Float64Array, crossing: Int32Array, target: number): number[] {
  const rows = height.length;
  const firsts = [0];
  const end = top[rows - 1] + height[rows - 1];
  for (let begin = 0; end - top[begin] > 1.3 * target; ) {
    let best = -1;
    let cost = Infinity;
    for (let r = begin; r < rows - 1; r++) {
      const deep = top[r] + height[r] - top[begin];
      if (deep < 0.6 * target) continue;
      if (deep > 1.35 * target && best >= 0) break;
      const found = crossing[r] + (2 * Math.abs(deep - target)) / target;
      if (crossing[r] <= MOST_CROSSING && found < cost) [best, cost] = [r, found];
    }
    if (best < 0) break;
    begin = best + 1;
    firsts.push(begin);
  }
  return firsts;
}
