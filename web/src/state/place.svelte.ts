// The place that is open: one rank of one run, what its training does, and what it is told to do. What comes in live arrives here.

import type { Control, LiveMessage, RankState, Run, Stop } from '../api/types';
import { Coalesced } from '../lib/coalesced';
import { ShownPlace } from './shown.svelte';
import { newer } from './truth';

export type { Phase } from './shown.svelte';

/** From node to node it runs for a shorter time, and what is shown can stay. */
const AWAY_MILLIS = 400;
/** How long a stop is taken for left, though the hub still tells of it; a rank that waits for others stays there. */
const LEAVING_MILLIS = 1000;

export class OpenPlace extends ShownPlace {
  run = $state.raw<Run | null>(null);
  /** What the hub said last; of two messages, the newer one, whichever came first. */
  private told = $state.raw<RankState | null>(null);
  /** False while nobody can tell what the training does: the hub does not answer, or does not know it. */
  linked = $state(true);
  readonly rank = $derived<RankState | null>(this.told && !this.linked ? { ...this.told, state: 'lost', connected: false, stop: null } : this.told);
  readonly stop = $derived<Stop | null>(this.rank?.state === 'stopped' ? (this.rank.stop ?? null) : null);
  loading = $state(true);
  /** Grows when tensors may be others: at a stop at once, while it runs only when it does so for a while, and at the end. */
  moment = $state(0);
  private left: { number: number; at: number } | null = null;
  private leaving: ReturnType<typeof setTimeout> | undefined;
  private readonly settle = new Coalesced(() => this.settled(), 100, 1500);

  constructor(
    run: string,
    rank: string,
    say: (problem: unknown) => void,
    private readonly on: { resumed: () => void; stopped: (stop: Stop) => void },
  ) {
    super(run, rank, say);
  }

  get live(): boolean {
    return this.rank?.connected ?? false;
  }

  get stopped(): boolean {
    return this.rank?.state === 'stopped';
  }

  get lastStep(): number {
    return Math.max(this.rank?.step ?? 0, (this.rank?.steps ?? 0) - 1, 0);
  }

  /** The run is listed, but this rank has not spoken yet: its program still imports what it needs. There is nothing to ask for. */
  get awaited(): boolean {
    const run = this.run;
    return !this.told && !!run && (run.state === 'empty' || run.state === 'live') && !run.ranks.some((rank) => rank.name === this.at.rank);
  }

  async load(): Promise<void> {
    await this.there;
    await Promise.all([this.loadSites(), this.loadGraph(), this.catchUp()]);
    this.loading = false;
  }

  /** Everything that may have changed while we did not listen. */
  async catchUp(): Promise<void> {
    await this.there;
    await Promise.all([
      this.loadHits(),
      this.loadFindings(),
      this.quiet(this.at.events(-1), (found) => (this.events = found.events)),
      this.loadScalars(),
      this.loadWatchpoints(),
      this.refreshStatus(),
    ]);
    this.fresh++;
  }

  async control(body: Partial<Control> & Pick<Control, 'action'>): Promise<boolean> {
    const moves = body.action !== 'pause' && body.action !== 'terminate';
    if (moves && this.justLeft()) return false;
    this.left = moves && this.stop ? { number: this.stop.number, at: performance.now() } : null;
    try {
      const whole = { count: 1, sites: '', alone: false, ...body };
      const several = (this.run?.ranks.filter((rank) => rank.connected).length ?? 0) > 1;
      await (several ? this.at.controlAll(whole) : this.at.control(whole));
      if (body.action !== 'pause') this.on.resumed();
      return true;
    } catch (problem) {
      this.left = null;
      this.say(problem);
      return false;
    }
  }

  /** This stop was asked to be left a moment ago: a key that is held down asks more often than the hub can tell of the next one. */
  private justLeft(): boolean {
    return !!this.left && this.stop?.number === this.left.number && performance.now() - this.left.at < LEAVING_MILLIS;
  }

  async toggleBreakpoint(sites: string): Promise<void> {
    try {
      const known = this.breakpoints.find((one) => one.sites === sites);
      if (known) await this.at.removeBreakpoint(known.id);
      else await this.at.addBreakpoint(sites);
      this.breakpoints = await this.at.breakpoints();
      this.paintBreakpoints();
    } catch (problem) {
      this.say(problem);
    }
  }

  setRun(run: Run | null): void {
    this.run = run;
    const found = run?.ranks.find((rank) => rank.name === this.at.rank);
    if (found) this.setState(found);
    else if (this.told) this.linked = false; // this hub has never heard of it
    if (!this.awaited) this.appear();
  }

  receive(message: LiveMessage): void {
    if (message.run !== this.at.run || message.rank !== this.at.rank) return;
    switch (message.type) {
      case 'state':
        if (message.state) this.setState(message.state);
        break;
      case 'hit':
        if (message.hit && !this.hits.some((hit) => hit.ord === message.hit!.ord)) {
          this.hits = [...this.hits, message.hit];
          this.hitTotal = Math.max(this.hitTotal + 1, this.hits.length);
        }
        break;
      case 'finding':
        this.readFindings.ask();
        break;
      case 'event':
        if (message.event) this.events = [...this.events, message.event];
        break;
      case 'digests':
        this.takeDigests(message);
        break;
      case 'scalars':
        this.takeScalars(message);
        break;
      case 'sites':
        if (message.new) this.sites.add(message.new);
        if (this.sites.size < (message.count ?? 0)) this.readSites.ask();
        else this.paint();
        if (!this.traced) this.readGraph.ask();
        if (this.watchpoints.length) this.readWatchpoints.ask(); // how many sites each of them watches
        break;
      case 'graph':
        this.readGraph.ask();
        break;
      case 'lagged':
        void this.catchUp();
    }
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.leaving);
    for (const one of [this.readSites, this.readGraph, this.readWatchpoints, this.readFindings, this.settle]) one.close();
  }

  /** The connection to the hub was lost. When it is there again, the hub says what the training does; what the last one said may be over. */
  unlink(): void {
    this.linked = false;
    this.paintCurrent();
  }

  private setState(state: RankState): void {
    if (!newer(this.told, state)) return;
    const before = this.rank;
    const held = this.stop;
    this.linked = true;
    this.told = state;
    this.appear();
    this.paintCurrent();
    if (before && before.state !== state.state) {
      if (state.state === 'stopped' || !state.live) this.settle.ask();
      if (!before.connected && state.connected) this.readWatchpoints.ask();
    }
    const stop = this.stop;
    if (!stop || (held && !sameStop(held, stop))) this.looked.clear();
    if (stop && !(held && sameStop(held, stop))) {
      if (held) this.settle.ask(); // a stop that followed the last one too quickly to see it run
      this.on.stopped(stop);
      this.pass(0);
    } else if (held && !stop) this.pass(AWAY_MILLIS);
    else if (before?.live && !state.live) this.pass(0);
    if (state.step !== before?.step) this.maybeFresh();
  }

  private pass(millis: number): void {
    clearTimeout(this.leaving);
    if (!millis) this.moment++;
    else this.leaving = setTimeout(() => this.moment++, millis);
  }

  /** The training stopped or ended: what was written until now can be read. */
  private async settled(): Promise<void> {
    await Promise.all([this.catchUp(), ...(this.live ? [] : [this.loadSites()])]);
    if (!this.traced || !this.live) this.readGraph.ask();
  }
}

/** Two messages about one stop. */
function sameStop(a: Stop, b: Stop): boolean {
  return a.number === b.number && a.step === b.step && a.site === b.site && a.reason === b.reason;
}
