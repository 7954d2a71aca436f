// The WebSocket to the hub: comes back by itself, subscribes again, and says when it was away.

import type { LiveMessage } from './types';

export type Link = 'connecting' | 'open' | 'lost';

export class Live {
  private socket: WebSocket | null = null;
  private wanted: { run: string; rank: string } | null = null;
  private delay = 250;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;

  constructor(
    private readonly receive: (message: LiveMessage) => void,
    private readonly changed: (link: Link) => void,
  ) {
    this.connect();
  }

  subscribe(run: string, rank: string): void {
    if (this.wanted) this.send({ unsubscribe: this.wanted });
    this.wanted = { run, rank };
    this.send({ subscribe: this.wanted });
  }

  unsubscribe(): void {
    if (this.wanted) this.send({ unsubscribe: this.wanted });
    this.wanted = null;
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  private send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  private connect(): void {
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/api/live`);
    this.socket = socket;
    socket.onopen = () => {
      this.delay = 250;
      this.changed('open');
      if (this.wanted) this.send({ subscribe: this.wanted });
    };
    socket.onmessage = (event) => this.receive(JSON.parse(event.data) as LiveMessage);
    socket.onclose = () => {
      if (this.closed) return;
      this.changed('lost');
      this.timer = setTimeout(() => this.connect(), this.delay);
      this.delay = Math.min(5000, this.delay * 1.7);
    };
  }
}
