// The graph pane: camera, pointer and keyboard, and the conversation with the worker. It knows items, not sites.

import { Colouring } from './colouring';
import { paint, type Camera, type Highlight } from './paint';
import { readPalette, type Palette } from './palette';
import { OPEN, SCOPE, type Scene } from './scene';
import type { Loaded, Outline, Request } from './worker';

export interface GraphEvents {
  select(item: number): void;
  menu(item: number, x: number, y: number): void;
  hover(item: number, x: number, y: number): void;
}

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

export class GraphView {
  outline: Outline | null = null;
  colouring: Colouring | null = null;
  byHealth = true;
  private scene: Scene | null = null;
  private readonly worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  private readonly waiting = new Map<number, { resolve: (v: never) => void; reject: (e: Error) => void }>();
  private serial = 0;
  private readonly canvas = document.createElement('canvas');
  private readonly overview = document.createElement('canvas');
  private readonly g: CanvasRenderingContext2D;
  private readonly observer: ResizeObserver;
  private camera: Camera = { x: 0, y: 0, zoom: 1 };
  private goal: { camera: Camera; from: Camera; start: number } | null = null;
  private palette: Palette;
  private asked = false;
  private placeOf = new Map<number, number>();
  private folded = new Map<number, number[]>();
  private near: { before: number[]; after: number[] } = { before: [], after: [] };
  private highlight: Highlight = {
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
    private readonly events: GraphEvents,
  ) {
    this.worker.onmessage = (event) => {
      const { id, result, error } = event.data;
      const waiting = this.waiting.get(id)!;
      this.waiting.delete(id);
      if (error) waiting.reject(new Error(error));
      else waiting.resolve(result as never);
    };
    this.canvas.className = 'graph-canvas';
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('aria-label', 'Graph. The node tree on the left shows the same nodes as a list.');
    this.overview.className = 'graph-overview';
    host.append(this.canvas, this.overview);
    this.g = this.canvas.getContext('2d', { alpha: false })!;
    this.palette = readPalette(host);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    this.listen();
  }

  destroy(): void {
    this.observer.disconnect();
    this.worker.terminate();
    this.canvas.remove();
    this.overview.remove();
  }

  async load(url: string): Promise<Outline> {
    const { outline, scene } = await this.ask<Loaded>({ op: 'load', url });
    this.outline = outline;
    this.colouring = new Colouring(outline);
    this.folded.clear();
    for (let item = 0; item < outline.n; item++)
      if (outline.host[item] >= 0) {
        const chips = this.folded.get(outline.host[item]);
        if (chips) chips.push(item);
        else this.folded.set(outline.host[item], [item]);
      }
    this.highlight = { ...this.highlight, selected: -1, hovered: -1, before: new Set(), after: new Set(), lines: [] };
    this.near = { before: [], after: [] };
    this.show(scene);
    this.fit(false);
    return outline;
  }

  async setOpen(item: number, open: boolean): Promise<void> {
    const place = this.placeOf.get(item);
    const anchor = place === undefined ? null : this.onScreen(place);
    this.show(await this.ask<Scene>({ op: 'open', item, open }));
    const now = this.placeOf.get(item);
    if (anchor && now !== undefined) {
      // The box stays under the pointer; its new inside grows around it.
      const at = this.onScreen(now);
      this.camera.x += anchor.x - at.x + (anchor.width - at.width) / 2;
      this.camera.y += anchor.y - at.y;
    }
    this.redraw();
  }

  toggle(item: number): void {
    const place = this.placeOf.get(item);
    if (place === undefined || !(this.scene!.flag[place] & SCOPE)) return;
    void this.setOpen(item, !(this.scene!.flag[place] & OPEN));
  }

  isOpen(item: number): boolean {
    const place = this.placeOf.get(item);
    return place !== undefined && !!(this.scene!.flag[place] & OPEN);
  }

  /** Unfolds what hides the item, selects it and brings it into view. */
  async reveal(item: number, move = true): Promise<void> {
    if (!this.outline) return;
    const shown = this.visible(item);
    if (shown !== item) this.show(await this.ask<Scene>({ op: 'reveal', item: this.hostOf(item) }));
    await this.select(item);
    if (move) this.focus(item);
  }

  async select(item: number): Promise<void> {
    this.highlight.selected = item;
    this.near = item < 0 ? { before: [], after: [] } : await this.ask({ op: 'neighbours', item });
    if (this.highlight.selected === item) this.connect();
    this.redraw();
  }

  setCurrent(item: number): void {
    this.highlight.current = item < 0 ? -1 : this.visible(item);
    this.redraw();
  }

  setBreakpoints(items: number[]): void {
    this.highlight.breakpoints = new Set(items);
    this.redraw();
  }

  async showParameters(shown: boolean): Promise<void> {
    this.parametersShown = shown;
    this.show(await this.ask<Scene>({ op: 'parameters', shown }));
    this.fit();
  }
  private parametersShown = false;

  /** Unfolds or folds everything; false when there is too much to unfold. */
  async openAll(open: boolean): Promise<boolean> {
    const scene = await this.ask<Scene | null>({ op: 'all', open });
    if (scene) {
      this.show(scene);
      this.fit();
    }
    return scene !== null;
  }

  setTheme(): void {
    this.palette = readPalette(this.host);
    this.redraw();
  }

  fit(smooth = true): void {
    if (!this.scene) return;
    const { width, height } = this.scene;
    const w = this.host.clientWidth;
    const h = this.host.clientHeight;
    const whole = Math.min(w / (width + 60), h / (height + 70));
    // A long chain is better read from its start than seen whole as a thread.
    const zoom = Math.min(1.1, Math.max(whole, Math.min(0.8, w / (width + 60))));
    const y = height * zoom + 70 > h ? 44 : (h - height * zoom) / 2 + 6;
    this.move({ x: (w - width * zoom) / 2, y, zoom }, smooth);
  }

  fitWhole(): void {
    if (!this.scene) return;
    const { width, height } = this.scene;
    const zoom = Math.min(1.1, this.host.clientWidth / (width + 60), this.host.clientHeight / (height + 60));
    this.move({ x: (this.host.clientWidth - width * zoom) / 2, y: (this.host.clientHeight - height * zoom) / 2, zoom }, true);
  }

  focus(item: number): void {
    const place = this.placeOf.get(this.visible(item));
    if (place === undefined || !this.scene) return;
    const [x, y, w, h] = this.scene.box.subarray(4 * place, 4 * place + 4);
    const W = this.host.clientWidth;
    const H = this.host.clientHeight;
    const zoom = Math.max(0.15, Math.min(Math.max(0.85, Math.min(this.camera.zoom, 1.3)), W / (w + 40), H / (h + 70)));
    this.move({ x: W / 2 - (x + w / 2) * zoom, y: H / 2 - (y + h / 2) * zoom, zoom }, true);
  }

  zoomBy(factor: number, x = this.host.clientWidth / 2, y = this.host.clientHeight / 2): void {
    const zoom = Math.min(4, Math.max(0.005, this.camera.zoom * factor));
    const real = zoom / this.camera.zoom;
    this.goal = null;
    this.camera = { x: x - (x - this.camera.x) * real, y: y - (y - this.camera.y) * real, zoom };
    this.redraw();
  }

  redraw(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => this.draw(now));
  }

  /** What is drawn, in page coordinates: for tests and for placing popups. */
  boxes(): Box[] {
    const { scene, outline } = this;
    if (!scene || !outline) return [];
    const origin = this.canvas.getBoundingClientRect();
    return Array.from(scene.item, (item, place) => {
      const at = this.onScreen(place);
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
    const place = selected < 0 ? undefined : this.placeOf.get(this.visible(selected));
    if (!this.outline || place === undefined) return null;
    const { x, y, width, height } = this.onScreen(place);
    return {
      name: this.outline.name[selected],
      box: this.outline.name[this.scene!.item[place]],
      seen: x + width > 0 && y + height > 0 && x < this.host.clientWidth && y < this.host.clientHeight,
      status: this.colouring!.status[selected],
    };
  }

  focusCanvas(): void {
    this.canvas.focus();
  }

  private ask<T>(request: Request): Promise<T> {
    return new Promise((resolve, reject) => {
      const id = ++this.serial;
      this.waiting.set(id, { resolve: resolve as (v: never) => void, reject });
      this.worker.postMessage({ id, request });
    });
  }

  private show(scene: Scene): void {
    this.scene = scene;
    this.placeOf = new Map();
    scene.item.forEach((item, place) => this.placeOf.set(item, place));
    this.connect();
    this.redraw();
  }

  private hostOf(item: number): number {
    const host = item < this.outline!.n ? this.outline!.host[item] : -1;
    return host >= 0 && !this.parametersShown ? host : item;
  }

  /** The item itself, what it is folded into, or the innermost drawn scope around it. */
  private visible(item: number): number {
    if (!this.outline) return -1;
    for (let at = this.hostOf(item); at >= 0; at = this.outline.parent[at]) if (this.placeOf.has(at)) return at;
    return -1;
  }

  /** Lines from the selection to its neighbours across scopes, to the boxes that stand for them. */
  private connect(): void {
    const { selected } = this.highlight;
    const lines: Highlight['lines'] = [];
    const before = new Set<number>();
    const after = new Set<number>();
    const own = selected < 0 ? undefined : this.placeOf.get(this.visible(selected));
    if (own !== undefined) {
      const add = (items: number[], incoming: boolean) => {
        const seen = incoming ? before : after;
        for (const item of items) {
          const box = this.visible(item);
          const place = this.placeOf.get(box);
          if (place === undefined || place === own || seen.has(box)) continue;
          seen.add(box);
          lines.push(incoming ? { from: place, to: own, incoming } : { from: own, to: place, incoming });
        }
      };
      add(this.near.before, true);
      add(this.near.after, false);
    }
    this.highlight = { ...this.highlight, lines, before, after };
  }

  private onScreen(place: number) {
    const { box } = this.scene!;
    const { x, y, zoom } = this.camera;
    return {
      x: box[4 * place] * zoom + x,
      y: box[4 * place + 1] * zoom + y,
      width: box[4 * place + 2] * zoom,
      height: box[4 * place + 3] * zoom,
    };
  }

  private move(camera: Camera, smooth: boolean): void {
    if (!smooth || matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.camera = camera;
      this.goal = null;
    } else this.goal = { camera, from: { ...this.camera }, start: performance.now() };
    this.redraw();
  }

  private draw(now: number): void {
    this.asked = false;
    if (!this.scene || !this.outline || !this.colouring) return;
    if (this.goal) {
      const t = Math.min(1, Math.max(0, (now - this.goal.start) / 180));
      const ease = 1 - (1 - t) ** 3;
      const { from, camera: to } = this.goal;
      const mix = (a: number, b: number) => a + (b - a) * ease;
      this.camera = { x: mix(from.x, to.x), y: mix(from.y, to.y), zoom: mix(from.zoom, to.zoom) };
      if (t < 1) this.redraw();
      else this.goal = null;
    }
    const began = performance.now();
    paint(this.g, {
      scene: this.scene,
      outline: this.outline,
      colouring: this.colouring,
      palette: this.palette,
      byHealth: this.byHealth,
      camera: this.camera,
      width: this.host.clientWidth,
      height: this.host.clientHeight,
      ratio: devicePixelRatio,
      highlight: this.highlight,
      folded: this.parametersShown ? new Map() : this.folded,
    });
    this.drawOverview();
    this.frames++;
    this.frameMillis = performance.now() - began;
  }

  /** A small picture of everything with the part in view; hidden while everything is in view. */
  private drawOverview(): void {
    const { scene, camera, palette, overview } = this;
    if (!scene) return;
    const W = this.host.clientWidth;
    const H = this.host.clientHeight;
    const all =
      camera.x >= -1 && camera.y >= -1 && camera.x + scene.width * camera.zoom <= W + 1 && camera.y + scene.height * camera.zoom <= H + 1;
    overview.style.display = all ? 'none' : 'block';
    if (all) return;
    const scale = Math.min(150 / scene.width, 130 / scene.height);
    const w = Math.max(24, scene.width * scale);
    const h = Math.max(24, scene.height * scale);
    overview.style.width = `${w}px`;
    overview.style.height = `${h}px`;
    overview.width = w * devicePixelRatio;
    overview.height = h * devicePixelRatio;
    const g = overview.getContext('2d')!;
    g.scale(devicePixelRatio, devicePixelRatio);
    g.translate((w - scene.width * scale) / 2, 0);
    const limit = Math.min(scene.item.length, 6000);
    for (let i = 0; i < limit; i++) {
      const [bw, bh] = [scene.box[4 * i + 2] * scale, scene.box[4 * i + 3] * scale];
      const status = this.colouring!.status[scene.item[i]];
      if (bw * bh < 0.4 && status < 2) continue;
      g.fillStyle = scene.flag[i] & OPEN ? palette.scope[scene.depth[i] % 2] : status > 1 ? palette.status[status] : palette.border;
      g.fillRect(scene.box[4 * i] * scale, scene.box[4 * i + 1] * scale, Math.max(bw, 1), Math.max(bh, 1));
    }
    g.strokeStyle = palette.select;
    g.lineWidth = 1.5;
    g.strokeRect((-camera.x / camera.zoom) * scale, (-camera.y / camera.zoom) * scale, (W / camera.zoom) * scale, (H / camera.zoom) * scale);
    this.overviewScale = scale;
  }
  private overviewScale = 1;

  private resize(): void {
    const { clientWidth, clientHeight } = this.host;
    const before = this.canvas.width / devicePixelRatio;
    this.canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.canvas.height = Math.round(clientHeight * devicePixelRatio);
    if (before > 0 && this.scene && !this.goal) this.camera.x += (clientWidth - before) / 2;
    this.redraw();
  }

  private at(x: number, y: number): number {
    const { scene } = this;
    if (!scene) return -1;
    const wx = (x - this.camera.x) / this.camera.zoom;
    const wy = (y - this.camera.y) / this.camera.zoom;
    for (let i = scene.item.length - 1; i >= 0; i--) {
      const left = scene.box[4 * i];
      const top = scene.box[4 * i + 1];
      if (wx >= left && wy >= top && wx <= left + scene.box[4 * i + 2] && wy <= top + scene.box[4 * i + 3]) return i;
    }
    return -1;
  }

  private listen(): void {
    const { canvas, overview } = this;
    let grip: { x: number; y: number } | null = null;
    let moved = false;
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      grip = { x: event.offsetX - this.camera.x, y: event.offsetY - this.camera.y };
      moved = false;
      this.goal = null;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (grip) {
        const x = event.offsetX - grip.x;
        const y = event.offsetY - grip.y;
        if (Math.abs(x - this.camera.x) + Math.abs(y - this.camera.y) > 3) moved = true;
        if (moved) {
          this.camera = { ...this.camera, x, y };
          this.redraw();
        }
        return;
      }
      const place = this.at(event.offsetX, event.offsetY);
      const item = place < 0 ? -1 : this.scene!.item[place];
      if (item !== this.highlight.hovered) {
        this.highlight.hovered = item;
        canvas.style.cursor = item < 0 ? 'grab' : 'pointer';
        this.redraw();
      }
      this.events.hover(item, event.clientX, event.clientY);
    });
    canvas.addEventListener('pointerleave', () => this.events.hover(-1, 0, 0));
    canvas.addEventListener('pointerup', () => (grip = null));
    canvas.addEventListener('click', (event) => {
      if (moved) return;
      const place = this.at(event.offsetX, event.offsetY);
      if (place < 0) return;
      const item = this.scene!.item[place];
      this.events.select(item);
      const onChevron = event.offsetX < this.onScreen(place).x + 32 * Math.min(1, this.camera.zoom);
      if (this.scene!.flag[place] & SCOPE && onChevron) this.toggle(item);
    });
    canvas.addEventListener('dblclick', (event) => {
      const place = this.at(event.offsetX, event.offsetY);
      if (place >= 0) this.toggle(this.scene!.item[place]);
    });
    canvas.addEventListener('contextmenu', (event) => {
      event.preventDefault();
      const place = this.at(event.offsetX, event.offsetY);
      if (place < 0) return;
      this.events.select(this.scene!.item[place]);
      this.events.menu(this.scene!.item[place], event.clientX, event.clientY);
    });
    canvas.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.ctrlKey || event.metaKey || !event.shiftKey)
          this.zoomBy(Math.exp(-event.deltaY * lines * 0.0016), event.offsetX, event.offsetY);
        else {
          this.camera = { ...this.camera, x: this.camera.x - event.deltaY * lines };
          this.redraw();
        }
      },
      { passive: false },
    );
    canvas.addEventListener('keydown', (event) => this.key(event));
    const jump = (event: PointerEvent) => {
      if (!(event.buttons & 1) || !this.scene) return;
      const centre = (overview.clientWidth - this.scene.width * this.overviewScale) / 2;
      const x = (event.offsetX - centre) / this.overviewScale;
      const y = event.offsetY / this.overviewScale;
      const { zoom } = this.camera;
      this.move({ x: this.host.clientWidth / 2 - x * zoom, y: this.host.clientHeight / 2 - y * zoom, zoom }, false);
    };
    overview.addEventListener('pointerdown', jump);
    overview.addEventListener('pointermove', jump);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const selected = this.visible(this.highlight.selected);
    const handled = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    const scope = selected >= this.outline!.n;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      handled();
      const next = this.nearest(selected, event.key === 'ArrowDown' ? 1 : -1);
      if (next >= 0) this.events.select(next);
    } else if ((event.key === 'Enter' || event.key === 'ArrowRight') && scope) {
      handled();
      if (!this.isOpen(selected)) void this.setOpen(selected, true);
      else if (this.outline!.children[selected].length) this.events.select(this.outline!.children[selected][0]);
    } else if (event.key === 'ArrowLeft' && selected >= 0) {
      handled();
      if (scope && this.isOpen(selected)) void this.setOpen(selected, false);
      else {
        const outer = this.outline!.parent[selected];
        if (outer >= 0 && outer !== this.outline!.root) this.events.select(outer);
      }
    } else if (event.key === '+' || event.key === '=') {
      handled();
      this.zoomBy(1.25);
    } else if (event.key === '-') {
      handled();
      this.zoomBy(0.8);
    }
  }

  /** The nearest box below or above the selection; what it is connected to is preferred. */
  private nearest(item: number, direction: 1 | -1): number {
    const { scene } = this;
    if (!scene || !scene.item.length) return -1;
    const from = this.placeOf.get(item);
    if (from === undefined) return scene.item[0];
    const middle = (p: number) => [scene.box[4 * p] + scene.box[4 * p + 2] / 2, scene.box[4 * p + 1] + scene.box[4 * p + 3] / 2];
    const [x, y] = middle(from);
    const joined = direction > 0 ? this.highlight.after : this.highlight.before;
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
}
