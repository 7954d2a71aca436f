// How a place is shown: which graph, unfolded where, and in which colours. Nodes take theirs from the latest digests, or from a look at a stop.

import { SvelteSet } from 'svelte/reactivity';
import type { LiveMessage, Stop } from '../api/types';
import { STATUS, type SiteStatus } from '../graph/colouring';
import type { GraphView } from '../graph/view';
import type { Outline } from '../graph/worker';
import { Coalesced } from '../lib/coalesced';
import { toNumber } from '../lib/format';
import { ReadPlace } from './read.svelte';

export type Phase = 'forward' | 'backward' | 'all';

export abstract class ShownPlace extends ReadPlace {
  outline = $state.raw<Outline | null>(null);
  graphProblem = $state('');
  /** Grows when statuses changed, so that views look again. */
  tick = $state(0);
  phase = $state<Phase>('forward');
  source = $state('');
  colourBy = $state('health');
  graph: GraphView | null = null;
  readonly unfolded = new SvelteSet<number>();
  private statuses = new Map<number, SiteStatus>();
  /** By address, of the stop that the training is in. */
  protected readonly looked = new Map<string, SiteStatus>();
  private shownStep: number | null = null;
  private loadedGraph = '';
  /** Scopes of the tree that are to be unfolded when there is a graph. */
  private opened: string[] = [];
  /** The user has chosen which graph; none comes in its place by itself. */
  private chosen = false;
  protected readonly readGraph = new Coalesced(() => this.loadGraphAgain(), 250, 1500);
  protected appear: () => void = () => undefined;
  /** When the rank has said its first word; before, there is nothing to ask for. */
  protected readonly there = new Promise<void>((resolve) => (this.appear = resolve));

  abstract readonly stop: Stop | null;
  abstract get lastStep(): number;

  /** The graph is that of a traced step: complete, and not only the modules seen so far. */
  protected get traced(): boolean {
    return !!this.outline && this.outline.n > 0 && this.outline.source_id !== 'module';
  }

  attach(view: GraphView): void {
    this.graph = view;
    this.loadedGraph = '';
    void this.loadGraph();
  }

  /** `keep`: where it cannot be read, the one that is shown stays. */
  async loadGraph(keep = false): Promise<void> {
    await this.there;
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
      if (keep && this.outline) this.source = this.outline.source_id;
      else this.graphProblem = problem instanceof Error ? problem.message : String(problem);
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
    await this.there;
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

  /** The step that is looked at, where it is one: while the training runs, the newest digests are of several. When it has ended, the last. */
  get atStep(): number | null {
    void this.tick;
    return this.definiteStep;
  }

  private get definiteStep(): number | null {
    if (this.shownStep !== null) return this.shownStep;
    if (!this.stop) return this.live ? null : this.lastStep;
    // Between two steps it is the one that has just ended.
    return this.stop.site || this.stop.modules?.length ? this.stop.step : this.stop.step - 1;
  }

  /** What was found out about tensors just now, in the stopped training, is shown in the graph and the tree as well. */
  look(ports: { address?: string | null; live?: boolean; health?: string; step?: number | null; digest?: Record<string, unknown> | null }[]): void {
    let changed = false;
    for (const port of ports) {
      if (!port.live || !port.address || !port.digest) continue;
      const bad = port.health === 'bad';
      const at = this.definiteStep;
      this.looked.set(port.address, { address: port.address, value: NaN, status: bad ? 3 : 1, old: at !== null && (port.step ?? at) < at });
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

  /** Whether its status is of an earlier step than the one that is shown. */
  wasOf(address: string): boolean {
    return this.isOld(this.graph?.colouring?.find(address) ?? -1);
  }

  themeChanged(): void {
    this.graph?.setTheme();
    this.tick++;
  }

  /** Another rank of the same run is looked at in the same way. */
  lookAs(other: ShownPlace): void {
    this.phase = other.phase;
    this.colourBy = other.colourBy;
    if (other.chosen) [this.source, this.chosen] = [other.source, true];
    this.opened = [...other.unfolded].map((item) => other.outline?.name[item] ?? '').filter(Boolean);
  }

  /** There may be another graph: that of a traced step for the modules seen so far, or that of the step that went wrong. */
  private async loadGraphAgain(): Promise<void> {
    if (!this.graph) return;
    if (!this.chosen) this.source = '';
    this.loadedGraph = '';
    await this.loadGraph(true);
  }

  protected takeDigests(message: LiveMessage): void {
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

  protected override maybeFresh(): void {
    const before = this.fresh;
    super.maybeFresh();
    if (this.fresh !== before && this.colourBy !== 'health' && this.shownStep === null) void this.refreshStatus();
  }

  protected paint(): void {
    const colouring = this.graph?.colouring;
    if (!this.graph || !colouring) return;
    const found: SiteStatus[] = [];
    for (const [id, status] of this.statuses) {
      const address = this.sites.byId.get(id)?.address;
      if (!address) continue;
      const known = this.looked.get(address);
      if (!known) found.push({ ...status, address });
      else found.push({ ...status, address, old: !!known.old, status: known.status === 1 ? Math.max(1, status.old ? 1 : status.status) : known.status });
    }
    if (this.shownStep === null) for (const [address, known] of this.looked) if (!this.sites.byAddress.has(address)) found.push(known);
    const backward = this.phase === 'backward';
    colouring.set(found, (address) => /:(grad|grad_in)/.test(address) === backward, this.outline?.step === null || this.outline?.step === undefined || this.shownStep === null || this.shownStep >= this.outline.step, (this.definiteStep ?? -1) > (this.outline?.step ?? Infinity));
    this.graph.byHealth = this.colourBy === 'health';
    this.paintCurrent();
    this.graph.redraw();
    this.tick++;
  }

  protected paintCurrent(): void {
    const colouring = this.graph?.colouring;
    if (!colouring) return;
    const where = this.stop?.site ?? this.stop?.modules[this.stop.modules.length - 1] ?? '';
    this.graph!.setCurrent(where ? colouring.shows(where) : -1);
  }

  protected paintBreakpoints(): void {
    const colouring = this.graph?.colouring;
    if (!colouring) return;
    this.graph!.setBreakpoints(this.breakpoints.map((one) => colouring.find(one.sites)).filter((item) => item >= 0));
  }
}
