// Work that many events ask for and that need be done once: after a moment of rest, one at a time, and not too often.

export class Coalesced {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running = false;
  private again = false;
  private closed = false;
  private asked = 0;
  private last = -Infinity;

  /** `rest`: how long after the last request, but no longer than `apart` after the first; `apart`: also how long after the last time. In ms. */
  constructor(
    private readonly work: () => Promise<void>,
    private readonly rest: number,
    private readonly apart: number,
  ) {}

  ask(): void {
    if (this.closed) return;
    if (this.running) {
      this.again = true;
      return;
    }
    const now = performance.now();
    if (this.timer === undefined) this.asked = now;
    clearTimeout(this.timer);
    const due = Math.max(this.last + this.apart, Math.min(now + this.rest, this.asked + this.apart));
    this.timer = setTimeout(() => void this.run(), Math.max(0, due - now));
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
  }

  private async run(): Promise<void> {
    this.timer = undefined;
    this.running = true;
    this.again = false;
    try {
      await this.work();
    } finally {
      this.running = false;
      this.last = performance.now();
      if (this.again) this.ask();
    }
  }
}
