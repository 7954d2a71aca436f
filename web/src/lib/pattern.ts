// Site patterns from picked nodes, and conditions from forms. The hub checks both; here they are only written.

export const ROLES = ['out', 'grad', 'in', 'grad_in', 'value', 'update'] as const;

/** `a:out`, or `{a,b}:out` for several. An empty role means all of them. */
export function combine(names: string[], role: string): string {
  const unique = [...new Set(names)];
  if (!unique.length) return '';
  const head = unique.length === 1 ? unique[0] : `{${unique.join(',')}}`;
  return role ? `${head}:${role}` : head;
}

/** The names and the role of a pattern that `combine` wrote. */
export function takeApart(pattern: string): { names: string[]; role: string } {
  const colon = pattern.lastIndexOf(':');
  const role = colon < 0 ? '' : pattern.slice(colon + 1);
  const head = colon < 0 ? pattern : pattern.slice(0, colon);
  const braces = /^\{([^{}]*)\}$/.exec(head);
  return { names: (braces ? braces[1].split(',') : [head]).filter(Boolean), role };
}

/** The usual role of a node that was picked. */
export function roleOf(kind: string): string {
  return kind === 'parameter' ? 'value' : kind === 'loss' ? 'value' : 'out';
}

/** `too_large(absmean=10)`: parameters that are empty are left to their defaults. */
export function writeCondition(name: string, given: Record<string, string>): string {
  const parts = Object.entries(given)
    .filter(([, value]) => value.trim() !== '')
    .map(([parameter, value]) => `${parameter}=${value.trim()}`);
  return parts.length ? `${name}(${parts.join(', ')})` : name;
}

/** The named condition and its parameters in a text, or null when it is an expression. */
export function readCondition(text: string): { name: string; given: Record<string, string> } | null {
  const found = /^\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*$/.exec(text);
  if (!found) return null;
  const given: Record<string, string> = {};
  for (const part of (found[2] ?? '').split(',')) {
    const [key, value] = part.split('=').map((word) => word.trim());
    if (key && value) given[key] = value;
    else if (key) given['0'] = key;
  }
  return { name: found[1], given };
}
