// Two recordings side by side: the verdict, every pair of tensors with how far it is apart, and the pair that is selected.

import { hub, Place } from '../api/client';
import type { Comparison } from '../api/types';
import type { SiteStatus } from '../graph/colouring';
import type { GraphView } from '../graph/view';
import { toNumber } from '../lib/format';

export type Side = 0 | 1;
export type Pass = 'forward' | 'backward';

export interface Pair {
  index: number;
  /** The addresses in A and in B; null where the other run has no such tensor. */
  sites: [string | null, string | null];
  phase: string;
  status: Comparison['differences']['status'][number];
  rel: number;
  maxAbs: number;
  cosine: number;
}

/** As the graph and the marks know them: not seen, fine, warning, bad. */
export const LEVEL = { unmatched: 0, equal: 1, rounding: 1, different: 2, origin: 3 } as const;

/** In which graph a tensor is drawn. */
export const passOf = (address: string): Pass => (/:grad(_in)?(\[\d+\])?$/.test(address) ? 'backward' : 'forward');

/** Gradients of inputs are drawn at the op that gives them. */
export const drawnAt = (address: string) => address.replace(/:grad_in(\[\d+\])?$/, ':grad');

export function pairsOf(found: Comparison): Pair[] {
  const { a, b, phase, status, rel_l2, max_abs, cosine } = found.differences;
  return a.map((site, index) => ({
    index,
    sites: [site, b[index]],
    phase: phase[index],
    status: status[index],
    rel: toNumber(rel_l2[index]),
    maxAbs: toNumber(max_abs[index]),
    cosine: toNumber(cosine[index]),
  }));
}

export class OpenComparison {
  readonly places: [Place, Place];
  readonly key: string;
  found = $state.raw<Comparison | null>(null);
  problem = $state('');
  pairs = $state.raw<Pair[]>([]);
  losses = $state.raw<{ step: number[]; a: number[]; b: number[] }>({ step: [], a: [], b: [] });
  pass = $state<Pass>('forward');
  /** The table shows what agrees, too. */
  everything = $state(false);
  /** The selected pair; -1 for none. */
  at = $state(-1);
  /** What is selected on each side: an address, a name or ''. */
  selected = $state.raw<[string, string]>(['', '']);
  /** The side where somebody clicked: its picture does not move. */
  clicked: Side | null = null;
  graphs: [GraphView | null, GraphView | null] = [null, null];
  /** Those that differ, in execution order. */
  differing = $derived(this.pairs.filter((pair) => LEVEL[pair.status] >= 2));
  listed = $derived(this.everything ? this.pairs : this.pairs.filter((pair) => LEVEL[pair.status] !== 1));
  private closed = false;

  constructor(
    a: [string, string],
    b: [string, string],
    private readonly remember: (sel: string) => void,
  ) {
    this.places = [new Place(...a), new Place(...b)];
    this.key = JSON.stringify([a, b]);
  }

  async load(sel: string): Promise<void> {
    try {
      const [a, b] = this.places.map((place) => `${place.run}/${place.rank}`);
      const found = await hub.compare(a, b);
      if (this.closed) return;
      this.pairs = pairsOf(found);
      this.found = found;
      if (!this.show(sel)) this.first();
      await this.loadLosses();
    } catch (problem) {
      if (!this.closed) this.problem = problem instanceof Error ? problem.message : String(problem);
    }
  }

  private async loadLosses(): Promise<void> {
    const [a, b] = await Promise.all(this.places.map((place) => place.scalars('loss', 100_000).catch(() => null)));
    if (!a || !b || this.closed) return;
    const theirs = new Map(b.step.map((step, i) => [step, toNumber(b.value[i])]));
    const common = a.step.map((_, i) => i).filter((i) => theirs.has(a.step[i]));
    this.losses = {
      step: common.map((i) => a.step[i]),
      a: common.map((i) => toNumber(a.value[i])),
      b: common.map((i) => theirs.get(a.step[i])!),
    };
  }

  graphUrl(side: Side): string {
    return this.places[side].url('graph', { source: this.found?.graphs[side ? 'b' : 'a'], phase: this.pass });
  }

  statuses(side: Side): SiteStatus[] {
    const found: SiteStatus[] = [];
    for (const pair of this.pairs) {
      const address = pair.sites[side];
      if (address !== null && passOf(address) === this.pass) found.push({ address: drawnAt(address), value: pair.rel, status: LEVEL[pair.status] });
    }
    return found;
  }

  select(index: number, clicked: Side | null = null): void {
    const pair = this.pairs[index];
    if (!pair) return;
    this.clicked = clicked;
    this.at = index;
    const [a, b] = pair.sites;
    this.pass = passOf(a ?? b ?? '');
    this.selected = [drawnAt(a ?? ''), drawnAt(b ?? '')];
    this.remember(a ?? b ?? '');
  }

  /** A node of one side: the pair that it belongs to, else what has the same name on the other side. */
  pick(side: Side, name: string, site: string | null): void {
    const fits = (pair: Pair) => {
      const address = pair.sites[side];
      return address !== null && passOf(address) === this.pass && (drawnAt(address) === site || address.replace(/:[^:]*$/, '') === name);
    };
    const worst = this.pairs.filter(fits).sort((x, y) => LEVEL[y.status] - LEVEL[x.status])[0];
    if (worst) return this.select(worst.index, side);
    this.clicked = side;
    this.at = -1;
    this.selected = [name, name];
  }

  /** Whether there is such a pair. */
  show(sel: string): boolean {
    const now = this.pairs[this.at];
    if (now && now.sites.includes(sel)) return true;
    const found = sel ? this.pairs.find((pair) => pair.sites.includes(sel)) : undefined;
    if (found) this.select(found.index);
    return !!found;
  }

  first(): void {
    const origin = this.pairs.find((pair) => pair.status === 'origin') ?? this.differing[0];
    if (origin) this.select(origin.index);
  }

  /** The next difference, or the one before, in execution order. */
  move(by: 1 | -1): void {
    const { differing, at } = this;
    const next = by > 0 ? differing.find((pair) => pair.index > at) : differing.findLast((pair) => pair.index < (at < 0 ? Infinity : at));
    if (next) this.select(next.index);
  }

  focus(): void {
    for (const side of [0, 1] as const) {
      const view = this.graphs[side];
      const item = view?.colouring?.find(this.selected[side]) ?? -1;
      if (item >= 0) void view!.reveal(item);
    }
  }

  close(): void {
    this.closed = true;
  }
}
