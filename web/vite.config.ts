import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// The hub serves the result from src/tensonde/server/web; `npm run dev` talks to a running hub through the proxy.
const hub = process.env.TENSONDE_HUB ?? 'http://127.0.0.1:7300';

/** What is built in is under licences that want to be passed on. */
function licences() {
  const bundled = Object.keys(JSON.parse(readFileSync('package.json', 'utf8')).dependencies).concat('svelte');
  return {
    name: 'licences',
    generateBundle(this: { emitFile(file: { type: 'asset'; fileName: string; source: string }): void }) {
      const texts = bundled.map((name) => {
        const folder = `node_modules/${name}`;
        const file = existsSync(folder) ? readdirSync(folder).find((one) => /^licen[cs]e/i.test(one)) : undefined;
        const { license, version } = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
        return `${name} ${version} (${license})\n\n${file ? readFileSync(`${folder}/${file}`, 'utf8').trim() : ''}\n`;
      });
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join(`\n${'-'.repeat(80)}\n\n`) });
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [svelte(), licences()],
  worker: { format: 'es' },
  build: { target: 'es2022', outDir: '../src/tensonde/server/web', emptyOutDir: true, chunkSizeWarningLimit: 800 },
  server: { proxy: { '/api': { target: hub, ws: true, changeOrigin: true, headers: { origin: hub } } } },
  test: { include: ['tests/**/*.test.ts'] },
});
