// What colours the graph: a status and a value for every item. Nodes take theirs from sites; a scope shows the worst
// status and the largest value of what is in it. A source is health, a digest field, or later a difference of runs.

import type { Outline } from './worker';

export const STATUS = ['none', 'ok', 'warn', 'bad'] as const;
export type Status = (typeof STATUS)[number];

export interface SiteStatus {
  address: string;
  value: number;
  status: number;
  /** It was so at an earlier step; what it is at the one that is shown, nobody has looked. */
  old?: boolean;
}

/** The larger of two, where NaN is no value at all. */
const larger = (a: number, b: number) => (Number.isNaN(a) || b > a ? (Number.isNaN(b) ? a : b) : a);

export class Colouring {
  readonly status: Uint8Array;
  readonly value: Float64Array;
  /** 1 where the status is of an earlier step than the one that is shown. */
  readonly old: Uint8Array;
  /** Finite range of `value`, for the legend. */
  low = NaN;
  high = NaN;
  /** Items of which a number of the shown step is known, whatever the trace said of them once. */
  private readonly fresh = new Set<number>();
  private readonly byName = new Map<string, number>();
  private readonly bySite = new Map<string, number>();

  constructor(private readonly outline: Outline) {
    const total = outline.name.length;
    this.status = new Uint8Array(total);
    this.value = new Float64Array(total).fill(NaN);
    this.old = new Uint8Array(total);
    for (let item = 0; item < total; item++)
      if (outline.kind[item] !== 'group' && !this.byName.has(outline.name[item])) this.byName.set(outline.name[item], item);
    for (let item = outline.n; item < outline.root; item++) this.byName.set(outline.name[item], item);
    this.byName.delete('');
    outline.site.forEach((site, item) => site && this.bySite.set(site, item));
  }

  /** The item that an address ("blocks.3:out") or a name ("blocks.3") belongs to, or -1. */
  find(address: string): number {
    const whole = this.byName.get(address) ?? this.bySite.get(address);
    if (whole !== undefined) return whole;
    const colon = address.lastIndexOf(':');
    return (colon < 0 ? undefined : this.byName.get(address.slice(0, colon))) ?? -1;
  }

  /** The item that shows a selection: its own, what stands for the same op or parameter in the other pass, or the module of an op
   * that this graph does not have. */
  shows(sel: string): number {
    const own = this.find(sel);
    if (own >= 0 || !sel) return own;
    const plain = sel.replace(/:[^:/]*$/, '').replace(/ \((backward|gradient)\)$/, '');
    const module = plain.includes('/') ? plain.slice(0, plain.indexOf('/')) : '';
    return [`${plain} (backward)`, `${plain} (gradient)`, plain, ...(module ? [module] : [])].map((name) => this.byName.get(name)).find((item) => item !== undefined) ?? -1;
  }

  /**
   * Replaces everything. `roles` says which roles count for the value (all of them count for the status). `traced`: the
   * step that is shown is not before the traced one, so that what the trace says of its ops holds; `since`: it is a later one.
   */
  set(sites: Iterable<SiteStatus>, roles: (address: string) => boolean, traced = false, since = false): void {
    this.status.fill(0);
    this.old.fill(0);
    this.value.fill(NaN);
    const { health } = this.outline;
    if (health && traced) for (let node = 0; node < this.outline.n; node++) {
      this.status[node] = Math.max(0, STATUS.indexOf(health[node] as Status));
      if (since && this.status[node]) this.old[node] = 1;
    }
    const { fresh } = this;
    fresh.clear();
    for (const site of sites) {
      const item = this.find(site.address);
      if (item < 0) continue;
      if (!site.old && !fresh.has(item) && this.old[item] && item < this.outline.n) {
        this.status[item] = 0;
        this.old[item] = 0;
      }
      if (!site.old) fresh.add(item);
      if (this.status[item] < site.status) {
        this.status[item] = site.status;
        this.old[item] = site.old && !fresh.has(item) ? 1 : 0;
      }
      if (roles(site.address)) this.value[item] = larger(this.value[item], site.value);
    }
    this.bubble();
  }

  private bubble(): void {
    const { outline, status, value, old } = this;
    const walk = (item: number) => {
      for (const child of outline.children[item]) {
        if (child >= outline.n) walk(child);
        else if (outline.host[child] >= 0 && status[outline.host[child]] < status[child]) {
          status[outline.host[child]] = status[child];
          old[outline.host[child]] = old[child];
        }
      }
      let most = NaN;
      for (const child of outline.children[item]) {
        // As bad as the worst of it, and as uncertain as the least known of that.
        if (status[item] < status[child]) {
          status[item] = status[child];
          old[item] = old[child];
        } else if (status[item] === status[child] && status[item] === 1 && old[child] && !this.fresh.has(item)) old[item] = 1;
        most = larger(most, value[child]);
      }
      if (Number.isNaN(value[item])) value[item] = most; // what was observed of the module itself comes first
    };
    walk(outline.root);
    let low = Infinity;
    let high = -Infinity;
    for (const v of value)
      if (Number.isFinite(v)) {
        low = Math.min(low, v);
        high = Math.max(high, v);
      }
    this.low = low;
    this.high = high;
  }

  /** Where a value lies between the smallest and largest, 0..1; by magnitude where they span decades. */
  scale(value: number): number {
    if (!Number.isFinite(value)) return NaN;
    if (this.high <= this.low) return 0.5;
    if (this.low >= 0 && this.high > 100 * Math.max(this.low, 1e-30)) {
      const floor = Math.max(this.low, this.high * 1e-9, 1e-38);
      return Math.log(Math.max(value, floor) / floor) / Math.log(this.high / floor);
    }
    return (value - this.low) / (this.high - this.low);
  }
}
