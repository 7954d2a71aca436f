// The worker holds the graph, its layouts and the unfolded scopes; the page gets flat arrays to draw.

import { Hierarchy, type GraphColumns } from './hierarchy';
import { SceneBuilder, type Scene } from './scene';

/** What the page keeps of the graph: names for the tree, the search and the labels. */
export interface Outline {
  n: number;
  root: number;
  name: string[];
  label: string[];
  type: string[];
  kind: string[];
  parent: Int32Array;
  size: Int32Array;
  children: number[][];
  host: Int32Array;
  source: (string | null)[];
  phase: string[];
  site: (string | null)[];
  health: string[] | null;
  step: number | null;
  source_id: string;
  sources: { id: string; label: string }[];
  edges: number;
}

export type Request =
  | { op: 'load'; url: string; open: string[]; aspect: number }
  | { op: 'open'; item: number; open: boolean }
  | { op: 'aspect'; aspect: number }
  | { op: 'reveal'; item: number }
  | { op: 'parameters'; shown: boolean }
  | { op: 'all'; open: boolean }
  | { op: 'neighbours'; item: number };

export interface Loaded {
  outline: Outline;
  scene: Scene;
}

let builder: SceneBuilder;

async function load(url: string, open: string[], aspect: number): Promise<Loaded> {
  const answer = await fetch(url, { credentials: 'same-origin' });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `the hub answered ${answer.status}`);
  const graph = body as GraphColumns & { source: string; step: number | null; sources: { id: string; label: string }[] };
  const hierarchy = new Hierarchy(graph);
  builder = new SceneBuilder(hierarchy, aspect);
  builder.openNamed(open);
  const outline: Outline = {
    n: hierarchy.n,
    root: hierarchy.root,
    name: hierarchy.name,
    label: hierarchy.label,
    type: hierarchy.type,
    kind: hierarchy.kind,
    parent: Int32Array.from(hierarchy.parent),
    size: Int32Array.from(hierarchy.size),
    children: hierarchy.children,
    host: hierarchy.host.slice(),
    source: graph.nodes.source,
    phase: graph.nodes.phase,
    site: graph.nodes.site,
    health: graph.nodes.health ?? null,
    step: graph.step,
    source_id: graph.source,
    sources: graph.sources ?? [],
    edges: hierarchy.from.length,
  };
  return { outline, scene: builder.build() };
}

function answer(request: Exclude<Request, { op: 'load' }>): unknown {
  switch (request.op) {
    case 'open':
      builder.setOpen(request.item, request.open);
      return builder.build();
    case 'aspect':
      builder.setAspect(request.aspect);
      return builder.build();
    case 'reveal':
      builder.reveal(request.item);
      return builder.build();
    case 'parameters':
      builder.setParameters(request.shown);
      return builder.build();
    case 'all':
      if (!request.open) builder.closeAll();
      else if (!builder.openAll(20000)) return null;
      return builder.build();
    case 'neighbours':
      return builder.graph.neighbours(request.item);
  }
}

self.onmessage = async (event: MessageEvent<{ id: number; request: Request }>) => {
  const { id, request } = event.data;
  try {
    self.postMessage({ id, result: request.op === 'load' ? await load(request.url, request.open, request.aspect) : answer(request) });
  } catch (problem) {
    self.postMessage({ id, error: problem instanceof Error ? problem.message : String(problem) });
  }
};
