// The part of a tensor that is shown: one word for each dimension, numpy-like, at most two of them free.

/** "0,2,:,:" → words for each dimension of the shape; missing ones are filled so that the last two are free. */
export function words(index: string, shape: number[]): string[] {
  const given = index ? index.split(',').map((word) => word.trim() || ':') : [];
  const out = given.slice(0, shape.length);
  while (out.length < shape.length) out.push(out.length < shape.length - 2 ? '0' : ':');
  return out;
}

export const isFree = (word: string) => word.includes(':');

/** Sets one dimension; when a third one would be free, the first of the others becomes 0. */
export function setWord(index: string, shape: number[], dimension: number, word: string): string {
  const all = words(index, shape);
  all[dimension] = word.trim() || ':';
  const free = all.map((w, d) => (isFree(w) ? d : -1)).filter((d) => d >= 0 && d !== dimension);
  if (isFree(all[dimension]) && free.length > 1) all[free[0]] = '0';
  return all.join(',');
}

/** The index in the whole tensor of the k-th element along a free dimension. */
export function along(word: string, size: number, k: number): number {
  const [start = '', , step = ''] = word.split(':');
  const first = start === '' ? 0 : Number(start) < 0 ? Number(start) + size : Number(start);
  return first + k * (Number(step) || 1);
}

/** The free dimensions, rows before columns; of a vector, only columns. */
export function axes(index: string, shape: number[]): { row?: number; column?: number } {
  const free = words(index, shape).map((word, d) => (isFree(word) ? d : -1)).filter((d) => d >= 0);
  return free.length === 2 ? { row: free[0], column: free[1] } : { column: free[0] };
}

/** The address of a cell in the whole tensor: [0, 2, 14, 7]. */
export function cell(index: string, shape: number[], row: number, column: number): string {
  const all = words(index, shape);
  const free = all.map((word, d) => (isFree(word) ? d : -1)).filter((d) => d >= 0);
  const at = all.map((word, d) => {
    if (!isFree(word)) return word;
    return String(along(word, shape[d], free.length === 2 && d === free[0] ? row : column));
  });
  return `[${at.join(', ')}]`;
}
