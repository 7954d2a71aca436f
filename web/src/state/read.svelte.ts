// What was read of a place, one rank of one run: its sites, hits, findings, numbers and watchpoints. Read again when there is more.

import { Place } from '../api/client';
import type { Breakpoint, Event, Finding, Hit, LiveMessage, Memory, Question, Watchpoint } from '../api/types';
import { Coalesced } from '../lib/coalesced';
import { toNumber } from '../lib/format';
import { SiteBook } from './sites.svelte';

export abstract class ReadPlace {
  readonly at: Place;
  readonly sites = new SiteBook();
  hits = $state.raw<Hit[]>([]);
  hitTotal = $state(0);
  findings = $state.raw<Finding[]>([]);
  /** What experiments asked, with their answers. */
  questions = $state.raw<Question[]>([]);
  /** What `tensonde check --memory` has seen; null where it did not look. */
  memory = $state.raw<Memory | null>(null);
  events = $state.raw<Event[]>([]);
  watchpoints = $state.raw<Watchpoint[]>([]);
  breakpoints = $state.raw<Breakpoint[]>([]);
  scalarNames = $state.raw<string[]>([]);
  loss = $state.raw<{ step: number[]; value: number[] }>({ step: [], value: [] });
  /** Grows when recorded numbers may have changed: sparklines and charts read again. */
  fresh = $state(0);
  protected closed = false;
  private freshAt = 0;
  protected readonly readSites = new Coalesced(() => this.loadSites(), 300, 2000);
  protected readonly readWatchpoints = new Coalesced(() => this.loadWatchpoints(), 500, 4000);
  protected readonly readFindings = new Coalesced(() => this.loadFindings(), 200, 1000);

  constructor(
    run: string,
    rank: string,
    protected readonly say: (problem: unknown) => void,
  ) {
    this.at = new Place(run, rank);
  }

  /** The training is there, and can be asked. */
  abstract get live(): boolean;
  /** Sites or statuses have changed. */
  protected abstract paint(): void;
  protected abstract paintBreakpoints(): void;

  protected async loadHits(): Promise<void> {
    for (let more = true; more; ) {
      const after = this.hits.length ? this.hits[this.hits.length - 1].ord : -1;
      more = false;
      await this.quiet(this.at.hits(after), (found) => {
        const known = new Set(this.hits.map((hit) => hit.ord));
        const added = found.hits.filter((hit) => !known.has(hit.ord));
        this.hits = [...this.hits, ...added];
        this.hitTotal = Math.max(found.total, this.hits.length);
        more = added.length > 0 && this.hits.length < found.total;
      });
    }
  }

  protected async loadFindings(): Promise<void> {
    await Promise.all([
      this.quiet(this.at.findings(), (found) => (this.findings = found)),
      this.quiet(this.at.questions(), (found) => (this.questions = found)),
      this.quiet(this.at.memory(), (found) => (this.memory = found)),
    ]);
  }

  async loadSites(): Promise<void> {
    await this.quiet(this.at.sites(), (found) => this.sites.add(found));
    this.paint();
  }

  async loadWatchpoints(): Promise<void> {
    await this.quiet(this.at.watchpoints(), (found) => (this.watchpoints = found));
    if (this.live) await this.quiet(this.at.breakpoints(), (found) => (this.breakpoints = found));
    this.paintBreakpoints();
  }

  async loadScalars(): Promise<void> {
    await this.quiet(this.at.scalarNames(), (found) => (this.scalarNames = found));
    if (this.scalarNames.includes('loss'))
      await this.quiet(this.at.scalars('loss'), (found) => {
        this.loss = { step: found.step, value: found.value.map(toNumber) };
      });
  }

  protected takeScalars(message: LiveMessage): void {
    const loss = message.values?.loss;
    if (loss !== undefined && message.step !== null && message.step !== undefined) {
      const last = this.loss.step[this.loss.step.length - 1] ?? -1;
      if (message.step > last && !this.severalLosses)
        this.loss = { step: [...this.loss.step, message.step], value: [...this.loss.value, toNumber(loss)] };
    }
    this.maybeFresh();
  }

  /** A step has more than one loss; what comes in live is the last of them, so they are read again instead. */
  private get severalLosses(): boolean {
    return this.loss.step.length > 1 && this.loss.step[this.loss.step.length - 1] === this.loss.step[this.loss.step.length - 2];
  }

  /** At most once in two seconds: charts and sparklines read again. */
  protected maybeFresh(): void {
    const now = Date.now();
    if (now - this.freshAt < 2000) return;
    this.freshAt = now;
    this.fresh++;
    if (this.fresh % 5 === 0 || this.severalLosses) void this.loadScalars();
  }

  protected async quiet<T>(pending: Promise<T>, use: (found: T) => void): Promise<void> {
    try {
      const found = await pending;
      if (!this.closed) use(found);
    } catch (problem) {
      if (!this.closed) this.say(problem);
    }
  }
}
