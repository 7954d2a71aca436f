// The state of the screen that a link can carry: #/run/<id>/<rank>?step=128&sel=blocks.3.attn:out&tab=tensor&idx=0,2,:,:
// A comparison: #/compare/<run>/<rank>/<other run>/<its rank>?sel=blocks.3.attn:out

export const TABS = ['tensor', 'hits', 'findings', 'health', 'charts', 'ranks', 'log', 'memory'] as const;
export type Tab = (typeof TABS)[number];

export interface Route {
  run: string | null;
  rank: string | null;
  /** null: the newest. */
  step: number | null;
  /** A node's name or a site's address; '' for none. */
  sel: string;
  tab: Tab;
  /** The part of the tensor that is shown, as in numpy; '' for the first plane. */
  idx: string;
  /** What the tensor is compared with: '', previous, step:N, run:<run>/<rank>/<step>. */
  against: string;
  /** Two places, each a run and its rank, where the screen shows a comparison; `run` is null then. */
  compare?: [[string, string], [string, string]];
}

export const HOME: Route = { run: null, rank: null, step: null, sel: '', tab: 'tensor', idx: '', against: '' };

export function parseRoute(hash: string): Route {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [word, run, rank, other, itsRank] = path.split('/').map(decode);
  const given = new URLSearchParams(query);
  if (word === 'compare' && run && rank && other && itsRank)
    return { ...HOME, sel: given.get('sel') ?? '', compare: [[run, rank], [other, itsRank]] };
  if (word !== 'run' || !run) return { ...HOME };
  const step = given.get('step');
  const tab = given.get('tab') as Tab;
  return {
    run,
    rank: rank || null,
    step: step !== null && /^\d+$/.test(step) ? Number(step) : null,
    sel: given.get('sel') ?? '',
    tab: TABS.includes(tab) ? tab : 'tensor',
    idx: given.get('idx') ?? '',
    against: given.get('vs') ?? '',
  };
}

export function formatRoute(route: Route): string {
  const query = new URLSearchParams();
  if (route.compare) {
    if (route.sel) query.set('sel', route.sel);
    return `#/compare/${route.compare.flat().map(encodeURIComponent).join('/')}${ending(query)}`;
  }
  if (!route.run) return '#/';
  if (route.step !== null) query.set('step', String(route.step));
  if (route.sel) query.set('sel', route.sel);
  if (route.tab !== HOME.tab) query.set('tab', route.tab);
  if (route.idx) query.set('idx', route.idx);
  if (route.against) query.set('vs', route.against);
  const rank = route.rank ? `/${encodeURIComponent(route.rank)}` : '';
  return `#/run/${encodeURIComponent(route.run)}${rank}${ending(query)}`;
}

function ending(query: URLSearchParams): string {
  const readable = query.toString().replace(/%3A/g, ':').replace(/%2C/g, ',').replace(/%2F/g, '/');
  return readable ? `?${readable}` : '';
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
