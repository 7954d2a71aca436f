// Going from hit to hit: each selects its site, its step, and opens the tensor.

import type { Hit } from '../api/types';
import { app } from './app.svelte';

let current = -1;

export function openHit(hit: Hit): void {
  const hits = app.place?.hits ?? [];
  current = hits.findIndex((one) => one.ord === hit.ord);
  app.drawer = true;
  // Where the training stands at this very step, its tensors are at hand as they are now.
  const here = app.place?.stopped && app.place.stop?.step === hit.step;
  app.select(hit.site, { step: here ? null : hit.step, tab: app.route.tab === 'charts' ? 'charts' : 'tensor' });
}

export function jump(by: 1 | -1): void {
  const hits = app.place?.hits ?? [];
  if (!hits.length) return app.say('There is no hit yet. Set a watchpoint on the left, or take the recommended set.');
  current = Math.max(0, Math.min(hits.length - 1, current < 0 ? (by > 0 ? 0 : hits.length - 1) : current + by));
  openHit(hits[current]);
}
