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
  Site,
  Stop,
  Watchpoint,
} from '../api/types';
import { STATUS, type SiteStatus } from '../graph/colouring';
import type { Outline } from '../graph/worker';
import type { GraphView } from '../graph/view';
import { toNumber } from '../lib/format';

export type Phase = 'forward' | 'backward' | 'all';

export class OpenPlace {
  readonly at: Place;
  run = $state.raw<Run | null>(null);
  rank = $state.raw<RankState | null>(null);
  stop = $state.raw<Stop | null>(null);
  sites = $state.raw<Site[]>([]);
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
  private shownStep: number | null = null;
  private closed = false;
  private freshAt = 0;
  private loadedGraph = '';
  private loadingGraph = 0;
  private triedGraph = 0;
  private graphTries = 0;

  /** The graph is that of a traced step: complete, and not only the modules seen so far. */
  private get traced(): boolean {
    return !!this.outline && this.outline.n > 0 && this.outline.source_id !== 'module';
  }


  constructor(
    run: string,
    rank: string,
    private readonly say: (problem: unknown) => void,
    private readonly resumed: () => void,
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
    await this.quiet(this.at.sites(), (found) => (this.sites = found));
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
    this.loadingGraph++;
    try {
      const outline = await this.graph.load(url);
      if (this.closed || this.loadedGraph !== url) return;
      this.unfolded.clear();
      this.outline = outline;
      this.source = outline.source_id;
      this.loadedGraph = this.at.url('graph', { source: this.source, phase: this.phase });
      this.graphProblem = '';
      this.paint();
      this.paintBreakpoints();
    } catch (problem) {
      this.loadedGraph = '';
      this.graphProblem = problem instanceof Error ? problem.message : String(problem);
    } finally {
      this.loadingGraph--;
    }
  }

  async setGraph(change: { phase?: Phase; source?: string }): Promise<void> {
    if (change.phase) this.phase = change.phase;
    if (change.source) this.source = change.source;
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
      this.statuses = new Map(
        found.sites.map((id, i) => [
          id,
          { address: '', value: toNumber(found.value[i]), status: STATUS.indexOf(found.status[i]) },
        ]),
      );
    });
    this.paint();
  }

  statusOf(address: string): number {
    const colouring = this.graph?.colouring;
    const item = colouring?.find(address) ?? -1;
    return item < 0 ? 0 : colouring!.status[item];
  }

  async control(body: Partial<Control> & Pick<Control, 'action'>): Promise<boolean> {
    try {
      const whole = { count: 1, sites: '', ...body };
      const several = (this.run?.ranks.filter((rank) => rank.connected).length ?? 0) > 1;
      const everyone = several && ['continue', 'pause', 'step', 'terminate'].includes(body.action);
      await (everyone ? this.at.controlAll(whole) : this.at.control(whole));
      if (body.action !== 'pause') this.resumed();
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
  }

  receive(message: LiveMessage): void {
    if (message.run !== this.at.run || message.rank !== this.at.rank) return;
    switch (message.type) {
      case 'state':
        if (message.state) this.setState(message.state);
        break;
      case 'stop':
        if (message.stop) this.setStop(message.stop);
        break;
      case 'hit':
        if (message.hit && !this.hits.some((hit) => hit.ord === message.hit!.ord)) {
          this.hits = [...this.hits, message.hit];
          this.hitTotal = Math.max(this.hitTotal + 1, this.hits.length);
        }
        break;
      case 'finding':
        void this.quiet(this.at.findings(), (found) => (this.findings = found));
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
        void this.loadSites();
        void this.loadGraphAgain();
        void this.loadWatchpoints();
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
  }

  private setState(state: RankState): void {
    const before = this.rank;
    this.rank = state;
    this.setStop(state.state === 'stopped' ? (state.stop ?? this.stop) : null);
    if (before && before.state !== state.state) {
      if (state.state === 'stopped' || !state.live) void this.settled();
      if (!before.connected && state.connected) void this.loadWatchpoints();
    }
    if (state.step !== before?.step) this.maybeFresh();
    if (state.live && this.graphTries < 8 && !this.traced) void this.loadGraphAgain();
  }

  private setStop(stop: Stop | null): void {
    this.stop = stop;
    this.paintCurrent();
  }

  /** The training stopped or ended: what was written until now can be read. */
  private async settled(): Promise<void> {
    await Promise.all([this.catchUp(), this.loadSites()]);
    await this.loadGraphAgain();
    this.fresh++;
  }

  /** A graph that was empty, or only the modules seen so far, may have become a traced one: asked for ever less often. */
  private async loadGraphAgain(): Promise<void> {
    if (!this.graph || this.loadingGraph || this.traced) return;
    if (Date.now() - this.triedGraph < Math.min(16_000, 500 * 2 ** this.graphTries)) return;
    this.triedGraph = Date.now();
    if (this.rank && this.rank.step > 0) this.graphTries++;
    this.source = '';
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
    const byId = new Map(this.sites.map((site) => [site.id, site.address]));
    const found: SiteStatus[] = [];
    for (const [id, status] of this.statuses) {
      const address = byId.get(id);
      if (address) found.push({ ...status, address });
    }
    const backward = this.phase === 'backward';
    colouring.set(found, (address) => /:(grad|grad_in)/.test(address) === backward, this.outline?.step === null || this.outline?.step === undefined || this.shownStep === null || this.shownStep >= this.outline.step);
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
