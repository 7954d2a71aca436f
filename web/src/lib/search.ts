// Finding nodes: every word must occur in the name, kind, type or source line of a node. "kind:op" and "src:model.py:16"
// ask for one of them only; "kind:Conv2d" for a class of modules.

import type { Outline } from '../graph/worker';

interface Word {
  field: 'any' | 'kind' | 'type' | 'source' | 'name';
  text: string;
}

export function parseQuery(query: string): Word[] {
  const fields: Record<string, Word['field']> = { kind: 'kind', type: 'type', src: 'source', source: 'source', name: 'name' };
  return query
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const colon = word.indexOf(':');
      const field = colon > 0 ? fields[word.slice(0, colon)] : undefined;
      return field ? { field, text: word.slice(colon + 1) } : { field: 'any', text: word };
    });
}

export function search(outline: Outline, query: string, limit = 5000): number[] {
  const words = parseQuery(query);
  const out: number[] = [];
  for (let item = 0; item < outline.name.length && out.length < limit; item++) {
    if (item === outline.root || outline.kind[item] === 'group') continue;
    const name = outline.name[item].toLowerCase();
    const kind = outline.kind[item].toLowerCase();
    const type = outline.type[item].toLowerCase();
    const source = (item < outline.n ? (outline.source[item] ?? '') : '').toLowerCase();
    const found = words.every(({ field, text }) => {
      if (field === 'name') return name.includes(text);
      if (field === 'kind') return kind.startsWith(text) || type === text;
      if (field === 'type') return type.includes(text);
      if (field === 'source') return sourceMatches(source, text);
      return name.includes(text) || type.includes(text) || kind === text || sourceMatches(source, text);
    });
    if (found) out.push(item);
  }
  return out.sort((a, b) => order(outline, a) - order(outline, b) || a - b);
}

/** Modules first, then parameters, then ops. */
function order(outline: Outline, item: number): number {
  if (item >= outline.n || outline.kind[item] === 'module') return 0;
  return outline.kind[item] === 'parameter' ? 1 : 2;
}

/** "model.py:1" is line 1, not line 16. */
function sourceMatches(source: string, text: string): boolean {
  if (!source) return false;
  return /:\d+$/.test(text) ? source.endsWith(text) : source.includes(text);
}
