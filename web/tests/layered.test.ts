import { describe, expect, it } from 'vitest';
import { layered } from '../src/graph/layered';

function lay(count: number, ends: number[]) {
  return layered(count, new Float32Array(count).fill(80), new Float32Array(count).fill(24), Int32Array.from(ends));
}

/** One that feeds `many`, which all feed one. */
function fan(many: number): number[] {
  return Array.from({ length: many }, (_, i) => [0, i + 1, i + 1, many + 1]).flat();
}

describe('layered', () => {
  it('puts a consumer below what feeds it', () => {
    const { y } = lay(4, [0, 1, 1, 2, 0, 3, 3, 2]);
    expect(y[1]).toBeGreaterThan(y[0]);
    expect(y[2]).toBeGreaterThan(y[1]);
    expect(y[2]).toBeGreaterThan(y[3]);
  });

  it('never lets boxes of a row overlap', () => {
    const { x, y } = lay(10, fan(8));
    const row = Array.from({ length: 8 }, (_, i) => i + 1).filter((i) => y[i] === y[1]);
    expect(row.length).toBe(8);
    const lefts = row.map((i) => x[i]).sort((a, b) => a - b);
    for (let i = 1; i < lefts.length; i++) expect(lefts[i] - lefts[i - 1]).toBeGreaterThanOrEqual(80);
  });

  it('breaks a row of very many boxes, in their order, so that they can be read', () => {
    const { x, y, width } = lay(26, fan(24));
    expect(width).toBeLessThan(1600); // side by side they are 2,300 wide
    for (let i = 2; i < 25; i++) expect(y[i]).toBeGreaterThanOrEqual(y[i - 1]);
    for (let i = 1; i < 25; i++) expect([y[0] < y[i], y[i] < y[25]]).toEqual([true, true]);
    for (let i = 1; i < 25; i++) for (let k = 1; k < i; k++) expect(y[i] !== y[k] || Math.abs(x[i] - x[k]) >= 80).toBe(true);
  });

  it('keeps a chain straight', () => {
    const { x } = lay(5, [0, 1, 1, 2, 2, 3, 3, 4]);
    expect(Math.max(...x) - Math.min(...x)).toBeLessThan(0.01);
  });

  it('survives cycles, loops and nothing at all', () => {
    expect(lay(3, [0, 1, 1, 2, 2, 0]).x.length).toBe(3);
    expect(lay(1, [0, 0]).width).toBeGreaterThan(0);
    expect(lay(0, []).width).toBe(0);
  });

  it('gives every edge a line from its source to its target', () => {
    const { points, offsets, x, y } = lay(4, [0, 1, 1, 2, 2, 3, 0, 3]);
    for (const [edge, from, to] of [[0, 0, 1], [3, 0, 3]] as const) {
      expect(points[offsets[edge]]).toBeCloseTo(x[from] + 40, 3);
      expect(points[offsets[edge] + 1]).toBeCloseTo(y[from] + 24, 3);
      expect(points[offsets[edge + 1] - 1]).toBeCloseTo(y[to], 3);
    }
  });
});

describe('a long chain', () => {
  const chain = (count: number) => Array.from({ length: count - 1 }, (_, i) => [i, i + 1]).flat();
  const lay = (count: number, ends: number[], aspect: number, heights: (_: unknown, i: number) => number = () => 24) =>
    layered(count, new Float32Array(count).fill(80), Float32Array.from({ length: count }, heights), Int32Array.from(ends), aspect);

  it('fills a wide pane in columns, from left to right', () => {
    const tall = lay(60, chain(60), 0);
    const wide = lay(60, chain(60), 1.6);
    expect(wide.width / wide.height).toBeGreaterThan(0.8);
    expect(wide.width / wide.height).toBeLessThan(3.2);
    expect(wide.height).toBeLessThan(tall.height / 3);
    for (let i = 1; i < 60; i++) expect(wide.x[i] > wide.x[i - 1] + 1 || wide.y[i] > wide.y[i - 1]).toBe(true);
  });

  it('stays one column where it is short, and where too many edges would be cut', () => {
    expect(lay(9, chain(9), 1.6).width).toBe(80);
    const ends: number[] = [];
    for (let i = 0; i < 12; i++) for (let r = 0; r < 30; r++) ends.push(r * 12 + i, (r + 1) * 12 + i);
    expect(lay(31 * 12, ends, 3).height).toBeCloseTo(lay(31 * 12, ends, 0).height, 3);
  });

  it('has no edge that runs through a box, also with a long edge beside it and a tall box in it', () => {
    for (const aspect of [0, 1.6]) {
      const ends = [...chain(40), 0, 39, 5, 30, 7, 9, 20, 23];
      const { x, y, points, offsets } = lay(40, ends, aspect, (_, i) => (i % 7 === 3 ? 150 : 24));
      const height = (i: number) => (i % 7 === 3 ? 150 : 24);
      for (let e = 0; e < ends.length / 2; e++)
        for (let q = offsets[e] + 2; q < offsets[e + 1]; q += 2) {
          // The middle of each piece of the line; curves are symmetric about theirs.
          const [mx, my] = [(points[q] + points[q - 2]) / 2, (points[q + 1] + points[q - 1]) / 2];
          for (let i = 0; i < 40; i++)
            expect(mx > x[i] + 1 && mx < x[i] + 79 && my > y[i] + 1 && my < y[i] + height(i) - 1, `edge ${e} in box ${i}, aspect ${aspect}`).toBe(false);
        }
    }
  });
});

describe('a row that is as tall as all the others', () => {
  it('is not stood beside columns of one box', () => {
    const ends = Int32Array.from([0, 1, 1, 2, 2, 3, 3, 4]);
    const made = layered(5, new Float32Array(5).fill(90), Float32Array.from([24, 24, 700, 24, 24]), ends, 1.7);
    expect(made.width).toBe(90);
  });
});
