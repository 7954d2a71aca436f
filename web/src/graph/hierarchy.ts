// The graph as nested scopes. Items are numbered: nodes first (in execution order), then module scopes, then the
// root, then the groups that oversized flat scopes are split into. Everything else speaks in item numbers.

export interface GraphColumns {
  nodes: {
    name: string[];
    kind: string[];
    type: string[];
    scope: number[];
    source: (string | null)[];
    phase: string[];
    op: string[];
    site: (string | null)[];
    /** How the node's output was in the traced step itself. */
    health?: string[];
  };
  edges: { from: number[]; to: number[] };
  scopes: { name: string[]; type: string[]; parent: number[] };
}

/** More children than this in one scope are shown as groups of consecutive ones. */
export const GROUP_ABOVE = 160;
const GROUP_SIZE = 80;

export class Hierarchy {
  /** Number of nodes; items from here on are scopes. */
  readonly n: number;
  readonly root: number;
  readonly name: string[];
  readonly label: string[];
  readonly type: string[];
  readonly kind: string[];
  readonly parent: number[];
  readonly depth: number[] = [];
  readonly children: number[][] = [];
  /** Nodes below an item; 1 for a node. */
  readonly size: number[] = [];
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** The op that a parameter is drawn in while parameters are folded, or -1. */
  readonly host: Int32Array;
  /** By scope: how many edges connect two of its children, keyed a * total + b. */
  readonly links = new Map<number, Map<number, number>>();
  private starts: Int32Array | null = null;
  private byEnd: Int32Array | null = null;

  constructor(graph: GraphColumns) {
    const { nodes, edges, scopes } = graph;
    const n = (this.n = nodes.name.length);
    const s = scopes.name.length;
    this.root = n + s;
    this.name = [...nodes.name, ...scopes.name, ''];
    this.type = [...nodes.type, ...scopes.type, ''];
    this.kind = [...nodes.kind, ...scopes.name.map(() => 'module'), 'root'];
    this.parent = [
      ...nodes.scope.map((scope) => (scope < 0 ? this.root : n + scope)),
      ...scopes.parent.map((scope) => (scope < 0 ? this.root : n + scope)),
      -1,
    ];
    this.label = this.name.map((name, item) => this.shortLabel(name, item, nodes.op[item]));
    this.from = Int32Array.from(edges.from);
    this.to = Int32Array.from(edges.to);
    this.host = this.foldParameters();
    this.order();
    this.splitOversized();
    this.measure();
    this.lift();
  }

  get total(): number {
    return this.name.length;
  }

  isScope(item: number): boolean {
    return item >= this.n;
  }

  /** The scopes around an item, outermost first, without the root. */
  path(item: number): number[] {
    const out: number[] = [];
    for (let at = this.parent[item]; at >= 0 && at !== this.root; at = this.parent[at]) out.push(at);
    return out.reverse();
  }

  /** Nodes that feed the item and nodes that it feeds; for a scope, those outside of it. */
  neighbours(item: number, limit = 400): { before: number[]; after: number[] } {
    this.index();
    const before = new Set<number>();
    const after = new Set<number>();
    for (const node of this.nodesBelow(item)) {
      for (let k = this.starts![node]; k < this.starts![node + 1]; k++) {
        const edge = this.byEnd![k];
        const incoming = this.to[edge] === node;
        const other = incoming ? this.from[edge] : this.to[edge];
        if (other === node || this.within(other, item)) continue;
        const side = incoming ? before : after;
        if (side.size < limit) side.add(other);
      }
    }
    return { before: [...before], after: [...after] };
  }

  within(item: number, scope: number): boolean {
    for (let at = item; at >= 0; at = this.parent[at]) if (at === scope) return true;
    return false;
  }

  *nodesBelow(item: number): Generator<number> {
    if (!this.isScope(item)) yield item;
    else for (const child of this.children[item]) yield* this.nodesBelow(child);
  }

  private shortLabel(name: string, item: number, op: string | undefined): string {
    if (item === this.root) return 'model';
    const backward = / \((backward|gradient)\)$/;
    if (backward.test(name)) return '∇ ' + this.shortLabel(name.replace(backward, ''), item, op);
    const slash = name.lastIndexOf('/');
    if (slash >= 0) return name.slice(slash + 1).replace(/#0$/, '');
    const outer = this.parent[item] >= 0 ? this.name[this.parent[item]] : '';
    if (outer && name.startsWith(outer + '.')) return name.slice(outer.length + 1);
    return name || op || 'model';
  }

  /** Parameters, and what a compiled forward pass has saved for the backward one: beside the ops that take them they would be a forest. */
  private foldParameters(): Int32Array {
    const host = new Int32Array(this.n).fill(-1);
    for (let e = 0; e < this.from.length; e++) {
      const [from, to] = [this.from[e], this.to[e]];
      const given = this.kind[from] === 'parameter' || (this.kind[from] === 'input' && this.name[from].endsWith(' (saved)'));
      if (given && host[from] < 0) host[from] = to;
      if (this.kind[to] === 'parameter' && host[to] < 0) host[to] = from; // its gradient, in the backward pass
    }
    return host;
  }

  /** Children in the order of execution: a scope stands where its first op does, for a compiled graph lists all parameters before the ops. Scopes that hold no node come last. */
  private order(): void {
    const first = new Float64Array(this.total).fill(Infinity);
    for (const folded of [false, true])
      for (let node = 0; node < this.n; node++)
        if (this.host[node] >= 0 === folded) for (let at = node; at >= 0 && first[at] === Infinity; at = this.parent[at]) first[at] = node;
    for (let i = 0; i < this.total; i++) this.children.push([]);
    for (let item = 0; item < this.root; item++) this.children[this.parent[item]].push(item);
    for (const children of this.children) children.sort((a, b) => first[a] - first[b] || a - b);
  }

  private splitOversized(): void {
    for (let scope = this.n; scope < this.total; scope++) {
      const children = this.children[scope];
      if (children.filter((child) => child >= this.n || this.host[child] < 0).length <= GROUP_ABOVE) continue;
      const per = Math.max(GROUP_SIZE, Math.ceil(children.length / GROUP_ABOVE));
      const groups: number[] = [];
      for (let first = 0; first < children.length; first += per) {
        const members = children.slice(first, first + per);
        const group = this.name.length;
        this.name.push(`${this.name[scope]}⋯${first}`);
        this.label.push(`${this.label[members[0]]} … ${this.label[members[members.length - 1]]}`);
        this.type.push(`${first + 1}–${first + members.length}`);
        this.kind.push('group');
        this.parent.push(scope);
        this.children.push(members);
        for (const member of members) this.parent[member] = group;
        groups.push(group);
      }
      this.children[scope] = groups;
    }
  }

  private measure(): void {
    const walk = (item: number, depth: number): number => {
      this.depth[item] = depth;
      if (!this.isScope(item)) return (this.size[item] = 1);
      let sum = 0;
      for (const child of this.children[item]) sum += walk(child, depth + 1);
      return (this.size[item] = sum);
    };
    walk(this.root, 0);
  }

  /** Every edge counts between the two siblings that hold its ends. */
  private lift(): void {
    const { parent, depth } = this;
    for (let e = 0; e < this.from.length; e++) {
      let a = this.from[e];
      let b = this.to[e];
      if (a === b) continue;
      while (depth[a] > depth[b]) a = parent[a];
      while (depth[b] > depth[a]) b = parent[b];
      if (a === b) continue;
      while (parent[a] !== parent[b]) {
        a = parent[a];
        b = parent[b];
      }
      let links = this.links.get(parent[a]);
      if (!links) this.links.set(parent[a], (links = new Map()));
      const key = a * this.total + b;
      links.set(key, (links.get(key) ?? 0) + 1);
    }
  }

  /** Edges by either end, made when first asked for. */
  private index(): void {
    if (this.starts) return;
    const starts = new Int32Array(this.n + 1);
    const edges = this.from.length;
    for (let e = 0; e < edges; e++) {
      starts[this.from[e] + 1]++;
      starts[this.to[e] + 1]++;
    }
    for (let i = 0; i < this.n; i++) starts[i + 1] += starts[i];
    const next = starts.slice(0, this.n);
    const byEnd = new Int32Array(edges * 2);
    for (let e = 0; e < edges; e++) {
      byEnd[next[this.from[e]]++] = e;
      byEnd[next[this.to[e]]++] = e;
    }
    this.starts = starts;
    this.byEnd = byEnd;
  }
}
