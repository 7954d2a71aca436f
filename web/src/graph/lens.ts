// Where the camera is and where it is going. Knows sizes, not what is looked at.

import { LEGIBLE, type Camera } from './paint';

const MOVE_MILLIS = 180;
/** Room for what stands over the picture: the path above it, the legend below. */
const ABOVE = 40;
const BELOW = 34;

export class Lens {
  camera: Camera = { x: 0, y: 0, zoom: 1 };
  private goal: { camera: Camera; from: Camera; start: number } | null = null;

  /** `changed` is called when what is seen is no longer the same. */
  constructor(
    private readonly host: HTMLElement,
    private readonly changed: () => void,
  ) {}

  get moving(): boolean {
    return this.goal !== null;
  }

  /** Stays where it is. */
  hold(): void {
    this.goal = null;
  }

  pan(x: number, y: number): void {
    this.camera = { ...this.camera, x, y };
    this.changed();
  }

  zoomBy(factor: number, x = this.host.clientWidth / 2, y = this.host.clientHeight / 2): void {
    const zoom = Math.min(4, Math.max(0.005, this.camera.zoom * factor));
    const real = zoom / this.camera.zoom;
    this.goal = null;
    this.camera = { x: x - (x - this.camera.x) * real, y: y - (y - this.camera.y) * real, zoom };
    this.changed();
  }

  fit(width: number, height: number, smooth: boolean): void {
    const w = this.host.clientWidth;
    const h = this.host.clientHeight;
    const across = w / (width + 60);
    const whole = Math.min(across, (h - ABOVE - BELOW) / height);
    // A long chain is better read from its start than seen whole as a thread; what is a little too wide, too: without words it says nothing.
    const zoom = Math.min(1.1, Math.max(whole, Math.min(0.8, across), across > LEGIBLE / 2 ? LEGIBLE : 0));
    const y = height * zoom + ABOVE + BELOW >= h ? ABOVE : ABOVE + (h - ABOVE - BELOW - height * zoom) / 2;
    this.move({ x: zoom > across ? 20 : (w - width * zoom) / 2, y, zoom }, smooth);
  }

  fitWhole(width: number, height: number): void {
    const h = this.host.clientHeight - ABOVE - BELOW;
    const zoom = Math.min(1.1, this.host.clientWidth / (width + 60), h / height);
    this.move({ x: (this.host.clientWidth - width * zoom) / 2, y: ABOVE + (h - height * zoom) / 2, zoom }, true);
  }

  /** Brings a box to the middle, at a size that can be read. */
  focus(x: number, y: number, w: number, h: number): void {
    const W = this.host.clientWidth;
    const H = this.host.clientHeight;
    const zoom = Math.max(0.15, Math.min(Math.max(0.85, Math.min(this.camera.zoom, 1.3)), W / (w + 40), H / (h + 70)));
    this.move(this.centred(x + w / 2, y + h / 2, zoom), true);
  }

  /** Brings a point to the middle. */
  centre(x: number, y: number): void {
    this.move(this.centred(x, y, this.camera.zoom), false);
  }

  onScreen(box: Float32Array, place: number) {
    const { x, y, zoom } = this.camera;
    return {
      x: box[4 * place] * zoom + x,
      y: box[4 * place + 1] * zoom + y,
      width: box[4 * place + 2] * zoom,
      height: box[4 * place + 3] * zoom,
    };
  }

  inWorld(x: number, y: number): [number, number] {
    return [(x - this.camera.x) / this.camera.zoom, (y - this.camera.y) / this.camera.zoom];
  }

  /** Takes the part of the way that is due; false when it has arrived. */
  advance(now: number): boolean {
    if (!this.goal) return false;
    const t = Math.min(1, Math.max(0, (now - this.goal.start) / MOVE_MILLIS));
    const ease = 1 - (1 - t) ** 3;
    const { from, camera: to } = this.goal;
    const mix = (a: number, b: number) => a + (b - a) * ease;
    this.camera = { x: mix(from.x, to.x), y: mix(from.y, to.y), zoom: mix(from.zoom, to.zoom) };
    if (t >= 1) this.goal = null;
    return t < 1;
  }

  private centred(x: number, y: number, zoom: number): Camera {
    return { x: this.host.clientWidth / 2 - x * zoom, y: this.host.clientHeight / 2 - y * zoom, zoom };
  }

  private move(camera: Camera, smooth: boolean): void {
    if (!smooth || matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.camera = camera;
      this.goal = null;
    } else this.goal = { camera, from: { ...this.camera }, start: performance.now() };
    this.changed();
  }
}
