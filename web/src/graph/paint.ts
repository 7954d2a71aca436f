// Draws a scene on a canvas. Only what is in view is drawn, and words only where they can be read.

import type { Colouring } from './colouring';
import { css, viridis, type Palette } from './palette';
import { OPEN, SCOPE, type Scene } from './scene';
import type { Outline } from './worker';

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

export interface Highlight {
  selected: number;
  hovered: number;
  /** Where the training stands, when it is stopped. */
  current: number;
  before: Set<number>;
  after: Set<number>;
  /** Lines between the selection and its neighbours, as far as both are drawn: from box, to box. */
  lines: { from: number; to: number; incoming: boolean }[];
  breakpoints: Set<number>;
}

export interface Picture {
  scene: Scene;
  outline: Outline;
  colouring: Colouring;
  palette: Palette;
  byHealth: boolean;
  camera: Camera;
  width: number;
  height: number;
  ratio: number;
  highlight: Highlight;
  folded: Map<number, number[]>;
}

/** Words of nodes are dropped below this zoom; those of scopes stay, at the smallest size that can be read. */
export const LEGIBLE = 0.62;
const SMALLEST = 9;
const FONT = "'Inter Variable', system-ui, sans-serif";

export function paint(g: CanvasRenderingContext2D, p: Picture): void {
  const { camera, palette, ratio, width, height } = p;
  const z = camera.zoom;
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.fillStyle = palette.back;
  g.fillRect(0, 0, width, height);
  g.setTransform(ratio * z, 0, 0, ratio * z, ratio * camera.x, ratio * camera.y);
  const view = { left: -camera.x / z, top: -camera.y / z, right: (width - camera.x) / z, bottom: (height - camera.y) / z };
  const words: number[] = [];
  boxes(g, p, view, words);
  edges(g, p, view);
  neighbourLines(g, p);
  labels(g, p, words);
}

interface View {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function boxes(g: CanvasRenderingContext2D, p: Picture, view: View, words: number[]): void {
  const { scene, colouring, palette, highlight } = p;
  const z = p.camera.zoom;
  const pixel = 1 / z;
  for (let i = 0; i < scene.item.length; i++) {
    const x = scene.box[4 * i];
    const y = scene.box[4 * i + 1];
    const w = scene.box[4 * i + 2];
    const h = scene.box[4 * i + 3];
    if (x > view.right || y > view.bottom || x + w < view.left || y + h < view.top || w * z < 1.5) continue;
    const item = scene.item[i];
    const scope = scene.flag[i] & SCOPE;
    const open = scene.flag[i] & OPEN;
    const status = colouring.status[item];
    g.fillStyle = fill(p, item, scene.depth[i], !!open, !!scope);
    g.beginPath();
    if (w * z > 12) g.roundRect(x, y, w, h, scope ? 7 : 4);
    else g.rect(x, y, w, h);
    g.fill();
    const selected = item === highlight.selected;
    const near = highlight.before.has(item) ? palette.before : highlight.after.has(item) ? palette.after : '';
    const loud = status > 1 ? palette.status[status] : '';
    if (h * z > 4 || selected || loud) {
      g.strokeStyle = selected ? palette.select : near || loud || (item === highlight.hovered ? palette.dim : palette.border);
      g.lineWidth = (selected ? 2.5 : near ? 1.75 : 1) * pixel;
      g.globalAlpha = open && loud && !selected ? 0.55 : 1;
      g.stroke();
      g.globalAlpha = 1;
    }
    if (selected && !open && h * z > 8) {
      g.globalAlpha = 0.25;
      g.lineWidth = 7 * pixel;
      g.stroke();
      g.globalAlpha = 1;
    }
    if (scope ? h * z > 10 && w * z > 40 : z >= LEGIBLE || (h * z > 9 && w * z > 30)) words.push(i);
  }
}

function fill(p: Picture, item: number, depth: number, open: boolean, scope: boolean): string {
  const { palette, colouring } = p;
  if (open) return palette.scope[depth % 2];
  const status = colouring.status[item];
  if (!p.byHealth) {
    const t = colouring.scale(colouring.value[item]);
    if (Number.isFinite(t)) return css(viridis(t));
    return status === 3 ? palette.tint[3] : palette.node;
  }
  if (status > 1) return palette.tint[status];
  return scope ? palette.folded : palette.node;
}

function edges(g: CanvasRenderingContext2D, p: Picture, view: View): void {
  const { scene, palette } = p;
  const z = p.camera.zoom;
  const { points, offsets } = scene;
  const heads: number[] = [];
  g.strokeStyle = palette.edge;
  g.lineWidth = Math.max(1 / z, 0.9);
  g.globalAlpha = p.highlight.lines.length ? 0.5 : 1;
  g.beginPath();
  for (let e = 0; e + 1 < offsets.length; e++) {
    const a = offsets[e];
    const b = offsets[e + 1];
    let [low, high] = [points[a + 1], points[a + 1]];
    for (let q = a + 3; q < b; q += 2) {
      low = Math.min(low, points[q]);
      high = Math.max(high, points[q]);
    }
    if (high < view.top || low > view.bottom || (high - low) * z < 2) continue;
    trace(g, scene, e);
    if (z > 0.35) heads.push(points[b - 2], points[b - 1], points[b - 1] >= points[b - 3] ? 1 : -1);
  }
  g.stroke();
  g.fillStyle = palette.edge;
  g.beginPath();
  for (let q = 0; q < heads.length; q += 3) {
    const [x, y, down] = [heads[q], heads[q + 1], heads[q + 2]];
    g.moveTo(x, y);
    g.lineTo(x - 3.2, y - 6.5 * down);
    g.lineTo(x + 3.2, y - 6.5 * down);
    g.closePath();
  }
  if (z > 0.35)
    for (let s = 0; s < scene.stubs.length; s += 2) {
      const [x, y] = [scene.stubs[s], scene.stubs[s + 1]];
      if (y < view.top || y > view.bottom) continue;
      g.moveTo(x + 10, y - 8);
      g.arc(x + 8, y - 8, 2, 0, 7);
      g.rect(x + 7.6, y - 8, 0.8, 8);
    }
  g.fill();
  g.globalAlpha = 1;
}

function neighbourLines(g: CanvasRenderingContext2D, p: Picture): void {
  const { scene, palette } = p;
  const z = p.camera.zoom;
  g.lineWidth = Math.max(1.75 / z, 1);
  for (const { from, to, incoming } of p.highlight.lines) {
    const x0 = scene.box[4 * from] + scene.box[4 * from + 2] / 2;
    // Upwards (gradients beside the forward pass), lines leave at the top and arrive at the bottom.
    const down = scene.box[4 * to + 1] >= scene.box[4 * from + 1] ? 1 : -1;
    const y0 = scene.box[4 * from + 1] + (down > 0 ? scene.box[4 * from + 3] : 0);
    const x1 = scene.box[4 * to] + scene.box[4 * to + 2] / 2;
    const y1 = scene.box[4 * to + 1] + (down > 0 ? 0 : scene.box[4 * to + 3]);
    const bend = Math.max(18, Math.abs(y1 - y0) / 2) * down;
    g.strokeStyle = g.fillStyle = incoming ? palette.before : palette.after;
    g.beginPath();
    // From the end of one column to the start of the next, the line that is drawn already knows a way around the boxes.
    const edge = down < 0 ? edgeBetween(scene, from, to) : -1;
    if (edge >= 0) trace(g, scene, edge);
    else {
      g.moveTo(x0, y0);
      g.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    }
    g.stroke();
    const [tip, way] = edge >= 0 ? [scene.box[4 * to + 1], 1] : [y1, down];
    g.beginPath();
    g.moveTo(x1, tip);
    g.lineTo(x1 - 4, tip - 8 * way);
    g.lineTo(x1 + 4, tip - 8 * way);
    g.fill();
  }
}

/** The edge that is drawn from the bottom of one box to the top of another, or -1. */
export function edgeBetween(scene: Scene, from: number, to: number): number {
  const { box, points, offsets } = scene;
  const near = (at: number, place: number, y: number) => Math.abs(points[at] - box[4 * place] - box[4 * place + 2] / 2) < 1 && Math.abs(points[at + 1] - y) < 1;
  for (let e = 0; e + 1 < offsets.length; e++)
    if (near(offsets[e], from, box[4 * from + 1] + box[4 * from + 3]) && near(offsets[e + 1] - 2, to, box[4 * to + 1])) return e;
  return -1;
}

function trace(g: CanvasRenderingContext2D, { points, offsets }: Scene, edge: number): void {
  const a = offsets[edge];
  g.moveTo(points[a], points[a + 1]);
  for (let q = a + 2; q < offsets[edge + 1]; q += 2) {
    const bend = (points[q + 1] - points[q - 1]) / 2;
    g.bezierCurveTo(points[q - 2], points[q - 1] + bend, points[q], points[q + 1] - bend, points[q], points[q + 1]);
  }
}

/** Words are drawn at screen scale, so that they stay sharp and never grow absurd. */
function labels(g: CanvasRenderingContext2D, p: Picture, words: number[]): void {
  const { scene, outline, palette, colouring, camera, highlight } = p;
  const z = camera.zoom;
  g.setTransform(p.ratio, 0, 0, p.ratio, 0, 0);
  g.textBaseline = 'middle';
  const named: { x: number; y: number; right: number }[] = [];
  for (const i of words) {
    const item = scene.item[i];
    const scope = scene.flag[i] & SCOPE;
    const open = scene.flag[i] & OPEN;
    let x = scene.box[4 * i] * z + camera.x;
    const y = scene.box[4 * i + 1] * z + camera.y;
    const w = scene.box[4 * i + 2] * z;
    const h = scene.box[4 * i + 3] * z;
    const status = colouring.status[item];
    const size = Math.max(scope ? SMALLEST : SMALLEST - 1, Math.min(13, 12 * z));
    const middle = open ? y + Math.min(Math.max(13 * z, size * 0.7), h / 2) : y + h / 2;
    let room = w - Math.min(10, 6 + 4 * z);
    // The header of a large open scope stays in view while its left side is outside.
    let left = x + (scope || z >= LEGIBLE ? 7 * Math.min(1, z) : 2);
    if (open && left < 6) {
      room -= 6 - left;
      left = Math.min(6, x + w - 60);
    }
    const ink = inkFor(p, item, !!open);
    g.font = `${scope ? 600 : 450} ${size}px ${FONT}`;
    // Of a scope that is seen small, a word that does not fit would stand on what is inside it.
    const needed = open ? g.measureText(outline.label[item]).width + 2.2 * size : 0;
    const typed = open && z >= LEGIBLE && outline.type[item] ? g.measureText(outline.type[item]).width + 6 : 0;
    if (open && z < LEGIBLE) {
      if (h < 44 || room < needed) continue;
      // Outer scopes come first; the name of one inside that begins in the same corner would cover theirs.
      if (named.some((one) => left < one.right && left + needed > one.x && Math.abs(middle - one.y) < 1.2 * size)) continue;
      named.push({ x: left, y: middle, right: left + needed });
    }
    if (open) plate(g, p, i, left, middle, Math.min(room, needed + typed), size);
    // A node that is seen small has room for its name or for nothing.
    if (!scope && z < LEGIBLE && g.measureText(outline.label[item]).width + size * 1.05 > w - 4) continue;
    if (status) {
      mark(g, status, left + size * 0.4, middle, size * 0.36, !open && !p.byHealth ? ink : palette.status[status], !!colouring.old[item]);
    } else if (!scope) {
      g.fillStyle = palette.border;
      g.beginPath();
      g.arc(left + size * 0.4, middle, size * 0.16, 0, 7);
      g.fill();
    }
    left += size * 1.05;
    room -= size * 1.05;
    if (scope) {
      g.fillStyle = ink;
      chevron(g, left + size * 0.25, middle, size * 0.26, !!open);
      left += size * 0.8;
      room -= size * 0.8;
    }
    if (highlight.breakpoints.has(item)) {
      g.fillStyle = palette.status[3];
      g.beginPath();
      g.arc(x + w - 6, y + 6, 4, 0, 7);
      g.fill();
    }
    if (item === highlight.current) {
      g.fillStyle = palette.select;
      g.beginPath();
      g.moveTo(x - 12, middle - 6);
      g.lineTo(x - 3, middle);
      g.lineTo(x - 12, middle + 6);
      g.fill();
    }
    if (room < 8) continue;
    g.fillStyle = ink;
    const used = write(g, outline.label[item], left, middle, room);
    const chips = p.folded.get(item);
    if (chips && !open && z > 0.45) parameterChips(g, p, chips, x + w - 7 * z, middle, z);
    if (!scope || used < 0) continue;
    left += used + 6;
    room -= used + 6;
    if (room > 26 && z >= LEGIBLE) {
      g.font = `400 ${size - 1}px ${FONT}`;
      g.fillStyle = ink === palette.text ? palette.dim : ink;
      write(g, outline.type[item], left, middle, room);
    }
  }
}

/** Lines of the selection may run behind the name of a scope, not through it. */
function plate(g: CanvasRenderingContext2D, p: Picture, place: number, x: number, middle: number, width: number, size: number): void {
  g.fillStyle = p.palette.scope[p.scene.depth[place] % 2];
  g.fillRect(x - 1, middle - size * 0.65, width, size * 1.3);
}

function inkFor(p: Picture, item: number, open: boolean): string {
  if (p.byHealth || open) return p.palette.text;
  const t = p.colouring.scale(p.colouring.value[item]);
  return Number.isFinite(t) ? (t > 0.6 ? '#10151c' : '#ffffff') : p.palette.text;
}

/** One diamond for each parameter that is folded into the op, in the colour of its status. */
function parameterChips(g: CanvasRenderingContext2D, p: Picture, chips: number[], right: number, y: number, z: number) {
  const r = 3 * Math.min(z, 1.2);
  chips.slice(0, 3).forEach((parameter, k) => {
    const x = right - k * r * 2.4;
    const status = p.colouring.status[parameter];
    g.fillStyle = status > 1 ? p.palette.status[status] : p.palette.dim;
    g.beginPath();
    g.moveTo(x, y - r);
    g.lineTo(x + r, y);
    g.lineTo(x, y + r);
    g.lineTo(x - r, y);
    g.fill();
    if (parameter === p.highlight.selected) {
      g.strokeStyle = p.palette.select;
      g.lineWidth = 2;
      g.stroke();
    }
  });
}

/** A shape as well as a colour: ● fine, ▲ warning, ✕ bad. */
export function mark(g: CanvasRenderingContext2D, status: number, x: number, y: number, r: number, colour: string, old = false): void {
  g.fillStyle = g.strokeStyle = colour;
  g.beginPath();
  if (status === 1) {
    g.arc(x, y, r * 0.7, 0, 7);
    if (old) {
      g.lineWidth = Math.max(1, r * 0.4);
      g.stroke();
    } else g.fill();
  } else if (status === 2) {
    g.moveTo(x, y - r);
    g.lineTo(x + r, y + r * 0.8);
    g.lineTo(x - r, y + r * 0.8);
    g.fill();
  } else {
    g.lineWidth = Math.max(1.4, r * 0.55);
    g.moveTo(x - r * 0.8, y - r * 0.8);
    g.lineTo(x + r * 0.8, y + r * 0.8);
    g.moveTo(x + r * 0.8, y - r * 0.8);
    g.lineTo(x - r * 0.8, y + r * 0.8);
    g.stroke();
  }
}

function chevron(g: CanvasRenderingContext2D, x: number, y: number, r: number, open: boolean): void {
  g.globalAlpha = 0.6;
  g.beginPath();
  if (open) {
    g.moveTo(x - r, y - r * 0.6);
    g.lineTo(x + r, y - r * 0.6);
    g.lineTo(x, y + r * 0.8);
  } else {
    g.moveTo(x - r * 0.6, y - r);
    g.lineTo(x + r * 0.8, y);
    g.lineTo(x - r * 0.6, y + r);
  }
  g.fill();
  g.globalAlpha = 1;
}

/** Writes text cut to the room; returns the width used, or -1 when it was cut. */
function write(g: CanvasRenderingContext2D, text: string, x: number, y: number, room: number): number {
  const whole = g.measureText(text).width;
  if (whole <= room) {
    g.fillText(text, x, y);
    return whole;
  }
  const keep = Math.floor((text.length * (room - 6)) / whole);
  if (keep > 0) g.fillText(text.slice(0, keep) + '…', x, y);
  return -1;
}
