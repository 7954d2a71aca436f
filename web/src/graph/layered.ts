// A compact layered ("Sugiyama") layout, top to bottom, near-linear in nodes and edges: ranks by longest path with
// sources pulled down to their consumers, bounded dummies for long edges, barycentre ordering, and x positions by
// isotonic regression (pool adjacent violators), which keeps chains straight without overlaps. Long chains are cut into columns.

import { columns } from './columns';

export interface Layout {
  x: Float32Array;
  y: Float32Array;
  width: number;
  height: number;
  /** Polyline points of all edges, x y alternating; edge e is points[offsets[e]] .. points[offsets[e + 1]]. */
  points: Float32Array;
  offsets: Int32Array;
}

const GAP_X = 16;
const GAP_Y = 28;
/** A row that is wider, has more boxes, and stands between narrow ones is broken as a paragraph is: seen whole, it could not be read. */
const WIDE = 960;
const MANY = 8;

/** `ends` holds the edges as from, to alternating. `aspect`: width by height of the pane to fill; 0 for one column however long. */
export function layered(count: number, width: Float32Array, height: Float32Array, ends: Int32Array, aspect = 0): Layout {
  const edges = ends.length / 2;
  const { tops, bottoms, reversed, order } = acyclic(count, ends);
  const rank = ranks(count, tops, bottoms, order);
  const rows = wrapped(packIsolated(count, tops, bottoms, rank), rank, width);

  // Long edges get a dummy in each row that they cross, unless there would be too many to be worth it.
  let crossings = 0;
  for (let e = 0; e < edges; e++) crossings += Math.max(0, rank[bottoms[e]] - rank[tops[e]] - 1);
  const dummies = crossings <= Math.max(400, 6 * count) ? crossings : 0;
  const total = count + dummies;
  const row = new Int32Array(total);
  row.set(rank);
  const w = new Float32Array(total).fill(6);
  w.set(width);
  const above: number[][] = Array.from({ length: total }, () => []);
  const below: number[][] = Array.from({ length: total }, () => []);
  const chains: number[][] = new Array(edges);
  let dummy = count;
  for (let e = 0; e < edges; e++) {
    let at = tops[e];
    const chain: number[] = [];
    if (dummies)
      for (let r = rank[tops[e]] + 1; r < rank[bottoms[e]]; r++) {
        row[dummy] = r;
        chain.push(dummy);
        above[dummy].push(at);
        below[at].push(dummy);
        at = dummy++;
      }
    above[bottoms[e]].push(at);
    below[at].push(bottoms[e]);
    chains[e] = chain;
  }

  const members: number[][] = Array.from({ length: rows }, () => []);
  for (const v of order) members[row[v]].push(v);
  for (let v = count; v < total; v++) members[row[v]].push(v);
  untangle(members, above, below, total);
  const x = positions(members, above, below, w, count);

  const rowHeight = new Float64Array(rows);
  for (let v = 0; v < count; v++) rowHeight[rank[v]] = Math.max(rowHeight[rank[v]], height[v]);
  const rowTop = new Float64Array(rows + 1);
  for (let r = 0; r < rows; r++) rowTop[r + 1] = rowTop[r] + rowHeight[r] + GAP_Y;

  const left = new Float64Array(rows).fill(Infinity);
  const right = new Float64Array(rows).fill(-Infinity);
  for (let v = 0; v < total; v++) {
    left[row[v]] = Math.min(left[row[v]], x[v] - w[v] / 2);
    right[row[v]] = Math.max(right[row[v]], x[v] + w[v] / 2);
  }
  // Without dummies, an edge that crosses rows has no way of its own, so none can be cut.
  const cut = crossings === dummies ? columns(rowTop, rowHeight, left, right, crossed(rows, rank, tops, bottoms), aspect) : null;
  const start = count ? left.reduce((a, b) => Math.min(a, b)) : 0;
  const dx = (r: number) => (cut ? cut.dx[r] : -start);
  const dy = (r: number) => (cut ? cut.dy[r] : 0);
  const outX = new Float32Array(count);
  const outY = new Float32Array(count);
  for (let v = 0; v < count; v++) {
    outX[v] = x[v] + dx(rank[v]) - w[v] / 2;
    outY[v] = rowTop[rank[v]] + dy(rank[v]) + (rowHeight[rank[v]] - height[v]) / 2;
  }

  const points: number[] = [];
  const offsets = new Int32Array(edges + 1);
  const turned = new Int32Array(cut ? cut.of[rows - 1] + 1 : 0);
  for (let e = 0; e < edges; e++) {
    const a = tops[e];
    const b = bottoms[e];
    const line = [x[a] + dx(rank[a]), outY[a] + height[a]];
    let before = rank[a];
    // In its own row an edge goes straight up and down, so that it meets no taller box beside it.
    const straight = (v: number, y: number) => {
      const [toX, toY, at] = [x[v] + dx(row[v]), y + dy(row[v]), line.length];
      if (Math.abs(line[at - 2] - toX) + Math.abs(line[at - 1] - toY) > 0.01) line.push(toX, toY);
    };
    straight(a, rowTop[before] + rowHeight[before]);
    const enter = (v: number) => {
      const r = row[v];
      if (cut) for (let c = cut.of[before]; c < cut.of[r]; c++) line.push(...cut.turn(c, turned[c]++, line[line.length - 2], x[v] + dx(r)));
      before = r;
      straight(v, rowTop[r]);
    };
    for (const d of chains[e]) {
      enter(d);
      straight(d, rowTop[row[d]] + rowHeight[row[d]]);
    }
    enter(b);
    straight(b, outY[b] - dy(rank[b]));
    if (reversed[e]) for (let i = line.length - 2; i >= 0; i -= 2) points.push(line[i], line[i + 1]);
    else for (const value of line) points.push(value);
    offsets[e + 1] = points.length;
  }
  return {
    x: outX,
    y: outY,
    width: cut ? cut.width : count ? right.reduce((a, b) => Math.max(a, b)) - start : 0,
    height: cut ? cut.height : Math.max(0, rowTop[rows] - GAP_Y),
    points: Float32Array.from(points),
    offsets,
  };
}

/** Per row, how many edges go from it or above to a row below. */
function crossed(rows: number, rank: Int32Array, tops: Int32Array, bottoms: Int32Array): Int32Array {
  const found = new Int32Array(rows + 1);
  for (let e = 0; e < tops.length; e++) {
    found[rank[tops[e]]]++;
    found[rank[bottoms[e]]]--;
  }
  for (let r = 1; r < rows; r++) found[r] += found[r - 1];
  return found.subarray(0, rows);
}

/** Turns edges that close a cycle around, and gives a topological order. */
function acyclic(count: number, ends: Int32Array) {
  const edges = ends.length / 2;
  const start = new Int32Array(count + 1);
  for (let e = 0; e < edges; e++) start[ends[2 * e] + 1]++;
  for (let i = 0; i < count; i++) start[i + 1] += start[i];
  const out = new Int32Array(edges);
  const fill = start.slice(0, count);
  for (let e = 0; e < edges; e++) out[fill[ends[2 * e]]++] = e;

  const reversed = new Uint8Array(edges);
  const state = new Uint8Array(count);
  const next = start.slice(0, count);
  const order: number[] = [];
  for (let first = 0; first < count; first++) {
    if (state[first]) continue;
    const stack = [first];
    state[first] = 1;
    while (stack.length) {
      const at = stack[stack.length - 1];
      if (next[at] < start[at + 1]) {
        const e = out[next[at]++];
        const to = ends[2 * e + 1];
        if (!state[to]) {
          state[to] = 1;
          stack.push(to);
        } else if (state[to] === 1) reversed[e] = 1;
      } else {
        state[at] = 2;
        order.push(at);
        stack.pop();
      }
    }
  }
  order.reverse();
  const tops = new Int32Array(edges);
  const bottoms = new Int32Array(edges);
  for (let e = 0; e < edges; e++) {
    tops[e] = ends[2 * e + reversed[e]];
    bottoms[e] = ends[2 * e + 1 - reversed[e]];
  }
  return { tops, bottoms, reversed, order };
}

function ranks(count: number, tops: Int32Array, bottoms: Int32Array, order: number[]): Int32Array {
  const place = new Int32Array(count);
  order.forEach((v, i) => (place[v] = i));
  const rank = new Int32Array(count);
  const sorted = Array.from(tops, (_, e) => e).sort((a, b) => place[tops[a]] - place[tops[b]]);
  for (const e of sorted) rank[bottoms[e]] = Math.max(rank[bottoms[e]], rank[tops[e]] + 1);
  // What only feeds others stands right above its first consumer, not at the top of the page.
  const nearest = new Int32Array(count).fill(1 << 30);
  const fed = new Uint8Array(count);
  for (let e = 0; e < tops.length; e++) {
    fed[bottoms[e]] = 1;
    nearest[tops[e]] = Math.min(nearest[tops[e]], rank[bottoms[e]]);
  }
  for (let v = 0; v < count; v++) if (!fed[v] && nearest[v] < 1 << 30) rank[v] = nearest[v] - 1;
  return rank;
}

/** Nodes without edges are packed into a block; returns the number of rows. */
function packIsolated(count: number, tops: Int32Array, bottoms: Int32Array, rank: Int32Array): number {
  const joined = new Uint8Array(count);
  for (let e = 0; e < tops.length; e++) joined[tops[e]] = joined[bottoms[e]] = 1;
  let rows = 0;
  const isolated: number[] = [];
  for (let v = 0; v < count; v++) {
    rows = Math.max(rows, rank[v] + 1);
    if (!joined[v]) isolated.push(v);
  }
  if (isolated.length > 6) {
    const per = Math.ceil(Math.sqrt(isolated.length) * 1.2);
    isolated.forEach((v, i) => (rank[v] = Math.floor(i / per)));
    rows = Math.max(rows, Math.ceil(isolated.length / per));
  }
  return rows;
}

/** Breaks rows of very many boxes into several, in the order of the boxes; returns the number of rows. */
function wrapped(rows: number, rank: Int32Array, width: Float32Array): number {
  const total = new Float64Array(rows);
  const boxes = new Int32Array(rows);
  rank.forEach((r, v) => {
    total[r] += width[v] + GAP_X;
    boxes[r]++;
  });
  const first = new Int32Array(rows + 1);
  // Chains side by side stay so: each of their rows is as wide as the next.
  const alone = (r: number) => boxes[r] > 2 * Math.max(boxes[r - 1] ?? 0, boxes[r + 1] ?? 0);
  const parts = Int32Array.from(total, (all, r) => (boxes[r] > MANY && alone(r) ? Math.ceil(all / WIDE) : 1));
  for (let r = 0; r < rows; r++) first[r + 1] = first[r] + parts[r];
  const filled = new Float64Array(rows);
  rank.forEach((r, v) => {
    rank[v] = first[r] + Math.min(parts[r] - 1, Math.floor((filled[r] / total[r]) * parts[r]));
    filled[r] += width[v] + GAP_X;
  });
  return first[rows];
}

function untangle(members: number[][], above: number[][], below: number[][], total: number): void {
  const position = new Float64Array(total);
  const key = new Float64Array(total);
  const number = (row: number[]) => row.forEach((v, i) => (position[v] = i));
  members.forEach(number);
  const sweeps = total > 20000 ? 2 : 8;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const down = sweep % 2 === 0;
    for (let q = 1; q < members.length; q++) {
      const row = down ? members[q] : members[members.length - 1 - q];
      if (row.length < 2) continue;
      for (const v of row) {
        const near = down ? above[v] : below[v];
        let sum = 0;
        for (const u of near) sum += position[u];
        key[v] = near.length ? sum / near.length : position[v];
      }
      row.sort((a, b) => key[a] - key[b] || position[a] - position[b]);
      number(row);
    }
  }
}

function positions(
  members: number[][],
  above: number[][],
  below: number[][],
  w: Float32Array,
  count: number,
): Float64Array {
  const x = new Float64Array(w.length);
  for (const row of members) {
    let at = 0;
    for (const v of row) {
      x[v] = at + w[v] / 2;
      at += w[v] + GAP_X;
    }
    for (const v of row) x[v] -= at / 2;
  }
  for (let sweep = 0; sweep < 6; sweep++) {
    const down = sweep % 2 === 0;
    for (let q = 0; q < members.length; q++) {
      const row = down ? members[q] : members[members.length - 1 - q];
      const both = sweep >= 4;
      place(row, (v) => (both ? above[v].concat(below[v]) : down ? above[v] : below[v]), x, w, count);
    }
  }
  return x;
}

/** Moves one row as near as can be to its neighbours' x, in order and without overlap. */
function place(
  row: number[],
  neighbours: (v: number) => number[],
  x: Float64Array,
  w: Float32Array,
  count: number,
): void {
  const offset = new Float64Array(row.length);
  const sum: number[] = [];
  const weight: number[] = [];
  const last: number[] = [];
  row.forEach((v, i) => {
    if (i) {
      const gap = v >= count || row[i - 1] >= count ? GAP_X / 2 : GAP_X;
      offset[i] = offset[i - 1] + (w[row[i - 1]] + w[v]) / 2 + gap;
    }
    let wanted = 0;
    let parts = 0;
    for (const u of neighbours(v)) {
      const share = v >= count && u >= count ? 4 : 1; // straight long edges
      wanted += x[u] * share;
      parts += share;
    }
    const own = v >= count ? 2 : 1;
    sum.push(((parts ? wanted / parts : x[v]) - offset[i]) * own);
    weight.push(own);
    last.push(i);
    while (sum.length > 1) {
      const b = sum.length - 1;
      if (sum[b - 1] / weight[b - 1] < sum[b] / weight[b]) break;
      sum[b - 1] += sum.pop()!;
      weight[b - 1] += weight.pop()!;
      const end = last.pop()!;
      last[b - 1] = end;
    }
  });
  for (let block = 0, i = 0; block < sum.length; block++)
    for (; i <= last[block]; i++) x[row[i]] = sum[block] / weight[block] + offset[i];
}
