// The watchpoint that is being written: opened from anywhere, edited in the left pane.

import type { Watchpoint } from '../api/types';
import { combine, roleOf, takeApart } from '../lib/pattern';
import { app } from './app.svelte';

class Watching {
  open = $state(false);
  /** The number of the watchpoint that is being changed, or null for a new one. */
  id = $state<number | null>(null);
  sites = $state('');
  condition = $state('');
  action = $state<'report' | 'stop' | 'pause'>('pause');

  start(sites = ''): void {
    this.open = true;
    this.id = null;
    this.sites = sites;
    this.condition = this.condition || 'tensor_overflow';
    this.action = app.place?.live ? 'pause' : 'report';
  }

  edit(watchpoint: Watchpoint): void {
    this.open = true;
    this.id = watchpoint.id;
    this.sites = watchpoint.sites;
    this.condition = watchpoint.condition;
    this.action = watchpoint.action;
  }

  close(): void {
    this.open = false;
    app.picking = null;
  }

  /** Clicks in the tree and the graph add and remove nodes. */
  pick(on: boolean): void {
    app.picking = on ? (name) => this.toggle(name) : null;
  }

  private toggle(name: string): void {
    const { names, role } = takeApart(this.sites);
    const item = app.place?.graph?.colouring?.find(name) ?? -1;
    const kind = item >= 0 ? app.place!.outline!.kind[item] : '';
    const next = names.includes(name) ? names.filter((one) => one !== name) : [...names.filter((one) => !one.includes('*')), name];
    this.sites = combine(next, role || roleOf(kind));
  }
}

export const watching = new Watching();
