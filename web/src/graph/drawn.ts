// What is drawn now: from items to the boxes that stand for them, and from points to boxes.

import type { Highlight } from './paint';
import { OPEN, SCOPE, type Scene } from './scene';
import type { Outline } from './worker';

export interface Neighbours {
  before: number[];
  after: number[];
}

export class Drawn {
  outline: Outline | null = null;
  scene: Scene | null = null;
  parametersShown = false;
  /** The parameters of each item, which are drawn as a part of it. */
  readonly folded = new Map<number, number[]>();
  private placeOf = new Map<number, number>();

  load(outline: Outline): void {
    this.outline = outline;
    this.folded.clear();
    for (let item = 0; item < outline.n; item++)
      if (outline.host[item] >= 0) {
        const chips = this.folded.get(outline.host[item]);
        if (chips) chips.push(item);
        else this.folded.set(outline.host[item], [item]);
      }
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.placeOf = new Map();
    scene.item.forEach((item, place) => this.placeOf.set(item, place));
  }

  place(item: number): number | undefined {
    return this.placeOf.get(item);
  }

  isScope(item: number): boolean {
    const place = this.placeOf.get(item);
    return place !== undefined && !!(this.scene!.flag[place] & SCOPE);
  }

  isOpen(item: number): boolean {
    const place = this.placeOf.get(item);
    return place !== undefined && !!(this.scene!.flag[place] & OPEN);
  }

  /** The item itself, or what it is folded into. */
  hostOf(item: number): number {
    const host = item < this.outline!.n ? this.outline!.host[item] : -1;
    return host >= 0 && !this.parametersShown ? host : item;
  }

  /** The item itself, what it is folded into, or the innermost drawn scope around it. */
  visible(item: number): number {
    if (!this.outline) return -1;
    for (let at = this.hostOf(item); at >= 0; at = this.outline.parent[at]) if (this.placeOf.has(at)) return at;
    return -1;
  }

  /** The place of the box at a point of the scene, -1 for none; the innermost where several lie there. */
  at(x: number, y: number): number {
    const { scene } = this;
    if (!scene) return -1;
    for (let i = scene.item.length - 1; i >= 0; i--) {
      const left = scene.box[4 * i];
      const top = scene.box[4 * i + 1];
      if (x >= left && y >= top && x <= left + scene.box[4 * i + 2] && y <= top + scene.box[4 * i + 3]) return i;
    }
    return -1;
  }

  /** The nearest box below or above an item; what it is `joined` to is preferred. */
  nearest(item: number, direction: 1 | -1, joined: Set<number>): number {
    const { scene } = this;
    if (!scene || !scene.item.length) return -1;
    const from = this.placeOf.get(item);
    if (from === undefined) return scene.item[0];
    const middle = (p: number) => [scene.box[4 * p] + scene.box[4 * p + 2] / 2, scene.box[4 * p + 1] + scene.box[4 * p + 3] / 2];
    const [x, y] = middle(from);
    let best = -1;
    let least = Infinity;
    for (let place = 0; place < scene.item.length; place++) {
      if (place === from || scene.flag[place] & OPEN) continue;
      const [px, py] = middle(place);
      const down = (py - y) * direction;
      if (down <= 1) continue;
      const distance = down + 2 * Math.abs(px - x) - (joined.has(scene.item[place]) ? 1e6 : 0);
      if (distance < least) {
        least = distance;
        best = scene.item[place];
      }
    }
    return best;
  }

  /** Lines from an item to its neighbours across scopes, to the boxes that stand for them. */
  connections(item: number, near: Neighbours): Pick<Highlight, 'lines' | 'before' | 'after'> {
    const lines: Highlight['lines'] = [];
    const before = new Set<number>();
    const after = new Set<number>();
    const own = item < 0 ? undefined : this.placeOf.get(this.visible(item));
    if (own !== undefined) {
      const add = (items: number[], incoming: boolean) => {
        const seen = incoming ? before : after;
        for (const other of items) {
          const box = this.visible(other);
          const place = this.placeOf.get(box);
          if (place === undefined || place === own || seen.has(box)) continue;
          seen.add(box);
          lines.push(incoming ? { from: place, to: own, incoming } : { from: own, to: place, incoming });
        }
      };
      add(near.before, true);
      add(near.after, false);
    }
    return { lines, before, after };
  }
}
