import { describe, expect, it } from 'vitest';
import { layered } from '../src/graph/layered';

function lay(count: number, ends: number[]) {
  return layered(count, new Float32Array(count).fill(80), new Float32Array(count).fill(24), Int32Array.from(ends));
}

describe('layered', () => {
  it('puts a consumer below what feeds it', () => {
    const { y } = lay(4, [0, 1, 1, 2, 0, 3, 3, 2]);
    expect(y[1]).toBeGreaterThan(y[0]);
    expect(y[2]).toBeGreaterThan(y[1]);
    expect(y[2]).toBeGreaterThan(y[3]);
  });

  it('never lets boxes of a row overlap', () => {
    const ends: number[] = [];
    for (let i = 1; i < 40; i++) ends.push(0, i, i, 40);
    const { x, y } = lay(41, ends);
    const row = Array.from({ length: 39 }, (_, i) => i + 1).filter((i) => y[i] === y[1]);
    expect(row.length).toBe(39);
    const lefts = row.map((i) => x[i]).sort((a, b) => a - b);
    for (let i = 1; i < lefts.length; i++) expect(lefts[i] - lefts[i - 1]).toBeGreaterThanOrEqual(80);
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
