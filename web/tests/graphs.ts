// Graphs for tests: a small model by hand, and a large synthetic one (nested blocks of ops with parameters).

import type { GraphColumns } from '../src/graph/hierarchy';
import { Hierarchy } from '../src/graph/hierarchy';
import type { Outline } from '../src/graph/worker';

export function small(): GraphColumns {
  return {
    nodes: {
      name: ['input#0', 'net.fc/linear#0', 'net.fc.weight', 'net/relu#0', 'loss'],
      kind: ['input', 'op', 'parameter', 'op', 'loss'],
      type: ['float32', 'linear', 'float32', 'relu', 'loss'],
      scope: [-1, 1, 1, 0, -1],
      source: [null, 'model.py:16', null, 'model.py:1', null],
      phase: ['forward', 'forward', 'forward', 'forward', 'forward'],
      op: ['', 'linear', '', 'relu', ''],
      site: [null, 'net.fc/linear#0:out', 'net.fc.weight:value', 'net/relu#0:out', 'loss:value'],
    },
    edges: { from: [0, 2, 1, 3], to: [1, 1, 3, 4] },
    scopes: { name: ['net', 'net.fc'], type: ['Net', 'Linear'], parent: [-1, 0] },
  };
}

/** About `count` nodes: blocks in stages, eleven ops and two parameters a block, one mask that feeds every block. */
export function synthetic(count: number): GraphColumns {
  const graph: GraphColumns = {
    nodes: { name: [], kind: [], type: [], scope: [], source: [], phase: [], op: [], site: [] },
    edges: { from: [], to: [] },
    scopes: { name: ['model'], type: ['Model'], parent: [-1] },
  };
  const node = (name: string, kind: string, op: string, scope: number) => {
    graph.nodes.name.push(name);
    graph.nodes.kind.push(kind);
    graph.nodes.type.push(op || 'float32');
    graph.nodes.scope.push(scope);
    graph.nodes.source.push(kind === 'op' ? `model.py:${10 + (graph.nodes.name.length % 90)}` : null);
    graph.nodes.phase.push('forward');
    graph.nodes.op.push(op);
    graph.nodes.site.push(kind === 'op' ? `${name}:out` : `${name}:value`);
    return graph.nodes.name.length - 1;
  };
  const scope = (name: string, type: string, parent: number) => {
    graph.scopes.name.push(name);
    graph.scopes.type.push(type);
    graph.scopes.parent.push(parent);
    return graph.scopes.name.length - 1;
  };
  const edge = (from: number, to: number) => {
    graph.edges.from.push(from);
    graph.edges.to.push(to);
  };
  const OPS = ['layer_norm', 'linear', 'view', 'matmul', 'div', 'softmax', 'matmul', 'reshape', 'linear', 'gelu', 'add'];
  const mask = node('mask', 'input', '', -1);
  let last = node('x', 'input', '', -1);
  const blocks = Math.ceil(count / (OPS.length + 2));
  const stages = Math.max(1, Math.round(Math.sqrt(blocks / 4)));
  for (let s = 0, b = 0; s < stages; s++) {
    const stage = scope(`model.stage${s}`, 'Stage', 0);
    for (; b < Math.ceil(((s + 1) * blocks) / stages); b++) {
      const path = `model.stage${s}.${b}`;
      const block = scope(path, 'Block', stage);
      const start = last;
      const seen = new Map<string, number>();
      OPS.forEach((op, k) => {
        const nth = seen.get(op) ?? 0;
        seen.set(op, nth + 1);
        if (op === 'linear') {
          const weight = node(`${path}.w${nth}`, 'parameter', '', block);
          edge(weight, graph.nodes.name.length);
        }
        const made = node(`${path}/${op}#${nth}`, 'op', op, block);
        edge(last, made);
        if (k === 4) edge(mask, made);
        if (k === OPS.length - 1) edge(start, made);
        last = made;
      });
    }
  }
  return graph;
}

export function outlineOf(graph: GraphColumns): Outline {
  const hierarchy = new Hierarchy(graph);
  return {
    n: hierarchy.n,
    root: hierarchy.root,
    name: hierarchy.name,
    label: hierarchy.label,
    type: hierarchy.type,
    kind: hierarchy.kind,
    parent: Int32Array.from(hierarchy.parent),
    size: Int32Array.from(hierarchy.size),
    children: hierarchy.children,
    host: hierarchy.host,
    source: graph.nodes.source,
    phase: graph.nodes.phase,
    site: graph.nodes.site,
    health: null,
    step: 0,
    source_id: 'trace:0',
    sources: [],
    edges: hierarchy.from.length,
  };
}
