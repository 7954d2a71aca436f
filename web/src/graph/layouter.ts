// The conversation with the worker: a question, and the promise of its answer.

import type { Request } from './worker';

export class Layouter {
  private readonly worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  private readonly waiting = new Map<number, { resolve: (v: never) => void; reject: (e: Error) => void }>();
  private serial = 0;

  constructor() {
    this.worker.onmessage = (event) => {
      const { id, result, error } = event.data;
      const waiting = this.waiting.get(id)!;
      this.waiting.delete(id);
      if (error) waiting.reject(new Error(error));
      else waiting.resolve(result as never);
    };
  }

  ask<T>(request: Request): Promise<T> {
    return new Promise((resolve, reject) => {
      const id = ++this.serial;
      this.waiting.set(id, { resolve: resolve as (v: never) => void, reject });
      this.worker.postMessage({ id, request });
    });
  }

  destroy(): void {
    this.worker.terminate();
  }
}
