// The keyboard: one table that the keys, the help and the palette read.

import { roleOf } from '../lib/pattern';
import { app } from './app.svelte';
import { jump } from './hits';
import { TABS } from './route';

export interface Key {
  keys: string;
  does: string;
  run?: () => void;
}

const place = () => app.place;

export function continueOrPause(): void {
  const at = place();
  if (at) void at.control({ action: at.stopped ? 'continue' : 'pause' });
}

/** What only a stopped training can do; a key that is held down asks for it more often than that. */
function whenStopped(action: 'step' | 'next' | 'nextop'): () => void {
  return () => {
    const at = place();
    if (at?.stopped) void at.control({ action });
  };
}

export function continueToSelection(): void {
  const name = app.route.sel;
  if (!name) return app.say('Select a node first; the training then runs up to it.');
  void place()?.control({ action: 'until', sites: siteFor(name) });
}

/** The pattern that stops at a node: its output, a parameter's value, unless the selection says which site. */
export function siteFor(sel: string): string {
  if (sel.includes(':')) return sel;
  const plain = sel.replace(/ \((backward|gradient)\)$/, '');
  if (plain !== sel) return `${plain}:grad`;
  const item = place()?.graph?.colouring?.find(sel) ?? -1;
  return `${sel}:${roleOf(item < 0 ? '' : place()!.outline!.kind[item])}`;
}

export function moveStep(by: number): void {
  const at = place();
  if (!at?.rank) return; // which steps there are, is not known yet
  const now = app.route.step ?? at.lastStep;
  app.go({ step: Math.max(0, Math.min(at.lastStep, now + by)) });
}

export const KEYS: Key[] = [
  { keys: 'F8', does: 'Continue, or pause', run: continueOrPause },
  { keys: 'Ctrl+\\', does: 'Continue, or pause', run: continueOrPause },
  { keys: 'Shift+F8', does: 'Continue to the selected node', run: continueToSelection },
  { keys: 'F9', does: 'Next node (op)', run: whenStopped('nextop') },
  { keys: 'Shift+F9', does: 'Next module', run: whenStopped('next') },
  { keys: 'F10', does: 'One training step', run: whenStopped('step') },
  { keys: '.', does: 'Next hit; of a comparison, next difference', run: () => (app.comparison ? app.comparison.move(1) : jump(1)) },
  { keys: ',', does: 'Previous hit, or difference', run: () => (app.comparison ? app.comparison.move(-1) : jump(-1)) },
  { keys: '[', does: 'One step back in what was recorded', run: () => moveStep(-1) },
  { keys: ']', does: 'One step forward', run: () => moveStep(1) },
  { keys: 'End', does: 'Follow the newest step', run: () => app.go({ step: null }) },
  { keys: 'Ctrl+K', does: 'Find anything', run: () => (app.palette = true) },
  { keys: '/', does: 'Search the node tree', run: () => document.querySelector<HTMLInputElement>('#tree-search')?.focus() },
  { keys: 'F', does: 'Show the selection in the graph; again: all of it', run: focusSelection },
  { keys: 'W', does: 'Watch the selection', run: () => document.querySelector<HTMLElement>('#watch-selection')?.click() },
  { keys: 'B', does: 'Breakpoint at the selection', run: () => app.route.sel && void place()?.toggleBreakpoint(siteFor(app.route.sel)) },
  ...TABS.map((tab, i) => ({ keys: String(i + 1), does: `Tab ${tab}`, run: () => app.showTab(tab) })),
  { keys: 'Q', does: 'Show or hide the drawer', run: () => (app.drawer = !app.drawer) },
  { keys: '?', does: 'This list', run: () => (app.help = !app.help) },
  { keys: 'Enter  →', does: 'Unfold a scope (tree, graph)' },
  { keys: '←', does: 'Fold it, or go to the scope around' },
  { keys: 'Alt+←  Alt+→', does: 'Previous and next selection' },
  { keys: 'Esc', does: 'Close what is open' },
];

let focused = '';
function focusSelection(): void {
  if (app.comparison) return app.comparison.focus();
  const graph = place()?.graph;
  const item = graph?.colouring?.shows(app.route.sel) ?? -1;
  if (!graph) return;
  if (item < 0 || focused === app.route.sel) {
    focused = '';
    graph.fitWhole();
  } else {
    focused = app.route.sel;
    void graph.reveal(item);
  }
}

export function nameOf(event: KeyboardEvent): string {
  const key = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const shifted = event.shiftKey && event.key.length > 1;
  return `${event.ctrlKey || event.metaKey ? 'Ctrl+' : ''}${event.altKey ? 'Alt+' : ''}${shifted ? 'Shift+' : ''}${key}`;
}

/** Whether the pointer did the last thing, or a key. */
let pointed = false;
export const onPointer = (): void => void (pointed = true);

/** Letters belong to a list that has the focus: they choose in it. Whoever has chosen by a click is done with it, and wants the keys back. */
export function onChange(event: Event): void {
  if (pointed && event.target instanceof HTMLSelectElement) event.target.blur();
}

export function onKey(event: KeyboardEvent): void {
  pointed = false;
  if (event.key === 'Escape') {
    app.help = false;
    app.palette = false;
    app.picking = null;
    return;
  }
  const target = event.target as HTMLElement;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;
  const name = nameOf(event);
  if (typing && !/^(F\d+|Shift\+F\d+|Ctrl\+.)$/.test(name)) return;
  if (name === 'End' && target.closest('.rows')) return;
  const found = KEYS.find((key) => key.keys === name && key.run);
  if (!found) return;
  event.preventDefault();
  found.run!();
}
