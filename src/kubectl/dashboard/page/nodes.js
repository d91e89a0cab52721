// The nodes of the overview: with a bar for each GPU where they are few, and as a map and a table where they are many.

import { h, render } from './dom.js';
import { count, number } from './format.js';
import { nextSort, nodeFilter, nodeOrder } from './filter.js';
import { usageNote } from './gpu.js';
import { hueOf } from './hue.js';
import { nodeCard } from './nodecard.js';
import { NodeMap } from './nodemap.js';
import { nodeColumns } from './nodetable.js';
import { barLegend, link } from './parts.js';
import { format } from './route.js';
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
  #selection = new Selection(
    entry => [entry],
    entry => entry.name,
  );
  /** What the map shows: the same nodes, always by name, so that they stay where they are. */
  #byName = new Selection(
    entry => [entry],
    entry => entry.name,
  );
  #most = STEP;
  #cards = new Map();
  #heading = document.createElement('div');
  #bars = document.createElement('div');
  #map = document.createElement('div');
  #table = document.createElement('div');
  #nodeMap = new NodeMap(this.#map);
  #rows;
  #onResize = () => this.#draw(undefined);
  #scheme = window.matchMedia('(prefers-color-scheme: dark)');

  constructor(app, parent) {
    this.#app = app;
    this.#bars.className = 'node-cards';
    this.#table.className = 'list node-list';
    this.#map.className = 'map';
    parent.replaceChildren(this.#heading, this.#map, this.#bars, this.#table);
    this.#rows = new Rows(this.#table, {
      columns: nodeColumns(() => (this.#settings.of === 'cores' ? 'cores' : 'memoryMi')),
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
    else
      [...this.#bars.children]
        .find(card => card.dataset.node === name)
        ?.querySelector('h3 a')
        .focus();
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
    if (!isMap) {
      this.#drawBars();
      return;
    }
    this.#app.usage.watch([]);
    this.#nodeMap.draw(this.#byName.items, names, this.#settings, this.#app.cluster.totals);
    this.#rows.show(this.#selection.items, 'Nodes', this.#settings.sort);
  }

  #drawHeading(isMap) {
    const { nodes, synced } = this.#app.cluster;
    const shown = this.#selection.items.length;
    const text = shown === nodes.size ? count(nodes.size, 'node') : `${number(shown)} of ${count(nodes.size, 'node')}`;
    const { of } = this.#settings;
    const choice = (title, setting, value, isChosen) =>
      h(
        'button',
        { type: 'button', 'aria-pressed': String(isChosen), onclick: () => this.#app.change({ [setting]: value }) },
        title,
      );
    let none;
    if (nodes.size === 0)
      none = synced ? 'No node has reported GPUs. kubectl divvy doctor says what is missing.' : 'Loading.';
    else if (shown === 0) none = 'No node matches the search and the filters.';
    render(
      this.#heading,
      h(
        'div',
        { class: 'list-title' },
        h('h2', null, 'Nodes'),
        h('span', { class: 'quiet' }, text),
        h(
          'span',
          { class: 'choices', role: 'group', 'aria-label': 'View' },
          choice('Bars', 'show', 'bars', !isMap),
          choice('Map and table', 'show', 'map', isMap),
        ),
        isMap &&
          h(
            'span',
            { class: 'choices', role: 'group', 'aria-label': 'Colour of the map' },
            choice('Memory', 'of', '', of !== 'cores'),
            choice('Cores', 'of', 'cores', of === 'cores'),
          ),
      ),
      !isMap && shown > 0 && [barLegend(this.#namespaces()), this.#usageNote()],
      none && h('p', { class: 'empty' }, none),
    );
  }

  /** Why usage isn't known, once for all nodes. */
  #usageNote() {
    const answers = this.#selection.items.slice(0, this.#most).map(({ name }) => this.#app.usage.of(name));
    return usageNote(answers.find(({ error }) => error) ?? {});
  }

  /** The namespaces and their colours, where there are few. */
  #namespaces() {
    const names = [...this.#app.cluster.totals.namespaces.keys()].sort();
    if (names.length > MOST_NAMESPACES) return undefined;
    return names.map(namespace =>
      h(
        'span',
        { class: 'legend' },
        h('span', { class: 'chip held', style: { '--hue': String(hueOf(namespace)) }, 'aria-hidden': 'true' }),
        link(format('overview', {}, { ...this.#settings, namespace }), namespace),
      ),
    );
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
      entries.length > shown.length &&
        h(
          'button',
          { type: 'button', class: 'more', onclick: () => ((this.#most += STEP), this.#draw()) },
          `Show ${number(Math.min(STEP, entries.length - shown.length))} more of ${number(entries.length)} nodes`,
        ),
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
    const isSame =
      before?.entry === entry && before.usage === usage && before.namespace === namespace && before.model === model;
    return isSame
      ? before
      : { entry, usage, namespace, model, description: nodeCard(entry, { usage, namespace, model }) };
  }
}
