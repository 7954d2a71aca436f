// The one state of the screen: which runs there are, where we look (the route), and the place that is open.

import { hub, Refusal } from '../api/client';
import { Live, type Link } from '../api/live';
import type { Conditions, LiveMessage, Run, Stop } from '../api/types';
import { OpenComparison } from './comparison.svelte';
import { OpenPlace } from './place.svelte';
import { formatRoute, HOME, parseRoute, type Route, type Tab } from './route';

type Theme = 'light' | 'dark';

class App {
  runs = $state.raw<Run[] | null>(null);
  route = $state.raw<Route>(parseRoute(location.hash));
  link = $state<Link>('connecting');
  /** The hub refused us: the sentence that it gave. */
  refused = $state('');
  place = $state.raw<OpenPlace | null>(null);
  comparison = $state.raw<OpenComparison | null>(null);
  theme = $state<Theme>(storedTheme());
  drawer = $state(true);
  /** At a stop, the selection goes to where it is. */
  following = $state(localStorage.getItem('tensonde.following') !== 'no');
  help = $state(false);
  palette = $state(false);
  /** While a watchpoint is being edited, clicks in the tree pick its sites. */
  picking = $state.raw<((name: string) => void) | null>(null);
  toast = $state('');
  conditions = $state.raw<Conditions | null>(null);
  private live: Live | null = null;
  /** Somebody has chosen a tab or a node in the place that is open. */
  private touched = false;
  /** Another rank was opened, and the hub has not said yet what it does. */
  private arriving = false;
  private toastTimer: ReturnType<typeof setTimeout> | undefined;
  private late: ReturnType<typeof setTimeout> | undefined;

  run = $derived(this.runs?.find((run) => run.id === this.route.run) ?? null);

  async start(): Promise<void> {
    this.showTheme();
    await this.loadRuns();
    if (this.refused) return;
    // Before it is known which runs there are, no link can be followed.
    addEventListener('hashchange', () => this.follow(parseRoute(location.hash)));
    this.live = new Live(
      (message) => this.receive(message),
      (link) => this.linked(link),
    );
    this.follow(parseRoute(location.hash));
    hub.conditions().then((found) => (this.conditions = found), this.say);
  }

  async loadRuns(): Promise<void> {
    try {
      this.runs = await hub.runs();
      this.refused = '';
    } catch (problem) {
      if (problem instanceof Refusal && (problem.status === 401 || problem.status === 403)) this.refused = problem.message;
      else this.say(problem);
    }
  }

  /** Changes the route; a new selection is a step in the browser's history, the rest is not. */
  go(change: Partial<Route>): void {
    if (change.tab || change.sel) this.touched = true;
    const next = { ...this.route, ...change };
    const hash = formatRoute(next);
    if (hash === location.hash && hash === formatRoute(this.route)) return;
    const remembered = next.run !== this.route.run || next.rank !== this.route.rank || next.sel !== this.route.sel;
    this.write(hash, remembered);
    this.follow(next);
  }

  /** Browsers pass over changes of the URL that come too fast, as when the timeline is dragged: the last one is written later. */
  private write(hash: string, remembered: boolean, tries = 0): void {
    if (remembered) history.pushState(null, '', hash);
    else history.replaceState(null, '', hash);
    clearTimeout(this.late);
    if (location.hash !== hash && tries < 30) this.late = setTimeout(() => this.write(formatRoute(this.route), false, tries + 1), 1000);
  }

  open(run: string, rank?: string): void {
    const found = this.runs?.find((known) => known.id === run);
    const first = rank ?? found?.ranks[0]?.name ?? 'rank0';
    this.go({ run, rank: first, step: null, sel: '', idx: '', against: '', compare: undefined });
  }

  /** The place that is open beside another run. */
  compareWith(run: string, rank = this.runs?.find((known) => known.id === run)?.ranks[0]?.name ?? 'rank0'): void {
    const here = this.place?.at;
    if (here) location.hash = formatRoute({ ...HOME, compare: [[here.run, here.rank], [run, rank]] });
  }

  select(sel: string, change: Partial<Route> = {}): void {
    const same = sel.split(':')[0] === this.route.sel.split(':')[0];
    this.go({ sel, ...(same ? {} : { idx: '' }), ...change });
  }

  /** The training has stopped: the selection goes there, and back with Alt+←. */
  private goTo(stop: Stop): void {
    const where = stop.hits?.[0]?.site ?? stop.site ?? stop.modules?.[stop.modules.length - 1];
    if (!this.following || !where || this.picking) return;
    this.select(where, { step: null, against: this.route.against });
  }

  setFollowing(on: boolean): void {
    this.following = on;
    localStorage.setItem('tensonde.following', on ? 'yes' : 'no');
  }

  showTab(tab: Tab): void {
    this.drawer = true;
    this.go({ tab });
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem('tensonde.theme', theme);
    this.showTheme();
  }

  say = (what: unknown): void => {
    this.toast = what instanceof Error ? what.message : String(what);
    clearTimeout(this.toastTimer);
    this.toastTimer = setTimeout(() => (this.toast = ''), 7000);
  };

  private showTheme(): void {
    document.documentElement.dataset.theme = this.theme;
    this.place?.themeChanged();
  }

  private follow(route: Route): void {
    const moved = route.run !== this.place?.at.run || route.rank !== this.place?.at.rank;
    this.route = route;
    this.followComparison(route);
    const found = this.runs?.find((run) => run.id === route.run);
    const ended = found && found.state !== 'live' && found.state !== 'empty';
    if (route.run && found && (!route.rank || (ended && !found.ranks.some((rank) => rank.name === route.rank)))) {
      if (route.rank) this.say(`${found.name} has no ${route.rank}; it has ${found.ranks.map((rank) => rank.name).join(', ')}.`);
      return this.open(route.run);
    }
    // A link to a run that this hub does not have leads to the list; a page that shows one keeps it when the hub forgets it.
    if (!route.run || !route.rank || (moved && this.runs && !found)) {
      this.place?.close();
      this.place = null;
      this.live?.unsubscribe();
      return;
    }
    if (moved) {
      const before = this.place;
      // Another rank of the same run: the selection stays, also where that rank has stopped.
      this.arriving = before?.at.run === route.run;
      this.place?.close();
      this.place = new OpenPlace(route.run, route.rank, this.say, {
        resumed: () => this.go({ step: null }),
        stopped: (stop) => !this.arriving && this.goTo(stop),
      });
      if (before?.at.run === route.run) this.place.lookAs(before);
      this.live?.subscribe(route.run, route.rank);
      this.place.setRun(this.run);
      const opened = this.place;
      this.touched = before?.at.run === route.run;
      void opened.load().then(() => {
        // A run in which something was found opens with what was found.
        const untouched = this.place === opened && !this.touched && !this.route.sel && this.route.tab === 'tensor';
        if (untouched && opened.findings.length) this.go({ tab: 'findings' });
        else if (untouched && opened.memory) this.go({ tab: 'memory' });
      });
    }
  }

  private followComparison(route: Route): void {
    const key = route.compare ? JSON.stringify(route.compare) : null;
    if (this.comparison && this.comparison.key === key) return void this.comparison.show(route.sel);
    this.comparison?.close();
    this.comparison = route.compare ? new OpenComparison(...route.compare, (sel) => this.go({ sel })) : null;
    void this.comparison?.load(route.sel);
  }

  private linked(link: Link): void {
    const back = link === 'open' && this.link === 'lost';
    this.link = link;
    if (link === 'lost') this.place?.unlink();
    if (back) {
      // What was missed meanwhile is read again; a hub that was started anew may not know us.
      void this.loadRuns().then(() => {
        if (!this.refused) void this.place?.catchUp();
      });
    } else if (link === 'lost') void this.checkRefusal();
  }

  private async checkRefusal(): Promise<void> {
    try {
      await hub.runs();
    } catch (problem) {
      if (problem instanceof Refusal && problem.status === 401) this.refused = problem.message;
    }
  }

  private receive(message: LiveMessage): void {
    if (message.type === 'runs' && message.runs) {
      this.runs = message.runs;
      if (!this.place && this.run) this.follow(this.route); // what a link names is here now
      this.place?.setRun(this.run);
    } else if (message.type === 'error') this.say(message.error ?? 'The hub reported an error.');
    else {
      this.place?.receive(message);
      if (message.type === 'state' && message.rank === this.route.rank) this.arriving = false;
    }
  }
}

function storedTheme(): Theme {
  const known = localStorage.getItem('tensonde.theme');
  if (known === 'light' || known === 'dark') return known;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export const app = new App();
