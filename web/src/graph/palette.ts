// Colours of the canvas, read from the same CSS variables as the rest of the page.

export interface Palette {
  back: string;
  scope: [string, string];
  node: string;
  folded: string;
  border: string;
  text: string;
  dim: string;
  edge: string;
  select: string;
  before: string;
  after: string;
  status: [string, string, string, string];
  tint: [string, string, string, string];
}

export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const get = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    back: get('graph-back'),
    scope: [get('graph-scope'), get('graph-scope-odd')],
    node: get('graph-node'),
    folded: get('graph-folded'),
    border: get('graph-border'),
    text: get('text'),
    dim: get('dim'),
    edge: get('graph-edge'),
    select: get('accent'),
    before: get('before'),
    after: get('after'),
    status: [get('none'), get('ok'), get('warn'), get('bad')],
    tint: [get('graph-node'), get('ok-tint'), get('warn-tint'), get('bad-tint')],
  };
}

/** A perceptually even scale (viridis), t in 0..1. */
const STOPS = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 139],
  [44, 113, 142],
  [33, 144, 141],
  [39, 173, 129],
  [92, 200, 99],
  [170, 220, 50],
  [253, 231, 37],
];

export function viridis(t: number): [number, number, number] {
  const at = Math.min(1, Math.max(0, t)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const part = at - low;
  return [0, 1, 2].map((c) => Math.round(STOPS[low][c] * (1 - part) + STOPS[low + 1][c] * part)) as [
    number,
    number,
    number,
  ];
}

export const css = ([r, g, b]: [number, number, number]) => `rgb(${r},${g},${b})`;
