import { expect, it } from 'vitest';
import { Hierarchy } from '../src/graph/hierarchy';
import { SceneBuilder } from '../src/graph/scene';
import { synthetic } from './graphs';

/** CPU time, so that a busy machine does not count. */
function spent<T>(work: () => T): [number, T] {
  const before = process.cpuUsage();
  const result = work();
  const { user, system } = process.cpuUsage(before);
  return [(user + system) / 1000, result];
}

it('a graph of 100,000 nodes is nested and laid out in little time', () => {
  const columns = synthetic(100_000);
  const [nested, graph] = spent(() => new Hierarchy(columns));
  const [first, builder] = spent(() => {
    const made = new SceneBuilder(graph);
    made.build();
    return made;
  });
  const [unfolded] = spent(() => {
    builder.setOpen(graph.name.indexOf('model.stage3'), true);
    return builder.build();
  });
  const [near] = spent(() => graph.neighbours(graph.name.indexOf('model')));
  console.log(`100,000 nodes, ms of CPU: nest ${nested | 0}, first layout ${first | 0}, unfold ${unfolded | 0}, neighbours ${near | 0}`);
  expect(nested).toBeLessThan(5000);
  expect(first + unfolded).toBeLessThan(2000);
}, 60_000);
