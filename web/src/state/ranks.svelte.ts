// All ranks of a run side by side, read again while the run lives.

import { hub } from '../api/client';
import type { Ranks } from '../api/types';

const EVERY = 1000;

export class OpenRanks {
  found = $state.raw<Ranks | null>(null);
  problem = $state('');
  /** When it was read, for what is counted down. */
  at = $state(0);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;

  constructor(
    private readonly run: string,
    private readonly site: string,
    private readonly field: string,
  ) {
    void this.read();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
  }

  async read(): Promise<void> {
    clearTimeout(this.timer);
    try {
      const found = await hub.ranks(this.run, this.site, this.field);
      if (this.closed) return;
      this.found = found;
      this.at = Date.now();
      this.problem = '';
    } catch (problem) {
      if (this.closed) return;
      this.problem = problem instanceof Error ? problem.message : String(problem);
    }
    const lives = !this.found || this.found.ranks.some((one) => one.state === 'running' || one.state === 'stopped');
    if (lives && !this.closed) this.timer = setTimeout(() => void this.read(), EVERY);
  }
}
