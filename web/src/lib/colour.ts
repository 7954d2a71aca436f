// Colours of numbers in heat maps. Values of both signs: blue below zero, red above; of one sign: viridis.
// What is not finite has a colour that no finite value has.

import { viridis } from '../graph/palette';

export const NAN: [number, number, number] = [255, 0, 200];
export const POS_INF: [number, number, number] = [255, 140, 0];
export const NEG_INF: [number, number, number] = [0, 190, 255];

export interface Scale {
  low: number;
  high: number;
  signed: boolean;
}

/** The smallest and the largest finite value; null where there is none. */
export function rangeOf(values: number[][]): [number, number] | null {
  let low = Infinity;
  let high = -Infinity;
  for (const row of values)
    for (const v of row)
      if (Number.isFinite(v)) {
        if (v < low) low = v;
        if (v > high) high = v;
      }
  return low > high ? null : [low, high];
}

/** What the ends of the colours stand for. They may be further apart than the values: zero is in the middle, and one value needs two ends. */
export function scaleOf(values: number[][]): Scale {
  const found = rangeOf(values);
  if (!found) return { low: 0, high: 1, signed: false };
  const [low, high] = found;
  if (low < 0) {
    const most = Math.max(-low, high);
    return { low: -most, high: most, signed: true };
  }
  return { low, high: high > low ? high : low + 1, signed: false };
}

export function colourOf(value: number, scale: Scale, dark: boolean): [number, number, number] {
  if (Number.isNaN(value)) return NAN;
  if (!Number.isFinite(value)) return value > 0 ? POS_INF : NEG_INF;
  const t = (value - scale.low) / (scale.high - scale.low);
  if (!scale.signed) return viridis(t);
  const middle = dark ? [24, 29, 37] : [248, 249, 251];
  const end = value < 0 ? [36, 99, 212] : [208, 42, 48];
  const part = Math.min(1, Math.abs(value) / scale.high) ** 0.7;
  return [0, 1, 2].map((c) => Math.round(middle[c] + (end[c] - middle[c]) * part)) as [number, number, number];
}
