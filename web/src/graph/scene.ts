// What is to be drawn: boxes and edges of the scopes that are unfolded, in world coordinates. Layouts are kept by
// scope, so that unfolding one lays out only it and the scopes around it.

import type { Hierarchy } from './hierarchy';
import { layered, type Layout } from './layered';

export interface Scene {
  /** x, y, width, height of each box; outer boxes come before the ones inside. */
  box: Float32Array;
  item: Int32Array;
  /** bit 0: a scope, bit 1: unfolded. */
  flag: Uint8Array;
  depth: Uint8Array;
  points: Float32Array;
  offsets: Int32Array;
  /** Per edge: how many edges it stands for. */
  weight: Int32Array;
  /** Places of edges that were cut short because their source feeds very many: x, y of the target's top. */
  stubs: Float32Array;
  width: number;
  height: number;
}

export const SCOPE = 1;
export const OPEN = 2;
const PAD = 12;
const HEAD = 26;
/** A node that feeds more of its siblings than this is not connected by lines, but by stubs. */
const HUB = 14;

interface Placed {
  layout: Layout;
  children: number[];
  weight: number[];
  stubs: number[];
}

export class SceneBuilder {
  readonly open = new Set<number>();
  showParameters = false;
  private readonly placed = new Map<number, Placed>();

  /** `aspect`: width by height of the pane, which long chains are to fill. */
  constructor(
    readonly graph: Hierarchy,
    private aspect = 0,
  ) {
    this.open.add(graph.root);
    this.openLargest();
  }

  /** At first the scopes that hold nearly everything are unfolded, as long as the picture stays small. */
  private openLargest(): void {
    const { graph } = this;
    const drawnIn = (scope: number) => graph.children[scope].filter((child) => graph.isScope(child) || graph.host[child] < 0).length;
    let shown = drawnIn(graph.root);
    for (let at = graph.root; ; ) {
      const within = graph.children[at].filter((child) => graph.isScope(child));
      const largest = within.reduce((best, child) => (graph.size[child] > graph.size[best] ? child : best), within[0]);
      if (largest === undefined || graph.size[largest] < graph.size[at] * 0.55) return;
      const visible = shown;
      shown += drawnIn(largest);
      // A stub of a few nodes says nothing: the first scope with something in it is opened, whatever its size, if it can be read.
      if (shown > (visible < 9 ? 220 : 36)) return;
      this.open.add(largest);
      at = largest;
    }
  }

  setOpen(item: number, open: boolean): void {
    if (open) this.open.add(item);
    else this.open.delete(item);
    this.stale(item);
  }

  /** Scopes that were unfolded in another graph of the same model, by their names. */
  openNamed(names: string[]): void {
    if (!names.length) return;
    const wanted = new Set(names);
    for (let item = this.graph.n; item < this.graph.root; item++) if (wanted.has(this.graph.name[item])) this.open.add(item);
    this.placed.clear();
  }

  reveal(item: number): void {
    for (const scope of this.graph.path(item)) if (!this.open.has(scope)) this.setOpen(scope, true);
  }

  setAspect(aspect: number): void {
    this.aspect = aspect;
    this.placed.clear();
  }

  setParameters(shown: boolean): void {
    this.showParameters = shown;
    this.placed.clear();
  }

  openAll(limit: number): boolean {
    const { graph } = this;
    if (graph.n > limit) return false;
    for (let item = graph.n; item < graph.total; item++) this.open.add(item);
    this.placed.clear();
    return true;
  }

  closeAll(): void {
    this.open.clear();
    this.open.add(this.graph.root);
    this.placed.clear();
  }

  build(): Scene {
    const box: number[] = [];
    const item: number[] = [];
    const flag: number[] = [];
    const depth: number[] = [];
    const points: number[] = [];
    const offsets: number[] = [0];
    const weight: number[] = [];
    const stubs: number[] = [];
    const add = (scope: number, left: number, top: number, level: number) => {
      const placed = this.place(scope);
      const { layout, children } = placed;
      for (let i = 0; i < children.length; i++) {
        const child = children[i];
        const [w, h] = this.size(child);
        const x = left + layout.x[i];
        const y = top + layout.y[i];
        const unfolded = this.graph.isScope(child) && this.open.has(child);
        box.push(x, y, w, h);
        item.push(child);
        flag.push((this.graph.isScope(child) ? SCOPE : 0) | (unfolded ? OPEN : 0));
        depth.push(Math.min(level, 255));
        if (unfolded) add(child, x + (w - this.place(child).layout.width) / 2, y + HEAD, level + 1);
      }
      for (let e = 0; e < placed.weight.length; e++) {
        for (let p = layout.offsets[e]; p < layout.offsets[e + 1]; p += 2)
          points.push(left + layout.points[p], top + layout.points[p + 1]);
        offsets.push(points.length);
        weight.push(placed.weight[e]);
      }
      for (const target of placed.stubs)
        stubs.push(left + layout.x[target] + this.size(children[target])[0] / 2, top + layout.y[target]);
    };
    add(this.graph.root, 0, 0, 0);
    const { layout } = this.place(this.graph.root);
    return {
      box: Float32Array.from(box),
      item: Int32Array.from(item),
      flag: Uint8Array.from(flag),
      depth: Uint8Array.from(depth),
      points: Float32Array.from(points),
      offsets: Int32Array.from(offsets),
      weight: Int32Array.from(weight),
      stubs: Float32Array.from(stubs),
      width: layout.width,
      height: layout.height,
    };
  }

  /** How many parameters are drawn as diamonds in the op that uses them, at most three. */
  private chips(item: number): number {
    if (!this.folded) {
      this.folded = new Uint8Array(this.graph.n);
      for (const host of this.graph.host) if (host >= 0 && this.folded[host] < 3) this.folded[host]++;
    }
    return this.folded[item];
  }
  private folded: Uint8Array | null = null;

  private size(item: number): [number, number] {
    const { graph } = this;
    if (!graph.isScope(item)) return [Math.max(64, graph.label[item].length * 6.6 + 36 + (this.showParameters ? 0 : 8 * this.chips(item))), 24];
    const words = graph.label[item].length * 6.9 + graph.type[item].length * 6 + 48;
    if (!this.open.has(item)) return [Math.max(96, words), 30];
    const { layout } = this.place(item);
    return [Math.max(layout.width + 2 * PAD, words), layout.height + HEAD + PAD];
  }

  private place(scope: number): Placed {
    const known = this.placed.get(scope);
    if (known) return known;
    const { graph } = this;
    const children = this.showParameters
      ? graph.children[scope]
      : graph.children[scope].filter((child) => graph.isScope(child) || graph.host[child] < 0);
    const local = new Map(children.map((child, i) => [child, i]));
    const width = new Float32Array(children.length);
    const height = new Float32Array(children.length);
    children.forEach((child, i) => ([width[i], height[i]] = this.size(child)));

    const all: [number, number, number][] = [];
    const fanOut = new Map<number, number>();
    for (const [key, count] of graph.links.get(scope) ?? []) {
      const from = local.get(Math.floor(key / graph.total));
      const to = local.get(key % graph.total);
      if (from === undefined || to === undefined) continue;
      all.push([from, to, count]);
      fanOut.set(from, (fanOut.get(from) ?? 0) + 1);
    }
    const ends: number[] = [];
    const weight: number[] = [];
    const stubs: number[] = [];
    const drawn = new Map<number, number>();
    for (const [from, to, count] of all) {
      const nth = (drawn.get(from) ?? 0) + 1;
      drawn.set(from, nth);
      if (fanOut.get(from)! > HUB && nth > 2) {
        stubs.push(to);
        continue;
      }
      ends.push(from, to);
      weight.push(count);
    }
    const made = { layout: layered(children.length, width, height, Int32Array.from(ends), this.aspect), children, weight, stubs };
    this.placed.set(scope, made);
    return made;
  }

  private stale(item: number): void {
    for (let at = item; at >= 0; at = this.graph.parent[at]) this.placed.delete(at);
  }
}
