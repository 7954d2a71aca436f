// The hub, typed by its own OpenAPI document. Everything here raises Refusal with the hub's sentence.

import createClient from 'openapi-fetch';
import { sentence } from '../lib/format';
import type { paths } from './schema';
import type { ChangedWatchpoint, Control, NewWatchpoint, Recheck } from './types';

/** The hub said no, or could not be reached (status 0). The message says what to do. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const client = createClient<paths>({ baseUrl: '' });

type Answer<T> = { data?: T; error?: unknown; response: Response };

async function take<T>(pending: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await pending;
  } catch {
    throw new Refusal(0, 'The hub does not answer. A training goes on without it; start the hub again with tensonde ui.');
  }
  if (answer.response.ok) return answer.data as T;
  const said = (answer.error as { error?: string } | undefined)?.error;
  throw new Refusal(answer.response.status, said ? sentence(said) : `The hub answered ${answer.response.status}.`);
}

export const hub = {
  runs: () => take(client.GET('/api/runs')),
  ranks: (run: string, site: string, field: string) =>
    take(client.GET('/api/runs/{run}/ranks', { params: { path: { run }, query: { site, field } } })),
  conditions: () => take(client.GET('/api/conditions')),
  /** Each side is RUN/RANK. */
  compare: (a: string, b: string) => take(client.GET('/api/compare', { params: { query: { a, b } } })),
};

export interface TensorQuery {
  address: string;
  step?: number;
  index?: string;
  rows?: string;
  cols?: string;
  overview?: number;
  against?: string;
}

/** One rank of one run. */
export class Place {
  private readonly path: { run: string; rank: string };

  constructor(
    readonly run: string,
    readonly rank: string,
  ) {
    this.path = { run, rank };
  }

  url(rest: string, query: Record<string, string | number | undefined | null> = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    const base = `/api/runs/${encodeURIComponent(this.run)}/${encodeURIComponent(this.rank)}/${rest}`;
    return given.length ? `${base}?${search}` : base;
  }

  private get here() {
    return { params: { path: this.path } };
  }

  private with<Q extends object>(query: Q) {
    return { params: { path: this.path, query } };
  }

  sites = () => take(client.GET('/api/runs/{run}/{rank}/sites', this.here));
  status = (step: number | undefined, field: string) =>
    take(client.GET('/api/runs/{run}/{rank}/status', this.with({ step, field })));
  digests = (site: string, fields: string[], points = 500) =>
    take(client.GET('/api/runs/{run}/{rank}/digests', this.with({ site, fields: fields.join(','), points })));
  histograms = (site: string, points = 200) =>
    take(client.GET('/api/runs/{run}/{rank}/histograms', this.with({ site, points })));
  async scalarNames(): Promise<string[]> {
    const answer = await take(client.GET('/api/runs/{run}/{rank}/scalars', this.here));
    return 'names' in answer ? answer.names : [];
  }
  async scalars(name: string, points = 1000) {
    const answer = await take(client.GET('/api/runs/{run}/{rank}/scalars', this.with({ name, points })));
    return 'value' in answer ? answer : { name, step: [], value: [], thinned: false };
  }
  hits = (after: number, limit = 5000) => take(client.GET('/api/runs/{run}/{rank}/hits', this.with({ after, limit })));
  findings = () => take(client.GET('/api/runs/{run}/{rank}/findings', this.here));
  questions = () => take(client.GET('/api/runs/{run}/{rank}/questions', this.here));
  memory = () => take(client.GET('/api/runs/{run}/{rank}/memory', this.here));
  events = (after: number, limit = 2000) =>
    take(client.GET('/api/runs/{run}/{rank}/events', this.with({ after, limit })));
  source = (file: string, line: number, around: number) =>
    take(client.GET('/api/runs/{run}/{rank}/source', this.with({ file, line, around })));
  node = (name: string, step?: number) => take(client.GET('/api/runs/{run}/{rank}/node', this.with({ name, step })));
  latest = (site: string, step?: number, limit = 200) =>
    take(client.GET('/api/runs/{run}/{rank}/latest', this.with({ site, step, limit })));

  tensors = (name: string) => take(client.GET('/api/runs/{run}/{rank}/tensors', this.with({ name })));
  tensor = (query: TensorQuery) => take(client.GET('/api/runs/{run}/{rank}/tensor', this.with(query)));
  tensorHistogram = (query: { address: string; step?: number; index?: string; bins?: number }) =>
    take(client.GET('/api/runs/{run}/{rank}/tensor/histogram', this.with(query)));

  watchpoints = () => take(client.GET('/api/runs/{run}/{rank}/watchpoints', this.here));
  addWatchpoint = (body: NewWatchpoint) =>
    take(client.POST('/api/runs/{run}/{rank}/watchpoints', { ...this.here, body }));
  changeWatchpoint = (id: number, body: ChangedWatchpoint) =>
    take(client.PUT('/api/runs/{run}/{rank}/watchpoints/{id}', { params: { path: { ...this.path, id } }, body }));
  removeWatchpoint = (id: number) =>
    take(client.DELETE('/api/runs/{run}/{rank}/watchpoints/{id}', { params: { path: { ...this.path, id } } }));
  recommended = () => take(client.POST('/api/runs/{run}/{rank}/watchpoints/recommended', this.here));
  recheck = (body: Recheck) =>
    take(client.POST('/api/runs/{run}/{rank}/watchpoints/recheck', { ...this.here, body }));
  match = (pattern: string) => take(client.POST('/api/runs/{run}/{rank}/match', { ...this.here, body: { pattern } }));

  breakpoints = () => take(client.GET('/api/runs/{run}/{rank}/breakpoints', this.here));
  addBreakpoint = (sites: string) =>
    take(client.POST('/api/runs/{run}/{rank}/breakpoints', { ...this.here, body: { sites, file: '', line: 0, condition: '', once: false } }));
  removeBreakpoint = (id: number) =>
    take(client.DELETE('/api/runs/{run}/{rank}/breakpoints/{id}', { params: { path: { ...this.path, id } } }));

  control = (body: Control) => take(client.POST('/api/runs/{run}/{rank}/control', { ...this.here, body }));
  controlAll = (body: Control) => take(client.POST('/api/runs/{run}/control', { params: { path: { run: this.run } }, body }));
  command = (line: string) => take(client.POST('/api/runs/{run}/{rank}/command', { ...this.here, body: { line } }));
  complete = (text: string) => take(client.POST('/api/runs/{run}/{rank}/complete', { ...this.here, body: { text } }));
}
