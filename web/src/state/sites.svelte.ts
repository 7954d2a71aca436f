// The sites of a place: read once, then as the hub tells of new ones.

import type { Site } from '../api/types';

export class SiteBook {
  /** Grows with every change. */
  version = $state(0);
  readonly byId = new Map<number, Site>();
  readonly byAddress = new Map<string, Site>();
  private readonly names = new Map<string, Site[]>();

  get size(): number {
    return this.byId.size;
  }

  add(sites: Site[]): void {
    for (const site of sites) {
      if (this.byId.has(site.id)) continue;
      this.byId.set(site.id, site);
      this.byAddress.set(site.address, site);
      const same = this.names.get(site.name);
      if (same) same.push(site);
      else this.names.set(site.name, [site]);
    }
    this.version++;
  }

  /** Those of one node. */
  named(name: string): Site[] {
    return this.names.get(name) ?? [];
  }
}
