import { describe, expect, it } from 'vitest';
import { areas, layersOf, phases, pointAt, size, totals } from '../src/lib/stacked';

const NAMES = { parameters: 'parameters', activations: 'activations' };
const course = {
  step: 2,
  length: 10,
  at: [0, 3, 6],
  peak: 1,
  places: [{ phase: 'forward', op: 'mm', module: 'a' }, { phase: 'backward', op: 'mul', module: 'b' }],
  place: [0, 0, 1],
  uses: { parameters: [4, 4, 4], activations: [1, 6, 2] },
  modules: { a: [1, 4, 0], '': [0, 2, 2] },
};

describe('memory over a step', () => {
  it('has the same sum by use and by module', () => {
    const uses = layersOf(course, NAMES, false);
    const modules = layersOf(course, NAMES, true);
    expect(uses.map((layer) => layer.name)).toEqual(['parameters', 'activations']);
    expect(modules.map((layer) => layer.name)).toEqual(['parameters', 'a', 'elsewhere']);
    expect(totals(uses, 3)).toEqual([5, 10, 6]);
    expect(totals(modules, 3)).toEqual(totals(uses, 3));
  });
  it('stays as it is between two points, and layers lie on each other', () => {
    const [ground, upper] = areas(layersOf(course, NAMES, false), course.at, course.length, 10);
    expect(ground).toBe('M0 6L3 6L3 6L6 6L6 6L10 6L10 10L6 10L6 10L3 10L3 10L0 10Z');
    expect(upper.startsWith('M0 5L3 5L3 0L6 0L6 4L10 4L10 6')).toBe(true);
  });
  it('knows the phases and the point under the cursor', () => {
    expect(phases(course)).toEqual([{ phase: 'forward', from: 0, to: 6 }, { phase: 'backward', from: 6, to: 10 }]);
    expect([0, 2.9, 3, 9.5].map((time) => pointAt(course.at, time))).toEqual([0, 0, 1, 2]);
  });
  it('writes bytes as the terminal does', () => {
    expect([12, 1536, 3 * 2 ** 20, 2.5 * 2 ** 30].map(size)).toEqual(['12 bytes', '1.5 KiB', '3.0 MiB', '2.5 GiB']);
  });
});
