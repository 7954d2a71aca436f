import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';
import { app } from './state/app.svelte';

mount(App, { target: document.getElementById('app')! });
void app.start();

// For tests: the graph is a canvas, so what it shows is told here.
Object.assign(window, {
  __tensonde: {
    app,
    boxes: () => app.place?.graph?.boxes() ?? [],
    graph: () => app.place?.graph ?? null,
    /** Of both sides of a comparison: the name that is selected, and whether it can be seen. */
    compared: () => app.comparison?.graphs.map((graph) => graph?.selection() ?? null) ?? [],
  },
});
