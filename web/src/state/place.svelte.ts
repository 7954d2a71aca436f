// The place that is open: one rank of one run, with everything that was read of it and what comes in live.

import { SvelteSet } from 'svelte/reactivity';
import { Place } from '../api/client';
import type {
  Breakpoint,
  Control,
  Event,
  Finding,
  Hit,
  LiveMessage,
  RankState,
  Run,
  Stop,
  Watchpoint,
} from '../api/types';
import { STATUS, type SiteStatus } from '../graph/colouring';
import type { Outline } from '../graph/worker';
import type { GraphView } from '../graph/view';
import { Coalesced } from '../lib/coalesced';
import { toNumber } from '../lib/format';
import { SiteBook } from './sites.svelte';
import { newer } from './truth';

export type Phase = 'forward' | 'backward' | 'all';

export class OpenPlace {
  readonly at: Place;
  run = $state.raw<Run | null>(null);
  /** What the hub said last; of two messages, the newer one, whichever came first. */
  private told = $state.raw<RankState | null>(null);
  /** False while nobody can tell what the training does: the hub does not answer, or does not know it. */
  linked = $state(true);
  readonly rank = $derived<RankState | null>(this.told && !this.linked ? { ...this.told, state: 'lost', connected: false, stop: null } : this.told);
  readonly stop = $derived<Stop | null>(this.rank?.state === 'stopped' ? (this.rank.stop ?? null) : null);
  readonly sites = new SiteBook();
  hits = $state.raw<Hit[]>([]);
  hitTotal = $state(0);
  findings = $state.raw<Finding[]>([]);
  events = $state.raw<Event[]>([]);
  watchpoints = $state.raw<Watchpoint[]>([]);
  breakpoints = $state.raw<Breakpoint[]>([]);
  scalarNames = $state.raw<string[]>([]);
  loss = $state.raw<{ step: number[]; value: number[] }>({ step: [], value: [] });
  outline = $state.raw<Outline | null>(null);
  graphProblem = $state('');
  loading = $state(true);
  /** Grows when statuses changed, so that views look again. */
  tick = $state(0);
  /** Grows when recorded numbers may have changed: sparklines and charts read again. */
  fresh = $state(0);
  phase = $state<Phase>('forward');
  source = $state('');
  colourBy = $state('health');
  graph: GraphView | null = null;
  readonly unfolded = new SvelteSet<number>();
  private statuses = new Map<number, SiteStatus>();
  /** By address, of the stop that the training is in. */
  private looked = new Map<string, SiteStatus>();
  private shownStep: number | null = null;
  private closed = false;
  private freshAt = 0;
  private loadedGraph = '';
  /** Scopes of the tree that are to be unfolded when there is a graph. */
  private opened: string[] = [];
  /** The user has chosen which graph; none comes in its place by itself. */
  private chosen = false;
  private readonly readSites = new Coalesced(() => this.loadSites(), 300, 2000);
  private readonly readGraph = new Coalesced(() => this.loadGraphAgain(), 250, 1500);
  private readonly readWatchpoints = new Coalesced(() => this.loadWatchpoints(), 500, 4000);
  private readonly readFindings = new Coalesced(() => this.quiet(this.at.findings(), (found) => (this.findings = found)), 200, 1000);
  private readonly settle = new Coalesced(() => this.settled(), 100, 1500);

  /** The graph is that of a traced step: complete, and not only the modules seen so far. */
  private get traced(): boolean {
    return !!this.outline && this.outline.n > 0 && this.outline.source_id !== 'module';
  }


  constructor(
    run: string,
    rank: string,
    private readonly say: (problem: unknown) => void,
    private readonly on: { resumed: () => void; stopped: (stop: Stop) => void },
  ) {
    this.at = new Place(run, rank);
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

  async load(): Promise<void> {
    await Promise.all([this.loadSites(), this.loadGraph(), this.catchUp()]);
    this.loading = false;
  }

  /** Everything that may have changed while we did not listen. */
  async catchUp(): Promise<void> {
    await Promise.all([
      this.loadHits(),
      this.quiet(this.at.findings(), (found) => (this.findings = found)),
      this.quiet(this.at.events(-1), (found) => (this.events = found.events)),
      this.loadScalars(),
      this.loadWatchpoints(),
      this.refreshStatus(),
    ]);
    this.fresh++;
  }

  private async loadHits(): Promise<void> {
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

  attach(view: GraphView): void {
    this.graph = view;
    this.loadedGraph = '';
    void this.loadGraph();
  }

  async loadGraph(): Promise<void> {
    if (!this.graph) return;
    const url = this.at.url('graph', { source: this.source, phase: this.phase });
    if (this.loadedGraph === url) return;
    this.loadedGraph = url;
    try {
      const outline = await this.graph.load(url);
      if (this.closed || this.loadedGraph !== url) return;
      const opened = new Set([...this.opened, ...[...this.unfolded].map((item) => this.outline?.name[item] ?? '')]);
      this.opened = [];
      this.unfolded.clear();
      for (let item = outline.n; item < outline.root; item++) if (opened.has(outline.name[item]) && outline.name[item]) this.unfolded.add(item);
      this.outline = outline;
      this.source = outline.source_id;
      this.loadedGraph = this.at.url('graph', { source: this.source, phase: this.phase });
      this.graphProblem = '';
      this.paint();
      this.paintBreakpoints();
    } catch (problem) {
      this.loadedGraph = '';
      this.graphProblem = problem instanceof Error ? problem.message : String(problem);
    }
  }

  async setGraph(change: { phase?: Phase; source?: string }): Promise<void> {
    if (change.phase) this.phase = change.phase;
    if (change.source) {
      this.source = change.source;
      this.chosen = true;
    }
    await this.loadGraph();
  }

  async showStep(step: number | null): Promise<void> {
    if (this.shownStep === step) return;
    this.shownStep = step;
    await this.refreshStatus();
  }

  async setColour(field: string): Promise<void> {
    this.colourBy = field;
    await this.refreshStatus();
  }

  async refreshStatus(): Promise<void> {
    const field = this.colourBy;
    await this.quiet(this.at.status(this.shownStep ?? undefined, field), (found) => {
      const at = this.definiteStep;
      this.statuses = new Map(
        found.sites.map((id, i) => [
          id,
          { address: '', value: toNumber(found.value[i]), status: STATUS.indexOf(found.status[i]), old: at !== null && (found.seen?.[i] ?? at) < at },
        ]),
      );
    });
    this.paint();
  }

  /** The step that is looked at, where it is one: while the training runs, the newest digests are of several. */
  get atStep(): number | null {
    void this.tick;
    return this.definiteStep;
  }

  private get definiteStep(): number | null {
    if (this.shownStep !== null) return this.shownStep;
    if (!this.stop) return null;
    // Between two steps it is the one that has just ended.
    return this.stop.site || this.stop.modules?.length ? this.stop.step : this.stop.step - 1;
  }

  /** What was found out about tensors just now, in the stopped training, is shown in the graph and the tree as well. */
  look(ports: { address?: string | null; live?: boolean; digest?: Record<string, unknown> | null }[]): void {
    let changed = false;
    for (const port of ports) {
      if (!port.live || !port.address || !port.digest) continue;
      const bad = ['nan', 'pos_inf', 'neg_inf'].some((field) => toNumber(port.digest![field] as number) > 0);
      this.looked.set(port.address, { address: port.address, value: NaN, status: bad ? 3 : 1 });
      changed = true;
    }
    if (changed) this.paint();
  }

  isOld(item: number): boolean {
    return !!this.graph?.colouring?.old[item];
  }

  statusOf(address: string): number {
    const colouring = this.graph?.colouring;
    const item = colouring?.find(address) ?? -1;
    return item < 0 ? 0 : colouring!.status[item];
  }

  async control(body: Partial<Control> & Pick<Control, 'action'>): Promise<boolean> {
    try {
      const whole = { count: 1, sites: '', alone: false, ...body };
      const several = (this.run?.ranks.filter((rank) => rank.connected).length ?? 0) > 1;
      await (several ? this.at.controlAll(whole) : this.at.control(whole));
      if (body.action !== 'pause') this.on.resumed();
      return true;
    } catch (problem) {
      this.say(problem);
      return false;
    }
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

  themeChanged(): void {
    this.graph?.setTheme();
    this.tick++;
  }

  close(): void {
    this.closed = true;
    for (const one of [this.readSites, this.readGraph, this.readWatchpoints, this.readFindings, this.settle]) one.close();
  }

  /** Another rank of the same run is looked at in the same way. */
  lookAs(other: OpenPlace): void {
    this.phase = other.phase;
    this.colourBy = other.colourBy;
    if (other.chosen) [this.source, this.chosen] = [other.source, true];
    this.opened = [...other.unfolded].map((item) => other.outline?.name[item] ?? '').filter(Boolean);
  }

  /** The connection to the hub was lost, or is there again. */
  setLinked(linked: boolean): void {
    this.linked = linked;
    this.paintCurrent();
  }

  private setState(state: RankState): void {
    if (!newer(this.told, state)) return;
    const before = this.rank;
    const held = this.stop;
    this.linked = true;
    this.told = state;
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
    }
    if (state.step !== before?.step) this.maybeFresh();
  }

  /** The training stopped or ended: what was written until now can be read. */
  private async settled(): Promise<void> {
    await Promise.all([this.catchUp(), ...(this.live ? [] : [this.loadSites()])]);
    if (!this.traced || !this.live) this.readGraph.ask();
  }

  /** There may be another graph: that of a traced step for the modules seen so far, or that of the step that went wrong. */
  private async loadGraphAgain(): Promise<void> {
    if (!this.graph) return;
    if (!this.chosen) this.source = '';
    this.loadedGraph = '';
    await this.loadGraph();
  }

  private takeDigests(message: LiveMessage): void {
    if (this.shownStep !== null || !message.sites) return;
    const values = this.colourBy === 'absmax' ? message.absmax : this.colourBy === 'norm' ? message.norm : null;
    message.sites.forEach((id, i) => {
      const known = this.statuses.get(id);
      this.statuses.set(id, {
        address: '',
        status: STATUS.indexOf(message.status?.[i] ?? 'none'),
        value: values ? toNumber(values[i]) : (known?.value ?? NaN),
      });
    });
    this.paint();
    this.maybeFresh();
  }

  private takeScalars(message: LiveMessage): void {
    const loss = message.values?.loss;
    if (loss !== undefined && message.step !== null && message.step !== undefined) {
      const last = this.loss.step[this.loss.step.length - 1] ?? -1;
      if (message.step > last)
        this.loss = { step: [...this.loss.step, message.step], value: [...this.loss.value, toNumber(loss)] };
    }
    this.maybeFresh();
  }

  /** At most once in two seconds: charts and sparklines read again. */
  private maybeFresh(): void {
    const now = Date.now();
    if (now - this.freshAt < 2000) return;
    this.freshAt = now;
    this.fresh++;
    if (this.fresh % 5 === 0) void this.loadScalars();
    if (this.colourBy !== 'health' && this.shownStep === null) void this.refreshStatus();
  }

  private paint(): void {
    const colouring = this.graph?.colouring;
    if (!this.graph || !colouring) return;
    const found: SiteStatus[] = [];
    for (const [id, status] of this.statuses) {
      const address = this.sites.byId.get(id)?.address;
      if (!address) continue;
      const known = this.looked.get(address);
      if (!known) found.push({ ...status, address });
      else found.push({ ...status, address, old: false, status: known.status === 1 ? Math.max(1, status.old ? 1 : status.status) : known.status });
    }
    if (this.shownStep === null) for (const [address, known] of this.looked) if (!this.sites.byAddress.has(address)) found.push(known);
    const backward = this.phase === 'backward';
    colouring.set(found, (address) => /:(grad|grad_in)/.test(address) === backward, this.outline?.step === null || this.outline?.step === undefined || this.shownStep === null || this.shownStep >= this.outline.step, (this.definiteStep ?? -1) > (this.outline?.step ?? Infinity));
    this.graph.byHealth = this.colourBy === 'health';
    this.paintCurrent();
    this.graph.redraw();
    this.tick++;
  }

  private paintCurrent(): void {
    const colouring = this.graph?.colouring;
    if (!colouring) return;
    const where = this.stop?.site ?? this.stop?.modules[this.stop.modules.length - 1] ?? '';
    this.graph!.setCurrent(where ? colouring.find(where) : -1);
  }

  private paintBreakpoints(): void {
    const colouring = this.graph?.colouring;
    if (!colouring) return;
    this.graph!.setBreakpoints(this.breakpoints.map((one) => colouring.find(one.sites)).filter((item) => item >= 0));
  }

  private async quiet<T>(pending: Promise<T>, use: (found: T) => void): Promise<void> {
    try {
      const found = await pending;
      if (!this.closed) use(found);
    } catch (problem) {
      if (!this.closed) this.say(problem);
    }
  }
}

/** Two messages about one stop. */
function sameStop(a: Stop, b: Stop): boolean {
  return a.number === b.number && a.step === b.step && a.site === b.site && a.reason === b.reason;
}
