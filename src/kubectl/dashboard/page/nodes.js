// The nodes of the overview: with a bar for each GPU where they are few, and as a map and a table where they are many.

import { h, render } from './dom.js';
import { count, hueOf, memory, number, shortModel } from './format.js';
import { nextSort, nodeFilter, nodeOrder } from './filter.js';
import { HeatMap } from './heatmap.js';
import { fullness, trouble } from './holding.js';
import { nodeCard, states } from './nodecard.js';
import { barLegend, figures, heldOf, link, meter } from './parts.js';
import { format, gpuLink, nodeLink } from './route.js';
import { Rows } from './rows.js';
import { Selection } from './selection.js';

/** Nodes of a cluster that are shown with bars unless somebody chooses otherwise. */
const FEW = 24;
/** Nodes with bars that are shown at first, and with each further step. */
const STEP = 48;
/** Namespaces that the legend of the bars names. */
const MOST_NAMESPACES = 12;
/** Height of a row of the table in CSS pixels. */
const HEIGHT = 36;

export class NodeList {
  #app;
  #settings;
  #selection = new Selection(entry => [entry], entry => entry.name);
  /** What the map shows: the same nodes, always by name, so that they stay where they are. */
  #byName = new Selection(entry => [entry], entry => entry.name);
  #most = STEP;
  #cards = new Map();
  #heading = document.createElement('div');
  #bars = document.createElement('div');
  #legend = document.createElement('div');
  #canvas = document.createElement('canvas');
  #pointed = document.createElement('p');
  #map = document.createElement('div');
  #table = document.createElement('div');
  #heatMap;
  #rows;
  #onResize = () => this.#draw(undefined);
  #scheme = window.matchMedia('(prefers-color-scheme: dark)');

  constructor(app, parent) {
    this.#app = app;
    this.#bars.className = 'node-cards';
    this.#table.className = 'list node-list';
    this.#map.className = 'map';
    this.#canvas.setAttribute('role', 'img');
    this.#pointed.className = 'pointed quiet';
    const frame = document.createElement('div');
    frame.append(this.#canvas);
    this.#map.append(this.#legend, frame, this.#pointed);
    parent.replaceChildren(this.#heading, this.#map, this.#bars, this.#table);
    this.#heatMap = new HeatMap(
      this.#canvas,
      (entry, gpu) => this.#point(entry, gpu),
      (entry, gpu) => (location.hash = gpu ? gpuLink(gpu.uuid) : nodeLink(entry.name)),
    );
    this.#rows = new Rows(this.#table, {
      columns: this.#columns(),
      height: HEIGHT,
      key: entry => entry.name,
      sorted: key => app.change({ sort: nextSort(this.#settings.sort, key) }),
    });
    window.addEventListener('resize', this.#onResize);
    this.#scheme.addEventListener('change', this.#onResize);
  }

  close() {
    window.removeEventListener('resize', this.#onResize);
    this.#scheme.removeEventListener('change', this.#onResize);
    this.#rows.close();
  }

  /** Shows the nodes by other settings. */
  change(settings) {
    const before = this.#settings;
    this.#settings = settings;
    const { nodes } = this.#app.cluster;
    this.#selection.reset(nodes, nodeFilter(settings), nodeOrder(settings.sort));
    this.#most = STEP;
    if (before && ['q', 'namespace', 'model', 'state', 'of', 'show'].every(name => before[name] === settings[name])) {
      this.#draw(new Set());
      return;
    }
    this.#byName.reset(nodes, nodeFilter(settings), nodeOrder(''));
    this.#draw(undefined);
  }

  /** Takes in the nodes of these names. */
  update(names) {
    this.#selection.refresh(this.#app.cluster.nodes, names);
    this.#byName.refresh(this.#app.cluster.nodes, names);
    this.#draw(names);
  }

  move(by) {
    if (this.#isMap()) {
      this.#rows.move(by);
      return;
    }
    const links = [...this.#bars.querySelectorAll('h3 a')];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
  }

  /** Focuses the node of this name, if it is shown. */
  focus(name) {
    if (this.#isMap()) this.#rows.focusKey(name);
    else [...this.#bars.children].find(card => card.dataset.node === name)?.querySelector('h3 a').focus();
  }

  #isMap() {
    const { show } = this.#settings;
    return show === 'map' || (show !== 'bars' && this.#app.cluster.nodes.size > FEW);
  }

  #draw(names) {
    if (!this.#settings) return;
    const isMap = this.#isMap();
    this.#drawHeading(isMap);
    this.#map.hidden = this.#table.hidden = !isMap || this.#selection.items.length === 0;
    this.#bars.hidden = isMap;
    if (isMap) this.#drawMap(names);
    else this.#drawBars();
  }

  #drawHeading(isMap) {
    const { nodes, synced } = this.#app.cluster;
    const shown = this.#selection.items.length;
    const text = shown === nodes.size ? count(nodes.size, 'node') : `${number(shown)} of ${count(nodes.size, 'node')}`;
    const { of } = this.#settings;
    const choice = (title, setting, value, isChosen) =>
      h('button', { type: 'button', 'aria-pressed': String(isChosen), onclick: () => this.#app.change({ [setting]: value }) }, title);
    let none;
    if (nodes.size === 0) none = synced ? 'No node has reported GPUs. kubectl divvy doctor says what is missing.' : 'Loading.';
    else if (shown === 0) none = 'No node matches the search and the filters.';
    render(
      this.#heading,
      h('div', { class: 'list-title' },
        h('h2', null, 'Nodes'), h('span', { class: 'quiet' }, text),
        h('span', { class: 'choices', role: 'group', 'aria-label': 'View' }, choice('Bars', 'show', 'bars', !isMap), choice('Map and table', 'show', 'map', isMap)),
        isMap && h('span', { class: 'choices', role: 'group', 'aria-label': 'Colour of the map' },
          choice('Memory', 'of', '', of !== 'cores'), choice('Cores', 'of', 'cores', of === 'cores'))),
      !isMap && shown > 0 && barLegend(this.#namespaces()),
      none && h('p', { class: 'empty' }, none),
    );
  }

  /** The namespaces and their colours, where there are few. */
  #namespaces() {
    const names = [...this.#app.cluster.totals.namespaces.keys()].sort();
    if (names.length > MOST_NAMESPACES) return undefined;
    return names.map(namespace => h('span', { class: 'legend' },
      h('span', { class: 'chip held', style: { '--hue': String(hueOf(namespace)) }, 'aria-hidden': 'true' }),
      link(format('overview', {}, { ...this.#settings, namespace }), namespace)));
  }

  #drawMap(names) {
    this.#app.usage.watch([]);
    const of = this.#settings.of === 'cores' ? 'cores' : 'memoryMi';
    const what = of === 'cores' ? 'cores' : 'memory';
    const step = (level, text) => h('span', { class: 'legend' }, h('span', { class: `cell heat-${level}`, 'aria-hidden': 'true' }), text);
    render(
      this.#legend,
      h('p', { class: 'legends quiet' }, `One cell per GPU, ${what} held: `, step(0, 'none'), step(1, 'to 25 %'), step(2, 'to 50 %'), step(3, 'to 75 %'),
        step(4, 'above'), step(5, 'all'), step('bad', 'not healthy'), step('off', 'cordoned'), step('closed', 'node takes no pods')),
    );
    const entries = this.#byName.items;
    if (!names || !this.#heatMap.refresh(entries, names)) this.#heatMap.show(entries, of, this.#settings.model);
    const { totals } = this.#app.cluster;
    const label = `Map of ${count(totals.gpus, 'GPU')}, ${number(totals.unhealthy)} of them not healthy. The table below has the same in text.`;
    this.#canvas.setAttribute('aria-label', label);
    this.#rows.show(this.#selection.items, 'Nodes', this.#settings.sort);
  }

  #point(entry, gpu) {
    this.#canvas.classList.toggle('pointing', entry !== undefined);
    if (!entry) {
      this.#pointed.textContent = '';
      return;
    }
    const state = trouble(gpu) ?? 'Healthy';
    const model = gpu.model ? `, ${shortModel(gpu.model)}` : '';
    this.#pointed.textContent = `${entry.name}: ${gpu.uuid}${model}, ${state}, memory ${figures(gpu, 'memoryMi')}, cores ${figures(gpu, 'cores')}`;
  }

  #columns() {
    const cells = gpu => {
      const word = trouble(gpu);
      const kind = !word ? '' : word === 'Cordoned' ? ' off' : ' bad';
      const fill = `${100 * fullness(gpu, this.#settings.of === 'cores' ? 'cores' : 'memoryMi')}%`;
      return h('span', { class: `tiny${kind}` }, h('span', { style: { height: fill } }));
    };
    return [
      { key: 'name', title: 'Node', sortable: true, cell: (entry, isStop) => [
        h('a', { href: nodeLink(entry.name), class: 'name', tabindex: isStop ? '0' : '-1' }, entry.name),
      ] },
      { key: 'gpus', title: 'GPUs healthy', sortable: true, amount: true, cell: ({ node, summary }) => [
        h('span', { class: 'tinies', 'aria-hidden': 'true' }, node.gpus.slice(0, 16).map(cells)),
        `${number(summary.healthy)} of ${number(summary.listed)}`,
      ] },
      { key: 'memory', title: 'Memory held', sortable: true, amount: true, cell: ({ summary }) => meter(summary.memory, heldOf(summary.memory)) },
      { key: 'cores', title: 'Cores held', sortable: true, amount: true, cell: ({ summary }) => meter(summary.cores) },
      { key: 'free', title: 'Memory free', sortable: true, amount: true, cell: ({ summary }) => memory(summary.memory.free) },
      { key: 'pods', title: 'Pods', sortable: true, amount: true, cell: ({ summary }) => number(summary.holding) },
      { key: 'problems', title: 'State', sortable: true, amount: true, cell: entry => states(entry) },
    ];
  }

  #drawBars() {
    const entries = this.#selection.items;
    const shown = entries.slice(0, this.#most);
    const drawn = new Map();
    for (const entry of shown) drawn.set(entry.name, this.#card(entry));
    this.#cards = drawn;
    render(
      this.#bars,
      [...drawn.values()].map(({ description }) => description),
      entries.length > shown.length && h('button', { type: 'button', class: 'more', onclick: () => ((this.#most += STEP), this.#draw()) },
        `Show ${number(Math.min(STEP, entries.length - shown.length))} more of ${number(entries.length)} nodes`),
    );
    const inSight = [...this.#bars.querySelectorAll('.node-card')].filter(card => {
      const { top, bottom } = card.getBoundingClientRect();
      return bottom > 0 && top < window.innerHeight;
    });
    this.#app.usage.watch(inSight.map(card => card.dataset.node));
  }

  /** The card of a node: the same description while nothing has changed, so that there is nothing to compare. */
  #card(entry) {
    const { usage } = this.#app.usage.of(entry.name);
    const { namespace, model } = this.#settings;
    const before = this.#cards.get(entry.name);
    const isSame = before?.entry === entry && before.usage === usage && before.namespace === namespace && before.model === model;
    return isSame ? before : { entry, usage, namespace, model, description: nodeCard(entry, { usage, namespace, model }) };
  }
}
