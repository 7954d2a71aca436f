import { describe, expect, it } from 'vitest';
import { curve, digits, isPartial, lines, number, percent, plain, sentence, shape, spanned, splitAddress, statistic, tail } from '../src/lib/format';
import { combine, readCondition, takeApart, writeCondition } from '../src/lib/pattern';
import { highlight } from '../src/lib/python';
import { parseQuery, search } from '../src/lib/search';
import { groupHits } from '../src/lib/grouping';
import { along, axes, cell, setWord, words } from '../src/lib/slice';
import { colourOf, NAN, rangeOf, scaleOf } from '../src/lib/colour';
import { formatRoute, HOME, parseRoute } from '../src/state/route';
import { outlineOf, small } from './graphs';

describe('statistics', () => {
  it('are none where no value is finite', () => {
    expect(statistic({ count: 4, nan: 1, pos_inf: 3, norm: 0, mean: 'NaN' }, 'norm')).toBe('–');
    expect(statistic({ count: 4, nan: 1, pos_inf: 2, norm: 0 }, 'norm')).toBe('0');
    expect(statistic({ count: 0, nan: 0, norm: 0 }, 'norm')).toBe('0');
  });
});

describe('route', () => {
  it('carries the two sides of a comparison', () => {
    const route = { ...HOME, sel: 'blocks.3/add#0:out', compare: [['a b', 'rank0'], ['c', 'rank1-7']] as [[string, string], [string, string]] };
    expect(parseRoute(formatRoute(route))).toEqual(route);
  });
  it('carries the whole state through a link', () => {
    const route = { run: 'a b', rank: 'rank0-12', step: 128, sel: 'blocks.3.attn/softmax#0:out', tab: 'charts' as const, idx: '0,2,:,:', against: 'step:3' };
    expect(parseRoute(formatRoute(route))).toEqual(route);
  });
  it('reads the form that the docs give', () => {
    const route = parseRoute('#/run/x/rank0?step=128&sel=blocks.3.attn:out&tab=tensor&idx=0,2,:,:');
    expect(route).toEqual({ run: 'x', rank: 'rank0', step: 128, sel: 'blocks.3.attn:out', tab: 'tensor', idx: '0,2,:,:', against: '' });
  });
  it('goes home with anything else', () => {
    for (const hash of ['', '#', '#/', '#/nonsense/1', '#/run/', '#/run/%E0%A4%A']) expect(parseRoute(hash).tab).toBe('tensor');
    expect(parseRoute('#/')).toEqual(HOME);
    expect(parseRoute('#/compare/a/rank0/b')).toEqual(HOME);
    expect(parseRoute('#/run/a/b?step=-1&tab=evil').step).toBeNull();
  });
});

describe('numbers', () => {
  it.each([
    [0, '0'],
    [3072, '3072'],
    [49152, '49 152'],
    [-1.5, '−1.5'],
    [0.000012345, '1.23e-5'],
    [1234567890.5, '1.23e9'],
    ['NaN', 'NaN'],
    ['-Infinity', '−Inf'],
    [null, '–'],
  ] as const)('%s is written %s', (value, text) => expect(number(value)).toBe(text));
  it('writes what a finding brings as evidence', () => {
    expect(plain(['a tiny_gpt.py:27', 2304, { op: 'masked_fill', ratio: 'NaN' }])).toBe('a tiny_gpt.py:27, 2304, op masked_fill, ratio NaN');
    expect(plain([4, 5408])).toBe('[4, 5408]');
  });
  it('has a line for every loss of a step, and one where they are many', () => {
    expect(lines([0, 0, 1, 1], [1, 5, 2, 6])).toEqual([{ step: [0, 1], value: [1, 2] }, { step: [0, 1], value: [5, 6] }]);
    expect(lines([0, 1, 1, 2], [1, 2, 9, 3])).toEqual([{ step: [0, 1, 2], value: [1, 2, 3] }, { step: [1], value: [9] }]);
    expect(lines([0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6])).toHaveLength(1);
    expect(lines([], [])).toEqual([]);
  });
  it('draws no number where no value of the tensor is finite', () => {
    expect(curve([3, 0, null, 2], [0, 480, 480, 7], [480, 480, 480, 480])).toEqual([3, NaN, null, 2]);
    expect(curve([3, 'NaN'])).toEqual([3, NaN]);
  });
  it('gives an axis room and distinct numbers, also where next to nothing changes', () => {
    expect(spanned(0.001, 0.001)).toEqual([0, 0.002]);
    const [low, high] = spanned(0.000999999999999, 0.001);
    expect(high - low).toBeGreaterThan(0.0009);
    expect(spanned(-2, -2)).toEqual([-4, 0]);
    expect(spanned(0, 0)).toEqual([-1, 1]);
    expect(spanned(0.01, 5)[0]).toBe(0);
    const ticks = [223, 223.25, 223.5, 223.75, 224];
    expect(new Set(ticks.map((one) => number(one, digits(ticks)))).size).toBe(5);
    expect(number(0.5, digits([0, 0.5, 1]))).toBe('0.5');
  });
  it('begins sentences of the hub with a capital, and leaves names alone', () => {
    expect(sentence('no value of head is at hand.')).toBe('No value of head is at hand.');
    expect(sentence('the.head:out was not kept')).toBe('the.head:out was not kept');
    expect(sentence('head:out was not kept')).toBe('head:out was not kept');
  });
  it('writes shares and shapes', () => {
    expect(percent(0.0213)).toBe('2.1 %');
    expect(percent(0.0001)).toBe('< 0.1 %');
    expect(shape([2, 4], 'float32')).toBe('float32[2, 4]');
    expect(splitAddress('a/b#0:out[1]')).toEqual({ name: 'a/b#0', role: 'out[1]' });
    expect(tail('abcdef', 4)).toBe('…def');
  });
});

describe('slices', () => {
  it('leaves the last two dimensions free', () => {
    expect(words('', [2, 4, 64, 64])).toEqual(['0', '0', ':', ':']);
    expect(words('', [5])).toEqual([':']);
    expect(words('1,:', [2, 3])).toEqual(['1', ':']);
  });
  it('never has three free dimensions', () => {
    expect(setWord('0,0,:,:', [2, 4, 8, 8], 0, ':')).toBe(':,0,0,:');
    expect(setWord('0,0,:,:', [2, 4, 8, 8], 1, '3')).toBe('0,3,:,:');
  });
  it('names a cell in the whole tensor', () => {
    expect(cell('0,2,:,:', [2, 4, 64, 64], 14, 7)).toBe('[0, 2, 14, 7]');
    expect(cell('0,2,8:16,:', [2, 4, 64, 64], 1, 7)).toBe('[0, 2, 9, 7]');
    expect(cell(':', [9], 0, 4)).toBe('[4]');
  });
});

describe('watchpoints', () => {
  it('writes and reads patterns of picked nodes', () => {
    expect(combine(['a', 'b', 'a'], 'out')).toBe('{a,b}:out');
    expect(takeApart('{a,b}:out')).toEqual({ names: ['a', 'b'], role: 'out' });
    expect(takeApart('blocks.*.attn:grad')).toEqual({ names: ['blocks.*.attn'], role: 'grad' });
  });
  it('writes and reads named conditions; an expression is none', () => {
    expect(writeCondition('too_large', { absmean: '10', max: '' })).toBe('too_large(absmean=10)');
    expect(readCondition('too_large(absmean=10, max=3)')).toEqual({ name: 'too_large', given: { absmean: '10', max: '3' } });
    expect(readCondition('norm > 1e3')).toBeNull();
  });
});

describe('search', () => {
  const outline = outlineOf(small());
  const names = (query: string) => search(outline, query).map((item) => outline.name[item]);
  it('finds by name, kind, type and source line', () => {
    expect(names('fc')).toEqual(['net.fc', 'net.fc.weight', 'net.fc/linear#0']); // modules, then parameters, then ops
    expect(names('kind:Linear')).toEqual(['net.fc', 'net.fc/linear#0']);
    expect(names('kind:param')).toEqual(['net.fc.weight']);
    expect(names('relu')).toEqual(['net/relu#0']);
    expect(names('model.py:1')).toEqual(['net/relu#0']);
    expect(names('src:model.py')).toEqual(['net.fc/linear#0', 'net/relu#0']);
    expect(names('fc kind:op')).toEqual(['net.fc/linear#0']);
  });
  it('takes words apart', () => expect(parseQuery('a kind:op')).toEqual([{ field: 'any', text: 'a' }, { field: 'kind', text: 'op' }]));
});

describe('colours', () => {
  it('is symmetric for values of both signs and marks what is not finite', () => {
    expect(scaleOf([[-1, 3, NaN]])).toEqual({ low: -3, high: 3, signed: true });
    expect(colourOf(NaN, scaleOf([[0, 1]]), false)).toEqual(NAN);
    expect(scaleOf([[NaN]]).high).toBe(1);
  });
});

describe('what a picture says of its values', () => {
  it('is their range, not that of the colours, and nothing where none is finite', () => {
    expect(rangeOf([[-1, 3], [NaN, 2]])).toEqual([-1, 3]);
    expect(scaleOf([[-1, 3]])).toMatchObject({ low: -3, high: 3 });
    expect(rangeOf([[NaN, Infinity], [-Infinity, NaN]])).toBeNull();
    expect(rangeOf([[0, 0]])).toEqual([0, 0]);
    expect(rangeOf([])).toBeNull();
  });
});

describe('statistics that are not known', () => {
  it('are dashes, and NaN is NaN', () => {
    const row = { negative: null, mean: null, absmax: 1.5 };
    expect([number(row.mean), number(row.absmax), isPartial(row)]).toEqual(['–', '1.5', true]);
    const all = { negative: 0, mean: 'NaN' as const };
    expect([number(all.mean), isPartial(all), isPartial(null)]).toEqual(['NaN', false, false]);
    expect(curve([1, null, 'NaN', 'Infinity'])).toEqual([1, null, NaN, Infinity]);
  });
});

describe('excerpts', () => {
  it('escapes the program', () => {
    expect(highlight('x = "<b>" # <i>')).toBe('x = <span class="s">"&lt;b&gt;"</span> <span class="c"># &lt;i&gt;</span>');
    expect(highlight('return a<b')).toContain('<span class="k">return</span> a&lt;b');
  });
});

describe('hits', () => {
  const hit = (watchpoint: number, ord: number) => ({ ord, watchpoint, condition: 'nan > 0', site: `layer${ord}:out`, step: 3, phase: 'forward', call: 0, actual: {}, preset: {}, source: null });
  it('of one watchpoint in a row are one group, and few of them are not', () => {
    const hits = [...Array.from({ length: 65 }, (_, k) => hit(1, k)), hit(2, 65), hit(2, 66), hit(1, 67)];
    const groups = groupHits(hits);
    expect(groups.map((group) => group.hits.length)).toEqual([65, 1, 1, 1]);
    expect(groups.flatMap((group) => group.hits)).toEqual(hits);
  });
});

describe('real indices', () => {
  it('counts from the start of a slice, by its step', () => {
    expect(along('4:10:2', 20, 3)).toBe(10);
    expect(along('-4:', 20, 1)).toBe(17);
    expect(along(':', 20, 5)).toBe(5);
    expect(axes('0,:,:', [2, 3, 4])).toEqual({ row: 1, column: 2 });
    expect(axes('', [7])).toEqual({ column: 0 });
    expect(cell('1,2:,::3', [2, 9, 9], 1, 2)).toBe('[1, 3, 6]');
  });
});
