// Pointer and keyboard on the canvas: they move the lens, or say which item is meant.

import type { Drawn } from './drawn';
import type { Lens } from './lens';
import type { Highlight } from './paint';
import { SCOPE } from './scene';

/** Which item is meant. */
export interface GraphEvents {
  /** -1: none, by a click beside all of them. */
  select(item: number): void;
  menu(item: number, x: number, y: number): void;
  hover(item: number, x: number, y: number): void;
}

/** What the gestures act on. */
export interface Gestured {
  readonly lens: Lens;
  readonly drawn: Drawn;
  readonly highlight: Highlight;
  readonly events: GraphEvents;
  setOpen(item: number, open: boolean): Promise<void>;
  toggle(item: number): void;
  redraw(): void;
}

export function listen(canvas: HTMLCanvasElement, on: Gestured): void {
  const { lens, drawn } = on;
  const at = (event: MouseEvent) => drawn.at(...lens.inWorld(event.offsetX, event.offsetY));
  drag(canvas, on, at);
  canvas.addEventListener('pointerleave', () => on.events.hover(-1, 0, 0));
  canvas.addEventListener('dblclick', (event) => {
    const place = at(event);
    if (place >= 0) on.toggle(drawn.scene!.item[place]);
  });
  canvas.addEventListener('contextmenu', (event) => {
    event.preventDefault();
    const place = at(event);
    if (place < 0) return;
    on.events.select(drawn.scene!.item[place]);
    on.events.menu(drawn.scene!.item[place], event.clientX, event.clientY);
  });
  canvas.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      on.highlight.hovered = -1;
      on.events.hover(-1, 0, 0);
      const lines = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey || !event.shiftKey)
        lens.zoomBy(Math.exp(-event.deltaY * lines * 0.0016), event.offsetX, event.offsetY);
      else lens.pan(lens.camera.x - event.deltaY * lines, lens.camera.y);
    },
    { passive: false },
  );
  canvas.addEventListener('keydown', (event) => key(event, on));
}

/** A pointer that goes down and moves takes the graph along; one that does not move clicks. */
function drag(canvas: HTMLCanvasElement, on: Gestured, at: (event: MouseEvent) => number): void {
  const { lens, drawn } = on;
  let grip: { x: number; y: number } | null = null;
  let moved = false;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    grip = { x: event.offsetX - lens.camera.x, y: event.offsetY - lens.camera.y };
    moved = false;
    lens.hold();
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (grip) {
      const x = event.offsetX - grip.x;
      const y = event.offsetY - grip.y;
      if (Math.abs(x - lens.camera.x) + Math.abs(y - lens.camera.y) > 3) moved = true;
      if (moved) {
        on.events.hover(-1, 0, 0);
        lens.pan(x, y);
      }
      return;
    }
    const place = at(event);
    const item = place < 0 ? -1 : drawn.scene!.item[place];
    if (item !== on.highlight.hovered) {
      on.highlight.hovered = item;
      canvas.style.cursor = item < 0 ? 'grab' : 'pointer';
      on.redraw();
    }
    on.events.hover(item, event.clientX, event.clientY);
  });
  canvas.addEventListener('pointerup', () => (grip = null));
  canvas.addEventListener('click', (event) => {
    if (moved || !drawn.scene) return;
    const place = at(event);
    if (place < 0) return on.events.select(-1);
    const scene = drawn.scene!;
    const item = scene.item[place];
    on.events.select(item);
    const onChevron = event.offsetX < lens.onScreen(scene.box, place).x + 32 * Math.min(1, lens.camera.zoom);
    if (scene.flag[place] & SCOPE && onChevron) on.toggle(item);
  });
}

function key(event: KeyboardEvent, on: Gestured): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { drawn, lens, highlight } = on;
  const selected = drawn.visible(highlight.selected);
  const handled = () => {
    event.preventDefault();
    event.stopPropagation();
  };
  const scope = selected >= drawn.outline!.n;
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    handled();
    const down = event.key === 'ArrowDown';
    const next = drawn.nearest(selected, down ? 1 : -1, down ? highlight.after : highlight.before);
    if (next >= 0) on.events.select(next);
  } else if ((event.key === 'Enter' || event.key === 'ArrowRight') && scope) {
    handled();
    if (!drawn.isOpen(selected)) void on.setOpen(selected, true);
    else if (drawn.outline!.children[selected].length) on.events.select(drawn.outline!.children[selected][0]);
  } else if (event.key === 'ArrowLeft' && selected >= 0) {
    handled();
    if (scope && drawn.isOpen(selected)) void on.setOpen(selected, false);
    else {
      const outer = drawn.outline!.parent[selected];
      if (outer >= 0 && outer !== drawn.outline!.root) on.events.select(outer);
    }
  } else if (event.key === '+' || event.key === '=') {
    handled();
    lens.zoomBy(1.25);
  } else if (event.key === '-') {
    handled();
    lens.zoomBy(0.8);
  }
}
