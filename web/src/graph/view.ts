// The graph pane: asks the worker for scenes, and draws them as the lens sees them. It knows items, not sites.

import { Colouring } from './colouring';
import { Drawn, type Neighbours } from './drawn';
import { listen, type Gestured, type GraphEvents } from './gestures';
import { Layouter } from './layouter';
import { Lens } from './lens';
import { Overview } from './overview';
import { paint, type Highlight } from './paint';
import { readPalette, type Palette } from './palette';
import { OPEN, SCOPE, type Scene } from './scene';
import type { Loaded, Outline } from './worker';

export interface Box {
  item: number;
  name: string;
  status: number;
  x: number;
  y: number;
  width: number;
  height: number;
  scope: boolean;
  open: boolean;
}

export class GraphView implements Gestured {
  colouring: Colouring | null = null;
  byHealth = true;
  private readonly canvas = document.createElement('canvas');
  readonly drawn = new Drawn();
  readonly lens: Lens;
  private readonly overview: Overview;
  private readonly layouter = new Layouter();
  private readonly g: CanvasRenderingContext2D;
  private readonly observer: ResizeObserver;
  private palette: Palette;
  private asked = false;
  /** Width by height of the pane, as the layout was made for it. */
  private aspect = 0;
  private reshaping: ReturnType<typeof setTimeout> | undefined;
  /** By name, what somebody has unfolded: it stays so when the graph grows. */
  private readonly unfolded = new Set<string>();
  private near: Neighbours = { before: [], after: [] };
  highlight: Highlight = {
    selected: -1,
    hovered: -1,
    current: -1,
    before: new Set(),
    after: new Set(),
    lines: [],
    breakpoints: new Set(),
  };
  frames = 0;
  frameMillis = 0;

  constructor(
    private readonly host: HTMLElement,
    readonly events: GraphEvents,
  ) {
    this.canvas.className = 'graph-canvas';
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('aria-label', 'Graph. The node tree on the left shows the same nodes as a list.');
    this.lens = new Lens(host, () => this.redraw());
    this.overview = new Overview(host, this.lens);
    host.append(this.canvas, this.overview.canvas);
    this.g = this.canvas.getContext('2d', { alpha: false })!;
    this.palette = readPalette(host);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    listen(this.canvas, this);
  }

  destroy(): void {
    clearTimeout(this.reshaping);
    this.observer.disconnect();
    this.layouter.destroy();
    this.canvas.remove();
    this.overview.canvas.remove();
  }

  get outline(): Outline | null {
    return this.drawn.outline;
  }

  async load(url: string): Promise<Outline> {
    const before = this.outline;
    const { outline, scene } = await this.layouter.ask<Loaded>({ op: 'load', url, open: [...this.unfolded], aspect: (this.aspect = this.ownAspect) });
    const selected = before?.name[this.highlight.selected] ?? '';
    this.drawn.load(outline);
    this.colouring = new Colouring(outline);
    this.highlight = { ...this.highlight, selected: -1, hovered: -1, before: new Set(), after: new Set(), lines: [] };
    this.near = { before: [], after: [] };
    this.show(scene);
    // The same graph, grown: what is looked at stays where it is, if anything is.
    const same = selected ? this.colouring.find(selected) : -1;
    if (same < 0) this.fit(false);
    else void this.reveal(same);
    return outline;
  }

  async setOpen(item: number, open: boolean): Promise<void> {
    const before = this.onScreen(item);
    const name = this.outline?.name[item];
    if (name && open) this.unfolded.add(name);
    else if (name) this.unfolded.delete(name);
    this.show(await this.layouter.ask<Scene>({ op: 'open', item, open }));
    const now = this.onScreen(item);
    if (before && now) {
      // The box stays under the pointer; its new inside grows around it.
      const { camera } = this.lens;
      camera.x += before.x - now.x + (before.width - now.width) / 2;
      camera.y += before.y - now.y;
    }
    this.redraw();
  }

  toggle(item: number): void {
    if (this.drawn.isScope(item)) void this.setOpen(item, !this.drawn.isOpen(item));
  }

  isOpen(item: number): boolean {
    return this.drawn.isOpen(item);
  }

  /** Unfolds what hides the item, selects it and brings it into view. */
  async reveal(item: number, move = true): Promise<void> {
    if (!this.outline) return;
    if (this.drawn.visible(item) !== item) this.show(await this.layouter.ask<Scene>({ op: 'reveal', item: this.drawn.hostOf(item) }));
    await this.select(item);
    if (move) this.focus(item);
  }

  async select(item: number): Promise<void> {
    this.highlight.selected = item;
    this.near = item < 0 ? { before: [], after: [] } : await this.layouter.ask({ op: 'neighbours', item });
    if (this.highlight.selected === item) this.connect();
    this.redraw();
  }

  setCurrent(item: number): void {
    this.highlight.current = item < 0 ? -1 : this.drawn.visible(item);
    this.redraw();
  }

  setBreakpoints(items: number[]): void {
    this.highlight.breakpoints = new Set(items);
    this.redraw();
  }

  async showParameters(shown: boolean): Promise<void> {
    this.drawn.parametersShown = shown;
    this.show(await this.layouter.ask<Scene>({ op: 'parameters', shown }));
    this.fit();
  }

  /** Unfolds or folds everything; false when there is too much to unfold. */
  async openAll(open: boolean): Promise<boolean> {
    const scene = await this.layouter.ask<Scene | null>({ op: 'all', open });
    if (scene) {
      this.show(scene);
      this.fit();
    }
    return scene !== null;
  }

  setTheme(): void {
    this.palette = readPalette(this.host);
    if (!this.drawn.scene) this.blank();
    this.redraw();
  }

  fit(smooth = true): void {
    const { scene } = this.drawn;
    if (scene) this.lens.fit(scene.width, scene.height, smooth);
  }

  fitWhole(): void {
    const { scene } = this.drawn;
    if (scene) this.lens.fitWhole(scene.width, scene.height);
  }

  focus(item: number): void {
    const place = this.drawn.place(this.drawn.visible(item));
    if (place === undefined) return;
    const [x, y, w, h] = this.drawn.scene!.box.subarray(4 * place, 4 * place + 4);
    this.lens.focus(x, y, w, h);
  }

  zoomBy(factor: number): void {
    this.lens.zoomBy(factor);
  }

  redraw(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => this.draw(now));
  }

  /** What is drawn, in page coordinates: for tests and for placing popups. */
  boxes(): Box[] {
    const { scene, outline } = this.drawn;
    if (!scene || !outline) return [];
    const origin = this.canvas.getBoundingClientRect();
    return Array.from(scene.item, (item, place) => {
      const at = this.lens.onScreen(scene.box, place);
      return {
        item,
        name: outline.name[item],
        status: this.colouring!.status[item],
        scope: !!(scene.flag[place] & SCOPE),
        open: !!(scene.flag[place] & OPEN),
        ...at,
        x: at.x + origin.x,
        y: at.y + origin.y,
      };
    });
  }

  /** The selected item with the box that stands for it and whether that is in view: for tests. */
  selection(): { name: string; box: string; seen: boolean; status: number } | null {
    const { selected } = this.highlight;
    const { outline, scene } = this.drawn;
    const box = selected < 0 ? -1 : this.drawn.visible(selected);
    const at = this.onScreen(box);
    if (!outline || !scene || !at) return null;
    return {
      name: outline.name[selected],
      box: outline.name[box],
      seen: at.x + at.width > 0 && at.y + at.height > 0 && at.x < this.host.clientWidth && at.y < this.host.clientHeight,
      status: this.colouring!.status[selected],
    };
  }

  focusCanvas(): void {
    this.canvas.focus();
  }

  private show(scene: Scene): void {
    this.drawn.show(scene);
    this.leave();
    this.connect();
    this.redraw();
  }

  /** What was under the pointer may be elsewhere now. */
  private leave(): void {
    this.highlight.hovered = -1;
    this.events.hover(-1, 0, 0);
  }

  private connect(): void {
    this.highlight = { ...this.highlight, ...this.drawn.connections(this.highlight.selected, this.near) };
  }

  /** Where an item's box is in the pane; null where it has none. */
  private onScreen(item: number) {
    const place = this.drawn.place(item);
    return place === undefined ? null : this.lens.onScreen(this.drawn.scene!.box, place);
  }

  private draw(now: number): void {
    this.asked = false;
    const { scene, outline, folded, parametersShown } = this.drawn;
    if (!scene || !outline || !this.colouring) return;
    if (this.lens.moving) this.leave();
    if (this.lens.advance(now)) this.redraw();
    const began = performance.now();
    paint(this.g, {
      scene,
      outline,
      colouring: this.colouring,
      palette: this.palette,
      byHealth: this.byHealth,
      camera: this.lens.camera,
      width: this.host.clientWidth,
      height: this.host.clientHeight,
      ratio: devicePixelRatio,
      highlight: this.highlight,
      folded: parametersShown ? new Map() : folded,
    });
    this.overview.draw(scene, this.colouring.status, this.palette);
    this.frames++;
    this.frameMillis = performance.now() - began;
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.host;
    const before = this.canvas.width / devicePixelRatio;
    this.canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.canvas.height = Math.round(clientHeight * devicePixelRatio);
    if (before > 0 && this.drawn.scene && !this.lens.moving) this.lens.camera.x += (clientWidth - before) / 2;
    // At once: an emptied canvas is black until it is drawn again.
    this.blank();
    this.draw(performance.now());
    clearTimeout(this.reshaping);
    if (this.drawn.scene) this.reshaping = setTimeout(() => void this.reshape(), 300);
  }

  private get ownAspect(): number {
    return this.host.clientWidth / Math.max(1, this.host.clientHeight);
  }

  /** The pane has got another shape: long chains are cut into other columns. */
  private async reshape(): Promise<void> {
    const change = this.ownAspect / this.aspect;
    if (change > 0.7 && change < 1.4) return;
    this.aspect = this.ownAspect;
    this.show(await this.layouter.ask<Scene>({ op: 'aspect', aspect: this.aspect }));
    if (this.highlight.selected >= 0) this.focus(this.highlight.selected);
    else this.fit();
  }

  /** Before there is something to draw, the canvas would be black. */
  private blank(): void {
    this.g.fillStyle = this.palette.back;
    this.g.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }
}
