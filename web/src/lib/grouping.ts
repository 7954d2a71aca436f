// Hits of one watchpoint that follow each other are one thing that went wrong: one row with a count, which can be unfolded.

import type { Hit } from '../api/types';

export interface HitGroup {
  /** In the order of execution; never empty. */
  hits: Hit[];
}

/** Fewer than this stand on their own. */
const FEW = 3;

export function groupHits(hits: Hit[]): HitGroup[] {
  const groups: HitGroup[] = [];
  let run: Hit[] = [];
  const close = () => {
    if (run.length >= FEW) groups.push({ hits: run });
    else groups.push(...run.map((hit) => ({ hits: [hit] })));
    run = [];
  };
  for (const hit of hits) {
    if (run.length && (run[0].watchpoint !== hit.watchpoint || run[0].condition !== hit.condition)) close();
    run.push(hit);
  }
  close();
  return groups;
}
