// Layers that lie on each other: the paths of a stacked area over the points of a step.

import type { Memory } from '../api/types';

type Course = NonNullable<Memory['course']>;
export interface Layer {
  name: string;
  /** Bytes at each point. */
  bytes: number[];
  /** Computed by modules, as opposed to what is there from step to step. */
  computed: boolean;
}

const COMPUTED = ['activations', 'workspace'];

/** The layers from the ground up. By module, activations and workspace are cut into the modules that computed them. */
export function layersOf(course: Course, names: Record<string, string>, byModule: boolean): Layer[] {
  const layer = (name: string, bytes: number[], computed: boolean) => ({ name, bytes, computed });
  const uses = Object.entries(course.uses);
  const lasting = uses.filter(([use]) => !COMPUTED.includes(use)).map(([use, bytes]) => layer(names[use] ?? use, bytes, false));
  if (!byModule) return [...lasting, ...uses.filter(([use]) => COMPUTED.includes(use)).map(([use, bytes]) => layer(names[use] ?? use, bytes, true))];
  return [...lasting, ...Object.entries(course.modules).map(([name, bytes]) => layer(name || 'elsewhere', bytes, true))];
}

export function totals(layers: Layer[], points: number): number[] {
  return Array.from({ length: points }, (_, i) => layers.reduce((sum, layer) => sum + layer.bytes[i], 0));
}

/** One SVG path per layer, in units of the times of the step and of bytes from the top down. Memory stays as it is between two points. */
export function areas(layers: Layer[], at: number[], length: number, top: number): string[] {
  let ground = at.map(() => 0);
  return layers.map((layer) => {
    const roof = ground.map((under, i) => under + layer.bytes[i]);
    const there = along(roof, at, length, top);
    const back = along(ground, at, length, top).reverse();
    ground = roof;
    return `M${[...there, ...back].map(([x, y]) => `${x} ${y}`).join('L')}Z`;
  });
}

function along(levels: number[], at: number[], length: number, top: number): [number, number][] {
  return levels.flatMap((level, i) => {
    const y = top - level;
    return [[at[i], y], [at[i + 1] ?? length, y]] as [number, number][];
  });
}

/** Stretches of the same phase: where each begins and ends. */
export function phases(course: Course): { phase: string; from: number; to: number }[] {
  const found: { phase: string; from: number; to: number }[] = [];
  course.at.forEach((from, i) => {
    const phase = course.places[course.place[i]].phase;
    const to = course.at[i + 1] ?? course.length;
    const last = found[found.length - 1];
    if (last?.phase === phase) last.to = to;
    else found.push({ phase, from, to });
  });
  return found;
}

/** The point that lasts at this time. */
export function pointAt(at: number[], time: number): number {
  let low = 0;
  let high = at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle] <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}

const UNITS: [string, number][] = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

/** Bytes as people read them; the same as `size` of `tensonde.model.memory`. */
export function size(bytes: number): string {
  const unit = UNITS.find(([, one]) => bytes >= one);
  return unit ? `${(bytes / unit[1]).toFixed(1)} ${unit[0]}` : `${Math.round(bytes)} bytes`;
}
