import { describe, expect, it } from 'vitest';
import { Colouring } from '../src/graph/colouring';
import { GROUP_ABOVE, Hierarchy } from '../src/graph/hierarchy';
import { edgeBetween } from '../src/graph/paint';
import { OPEN, SceneBuilder } from '../src/graph/scene';
import { outlineOf, small, synthetic } from './graphs';

describe('Hierarchy', () => {
  const graph = new Hierarchy(small());

  it('nests nodes in module scopes and labels them by their last part', () => {
    expect(graph.path(1).map((item) => graph.name[item])).toEqual(['net', 'net.fc']);
    expect(graph.label[1]).toBe('linear');
    expect(graph.label[graph.n + 1]).toBe('fc');
    expect(graph.size[graph.root]).toBe(5);
  });

  it('folds a parameter into the op that uses it', () => {
    expect(graph.host[2]).toBe(1);
    expect(graph.host[0]).toBe(-1);
  });

  it('lifts edges to the siblings that hold their ends', () => {
    const net = graph.n;
    const links = graph.links.get(graph.root)!;
    expect([...links.keys()]).toContain(0 * graph.total + net);
    expect([...links.keys()]).toContain(net * graph.total + 4);
  });

  it('finds the neighbours of a node, and of a scope those outside of it', () => {
    expect(graph.neighbours(1)).toEqual({ before: [0, 2], after: [3] });
    expect(graph.neighbours(graph.n)).toEqual({ before: [0], after: [4] });
  });

  it('lists modules in the order of their ops, though a compiled graph lists all parameters first', () => {
    const names = ['0.weight', '2.weight', 'x', '0/linear#0', '1/relu#0', '2/linear#0'];
    const kinds = ['parameter', 'parameter', 'input', 'op', 'op', 'op'];
    const scope = [1, 3, -1, 1, 2, 3];
    const compiled = new Hierarchy({
      ...small(),
      nodes: { name: names, kind: kinds, type: kinds, scope, source: names.map(() => null), phase: kinds, op: kinds, site: names.map(() => null), health: kinds },
      edges: { from: [2, 0, 3, 4, 1], to: [3, 3, 4, 5, 5] },
      scopes: { name: ['net', '0', '1', '2'], type: ['', '', '', ''], parent: [-1, 0, 0, 0] },
    });
    expect(compiled.children[compiled.n].map((item) => compiled.name[item])).toEqual(['0', '1', '2']);
  });

  it('splits an oversized flat scope into groups', () => {
    const flat = small();
    for (let i = 0; i < 1000; i++) {
      flat.nodes.name.push(`net/relu#${i + 1}`);
      flat.nodes.kind.push('op');
      flat.nodes.type.push('relu');
      flat.nodes.scope.push(0);
      flat.nodes.source.push(null);
      flat.nodes.phase.push('forward');
      flat.nodes.op.push('relu');
      flat.nodes.site.push(null);
    }
    const split = new Hierarchy(flat);
    for (let item = split.n; item < split.total; item++) expect(split.children[item].length).toBeLessThanOrEqual(GROUP_ABOVE);
    expect([...split.nodesBelow(split.root)].length).toBe(1005);
  });

  it('takes cyclic and self edges', () => {
    const odd = small();
    odd.edges.from.push(3, 3);
    odd.edges.to.push(1, 3);
    expect(new SceneBuilder(new Hierarchy(odd)).build().item.length).toBeGreaterThan(0);
  });
});

describe('SceneBuilder', () => {
  it('shows the inside of what is open only', () => {
    const builder = new SceneBuilder(new Hierarchy(small()));
    builder.closeAll();
    const names = () => [...builder.build().item].map((item) => builder.graph.name[item]);
    expect(names()).not.toContain('net/relu#0');
    builder.reveal(1);
    expect(names()).toContain('net.fc/linear#0');
    expect(names()).not.toContain('net.fc.weight');
    builder.setParameters(true);
    expect(names()).toContain('net.fc.weight');
  });

  it('keeps every box inside the scope around it', () => {
    const builder = new SceneBuilder(new Hierarchy(synthetic(600)));
    builder.openAll(10_000);
    const scene = builder.build();
    const place = new Map([...scene.item].map((item, i) => [item, i]));
    for (let i = 0; i < scene.item.length; i++) {
      const outer = place.get(builder.graph.parent[scene.item[i]]);
      if (outer === undefined) continue;
      expect(scene.flag[outer] & OPEN).toBeTruthy();
      expect(scene.box[4 * i]).toBeGreaterThanOrEqual(scene.box[4 * outer]);
      expect(scene.box[4 * i + 1] + scene.box[4 * i + 3]).toBeLessThanOrEqual(scene.box[4 * outer + 1] + scene.box[4 * outer + 3] + 0.01);
    }
  });

  it('knows which edge runs between two boxes', () => {
    const builder = new SceneBuilder(new Hierarchy(small()));
    builder.openAll(100);
    const scene = builder.build();
    const place = (name: string) => [...scene.item].findIndex((item) => builder.graph.name[item] === name);
    const edge = edgeBetween(scene, place('net.fc'), place('net/relu#0'));
    expect(edge).toBeGreaterThanOrEqual(0);
    expect(scene.points[scene.offsets[edge + 1] - 1]).toBeCloseTo(scene.box[4 * place('net/relu#0') + 1], 3);
    expect(edgeBetween(scene, place('net/relu#0'), place('net.fc'))).toBe(-1);
  });

  it('cuts the edges of a node that feeds very many short', () => {
    const builder = new SceneBuilder(new Hierarchy(synthetic(2000)));
    const stage = builder.graph.name.indexOf('model.stage0');
    builder.setOpen(builder.graph.name.indexOf('model'), true);
    builder.setOpen(stage, true);
    for (const block of builder.graph.children[stage]) if (builder.graph.isScope(block)) builder.setOpen(block, true);
    expect(builder.build().item.length).toBeGreaterThan(50);
  });
});

describe('what a compiled forward pass has saved', () => {
  it('is folded into the op that takes it, as parameters are, and makes no groups', () => {
    const graph = small();
    const saved = 2000;
    for (let k = 0; k < saved; k++) {
      graph.nodes.name.push(`exp#${k} (saved)`);
      graph.nodes.kind.push('input');
      graph.nodes.type.push('input');
      graph.nodes.scope.push(-1);
      graph.nodes.source.push(null);
      graph.nodes.phase.push('backward');
      graph.nodes.op.push('');
      graph.nodes.site.push(null);
      graph.edges.from.push(5 + k);
      graph.edges.to.push(k % 2 ? 1 : 3);
    }
    const hierarchy = new Hierarchy(graph);
    expect(hierarchy.host[5]).toBe(3);
    expect(hierarchy.host[6]).toBe(1);
    expect(hierarchy.kind.includes('group')).toBe(false);
    expect(new SceneBuilder(hierarchy).build().item.length).toBeLessThan(10);
  });
});

describe('Colouring', () => {
  it('shows a selection in the other pass as well', () => {
    const graph = small();
    graph.nodes.name = graph.nodes.name.map((name) => (name.includes('/') ? `${name} (backward)` : name === 'net.fc.weight' ? `${name} (gradient)` : name));
    graph.nodes.site = graph.nodes.site.map((site) => site && site.replace(/:(out|value)$/, ':grad'));
    const colouring = new Colouring(outlineOf(graph));
    for (const sel of ['net/relu#0', 'net/relu#0:out', 'net/relu#0:grad', 'net/relu#0 (backward)']) expect(colouring.shows(sel)).toBe(3);
    expect(colouring.shows('net.fc.weight:value')).toBe(2);
    expect(colouring.find('net/relu#0:out')).toBe(-1); // its numbers are of the other pass
    expect(new Colouring(outlineOf(small())).shows('net/relu#0 (backward)')).toBe(3);
    expect([colouring.shows(''), colouring.shows('/randn#0:out'), colouring.shows('gone/tanh#0:out')]).toEqual([-1, -1, -1]);
  });
  it('shows an op that the graph does not have by its module', () => {
    const outline = outlineOf(small());
    const colouring = new Colouring(outline);
    expect(outline.name[colouring.shows('net.fc/matmul#0:out')]).toBe('net.fc');
    expect(outline.name[colouring.shows('net/tanh#0:out')]).toBe('net');
  });

  const outline = outlineOf(small());

  it('finds the node of an address, a name and a gradient', () => {
    const colouring = new Colouring(outline);
    expect(outline.name[colouring.find('net.fc:out')]).toBe('net.fc');
    expect(outline.name[colouring.find('net/relu#0:grad')]).toBe('net/relu#0');
    expect(outline.name[colouring.find('net.fc.weight')]).toBe('net.fc.weight');
    expect(colouring.find('nothing:out')).toBe(-1);
  });

  it('shows the worst status in everything around it, and forgets it again', () => {
    const colouring = new Colouring(outline);
    colouring.set([{ address: 'net.fc.weight:grad', status: 3, value: NaN }], () => true);
    expect(colouring.status[outline.name.indexOf('net')]).toBe(3);
    expect(colouring.status[outline.name.indexOf('net.fc/linear#0')]).toBe(3);
    expect(colouring.status[outline.name.indexOf('net/relu#0')]).toBe(0);
    colouring.set([{ address: 'net.fc.weight:grad', status: 1, value: 2 }], () => true);
    expect(colouring.status[outline.name.indexOf('net')]).toBe(1);
  });

  it('keeps the value of a module when what is in it has none', () => {
    const colouring = new Colouring(outline);
    colouring.set([{ address: 'net.fc:out', status: 1, value: 2 }], () => true);
    expect(colouring.value[outline.name.indexOf('net.fc')]).toBe(2);
    expect(colouring.value[outline.name.indexOf('net')]).toBe(2);
    expect(colouring.value[outline.name.indexOf('net/relu#0')]).toBeNaN();
  });

  it('scales values over decades by their magnitude', () => {
    const colouring = new Colouring(outline);
    colouring.set(
      [
        { address: 'net.fc:out', status: 1, value: 1e-4 },
        { address: 'net/relu#0:out', status: 1, value: 1e4 },
      ],
      () => true,
    );
    expect(colouring.scale(1)).toBeCloseTo(0.5, 2);
    expect(colouring.scale(NaN)).toBeNaN();
  });
});
