// Which of two states of a rank is the newer one. Only the hub says what a training does; its messages may come in any order.

import type { RankState } from '../api/types';

/** A hub that was started later knows better; of one hub, the larger version. Equal ones differ only in what the recording tells. */
export function newer(known: RankState | null, next: RankState): boolean {
  if (!known) return true;
  if (next.hub !== known.hub) return next.hub > known.hub;
  return next.version >= known.version;
}
