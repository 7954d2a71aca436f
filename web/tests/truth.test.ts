import { describe, expect, it, vi } from 'vitest';
import type { RankState } from '../src/api/types';
import { Coalesced } from '../src/lib/coalesced';
import { newer } from '../src/state/truth';

/** Random numbers that are the same in every run. */
function chance(seed: number): () => number {
  return () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

const state = (hub: number, version: number, word: RankState['state']) => ({ hub, version, state: word }) as RankState;

describe('the state of the training', () => {
  it('is the newest that the hub said, in whatever order and however often its messages come', () => {
    const random = chance(7);
    for (let round = 0; round < 2000; round++) {
      // What happens: stops and resumes, and now and then another hub.
      const story: RankState[] = [];
      let hub = 1;
      let version = 0;
      for (let k = 0; k < 2 + random() * 12; k++) {
        if (random() < 0.1) [hub, version] = [hub + 1, 0];
        story.push(state(hub, ++version, k % 2 ? 'running' : 'stopped'));
      }
      // How it comes: any order, some of it twice; the last one at least once.
      const messages = [...story, ...story.filter(() => random() < 0.4)];
      for (let k = messages.length - 1; k > 0; k--) {
        const other = Math.floor(random() * (k + 1));
        [messages[k], messages[other]] = [messages[other], messages[k]];
      }
      let known: RankState | null = null;
      for (const message of messages) if (newer(known, message)) known = message;
      expect(known).toEqual(story[story.length - 1]);
    }
  });
  it('changes with the recording, where nobody speaks for the training any more', () => {
    expect(newer(state(1, 4, 'lost'), state(1, 4, 'killed'))).toBe(true);
  });
});

describe('work that many ask for', () => {
  it('is done a few times, the last time after the last request, and one at a time', async () => {
    vi.useFakeTimers();
    try {
      let done = 0;
      let now = 0;
      let lastAsked = 0;
      let lastStarted = 0;
      let running = 0;
      const work = new Coalesced(
        async () => {
          done++;
          lastStarted = now;
          expect(++running).toBe(1);
          await new Promise((resolve) => setTimeout(resolve, 120));
          running--;
        },
        250,
        1500,
      );
      for (; now < 10_000; now += 10) {
        if (now < 8000) {
          work.ask();
          lastAsked = now;
        }
        await vi.advanceTimersByTimeAsync(10);
      }
      expect(done).toBeGreaterThanOrEqual(4);
      expect(done).toBeLessThanOrEqual(7);
      expect(lastStarted).toBeGreaterThanOrEqual(lastAsked);
    } finally {
      vi.useRealTimers();
    }
  });
});
