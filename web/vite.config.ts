import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// The hub serves the result from src/sonde/server/web; `npm run dev` talks to a running hub through the proxy.
declare const process: { env: Record<string, string | undefined> };
const hub = process.env.SONDE_HUB ?? 'http://127.0.0.1:7300';

export default defineConfig({
  base: './',
  plugins: [svelte()],
  worker: { format: 'es' },
  build: { target: 'es2022', outDir: '../src/sonde/server/web', emptyOutDir: true, chunkSizeWarningLimit: 800 },
  server: { proxy: { '/api': { target: hub, ws: true } } },
  test: { include: ['tests/**/*.test.ts'] },
});
