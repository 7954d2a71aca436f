// A small picture of everything with the part in view; hidden while everything is in view. A click there goes there.

import type { Lens } from './lens';
import type { Palette } from './palette';
import { OPEN, type Scene } from './scene';

const MOST_BOXES = 6000;

export class Overview {
  readonly canvas = document.createElement('canvas');
  private scene: Scene | null = null;
  private scale = 1;

  constructor(
    private readonly host: HTMLElement,
    private readonly lens: Lens,
  ) {
    this.canvas.className = 'graph-overview';
    this.canvas.style.display = 'none'; // until there is something to show
    const jump = (event: PointerEvent) => {
      if (!(event.buttons & 1) || !this.scene) return;
      const centre = (this.canvas.clientWidth - this.scene.width * this.scale) / 2;
      lens.centre((event.offsetX - centre) / this.scale, event.offsetY / this.scale);
    };
    this.canvas.addEventListener('pointerdown', jump);
    this.canvas.addEventListener('pointermove', jump);
  }

  draw(scene: Scene, status: ArrayLike<number>, palette: Palette): void {
    this.scene = scene;
    const { canvas } = this;
    const { camera } = this.lens;
    const W = this.host.clientWidth;
    const H = this.host.clientHeight;
    const all =
      camera.x >= -1 && camera.y >= -1 && camera.x + scene.width * camera.zoom <= W + 1 && camera.y + scene.height * camera.zoom <= H + 1;
    canvas.style.display = all ? 'none' : 'block';
    if (all) return;
    // Of a small pane it takes less: what is behind it cannot be read.
    const scale = Math.min(Math.min(150, 0.14 * W) / scene.width, Math.min(130, 0.22 * H) / scene.height);
    const w = Math.max(24, scene.width * scale);
    const h = Math.max(24, scene.height * scale);
    canvas.style.width = `${w}px`;
    canvas.style.height = `${h}px`;
    canvas.width = w * devicePixelRatio;
    canvas.height = h * devicePixelRatio;
    const g = canvas.getContext('2d')!;
    g.scale(devicePixelRatio, devicePixelRatio);
    g.translate((w - scene.width * scale) / 2, 0);
    const limit = Math.min(scene.item.length, MOST_BOXES);
    for (let i = 0; i < limit; i++) {
      const [bw, bh] = [scene.box[4 * i + 2] * scale, scene.box[4 * i + 3] * scale];
      const health = status[scene.item[i]];
      if (bw * bh < 0.4 && health < 2) continue;
      g.fillStyle = scene.flag[i] & OPEN ? palette.scope[scene.depth[i] % 2] : health > 1 ? palette.status[health] : palette.border;
      g.fillRect(scene.box[4 * i] * scale, scene.box[4 * i + 1] * scale, Math.max(bw, 1), Math.max(bh, 1));
    }
    g.strokeStyle = palette.select;
    g.lineWidth = 1.5;
    g.strokeRect((-camera.x / camera.zoom) * scale, (-camera.y / camera.zoom) * scale, (W / camera.zoom) * scale, (H / camera.zoom) * scale);
    this.scale = scale;
  }
}
