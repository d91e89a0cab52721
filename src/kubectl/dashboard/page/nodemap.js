// The map of GPUs with its legend, and a line for the GPU under the pointer.

import { h, render } from './dom.js';
import { count, number, shortModel } from './format.js';
import { HeatMap } from './heatmap.js';
import { trouble } from './holding.js';
import { figures } from './parts.js';
import { gpuLink, nodeLink } from './route.js';

export class NodeMap {
  #legend = document.createElement('div');
  #canvas = document.createElement('canvas');
  #pointed = document.createElement('p');
  #heatMap;

  constructor(parent) {
    this.#canvas.setAttribute('role', 'img');
    this.#pointed.className = 'pointed quiet';
    const frame = document.createElement('div');
    frame.append(this.#canvas);
    parent.append(this.#legend, frame, this.#pointed);
    this.#heatMap = new HeatMap(
      this.#canvas,
      (entry, gpu) => this.#point(entry, gpu),
      (entry, gpu) => (location.hash = gpu ? gpuLink(gpu.uuid) : nodeLink(entry.name)),
    );
  }

  /** Draws these nodes: those of these names anew, or without names all. */
  draw(entries, names, settings, totals) {
    const of = settings.of === 'cores' ? 'cores' : 'memoryMi';
    const what = of === 'cores' ? 'cores' : 'memory';
    const step = (level, text) =>
      h('span', { class: 'legend' }, h('span', { class: `cell heat-${level}`, 'aria-hidden': 'true' }), text);
    render(
      this.#legend,
      h(
        'p',
        { class: 'legends quiet' },
        `One cell per GPU, ${what} held: `,
        step(0, 'none'),
        step(1, 'to 25 %'),
        step(2, 'to 50 %'),
        step(3, 'to 75 %'),
        step(4, 'above'),
        step(5, 'all'),
        step('bad', 'not healthy'),
        step('off', 'cordoned'),
        step('closed', 'node takes no pods'),
      ),
    );
    if (!names || !this.#heatMap.refresh(entries, names)) this.#heatMap.show(entries, of, settings.model);
    const sick = `${number(totals.unhealthy)} of them not healthy`;
    const label = `Map of ${count(totals.gpus, 'GPU')}, ${sick}. The table below has the same in text.`;
    this.#canvas.setAttribute('aria-label', label);
  }

  #point(entry, gpu) {
    this.#canvas.classList.toggle('pointing', entry !== undefined);
    if (!entry) {
      this.#pointed.textContent = '';
      return;
    }
    const state = trouble(gpu) ?? 'Healthy';
    const model = gpu.model ? `, ${shortModel(gpu.model)}` : '';
    const amounts = `memory ${figures(gpu, 'memoryMi')}, cores ${figures(gpu, 'cores')}`;
    this.#pointed.textContent = `${entry.name}: ${gpu.uuid}${model}, ${state}, ${amounts}`;
  }
}
