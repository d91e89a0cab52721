// What surrounds every view: connection, navigation, search and filters.

import { h, render } from './dom.js';
import { STATES } from './filter.js';
import { clock, count, number } from './format.js';
import { format } from './route.js';

const byId = id => document.getElementById(id);

/** Says something to screen readers. */
export function announce(text) {
  byId('announcement').textContent = text;
}

/** Draws the parts around the view. `connection` is `{state, since}`. */
export function drawShell(app, view, route, connection) {
  const { cluster } = app;
  drawContext(cluster);
  drawConnection(cluster, connection);
  drawNavigation(cluster, route);
  drawFilters(app, view, route);
  drawProblems(cluster, connection);
  document.body.classList.toggle('stale', connection.state === 'lost');
  document.title = `${view.title} · ${cluster.hello?.context ?? 'Divvy'}`;
}

function drawContext({ hello }) {
  if (!hello) return;
  render(
    byId('context'),
    h('span', { class: 'context-name' }, hello.context ?? ''),
    h('span', { class: 'quiet' }, hello.server ?? ''),
  );
}

function drawConnection(cluster, { state, since }) {
  const [kind, text] =
    state === 'lost'
      ? ['bad', 'Connection lost']
      : state === 'connecting'
        ? ['', 'Connecting']
        : !cluster.synced
          ? ['', `Loading: ${count(cluster.nodes.size, 'node')}`]
          : ['good', 'Live'];
  const mark = { bad: '✕', good: '●', '': '○' }[kind];
  const title = since && state === 'lost' ? `since ${clock(since)}` : undefined;
  render(
    byId('connection'),
    h('span', { class: `connection ${kind}`, title }, h('span', { 'aria-hidden': 'true' }, mark), ` ${text}`),
  );
  const bar = byId('progress');
  bar.hidden = state !== 'connecting' && (cluster.synced || state === 'lost');
}

function drawNavigation(cluster, { view }) {
  const waiting = cluster.waiting().length;
  const item = (name, text, pods) =>
    h(
      'a',
      { href: format(name), 'aria-current': view === name ? 'page' : undefined },
      text,
      pods > 0 && h('span', { class: 'count' }, number(pods)),
    );
  render(byId('navigation'), item('overview', 'Overview'), item('pods', 'Pods'), item('waiting', 'Waiting', waiting));
}

function choice(app, setting, title, all, values, value) {
  // A value from a link that there is no more stays chosen, so that the list isn't other than the address says.
  const known = values.some(([name]) => name === value) || !value ? values : [...values, [value, value]];
  return h(
    'label',
    { key: setting },
    h('span', { class: 'visually-hidden' }, title),
    h(
      'select',
      {
        id: `filter-${setting}`,
        value,
        class: value ? 'set' : undefined,
        onchange: event => app.change({ [setting]: event.target.value }),
      },
      h('option', { value: '', selected: !value }, all),
      known.map(([name, text]) => h('option', { key: name, value: name, selected: name === value }, text)),
    ),
  );
}

/** Options change rarely, and there can be thousands: the same list is no work. */
const options = { namespaces: { size: -1, list: [] }, models: { size: -1, list: [] } };

function optionsOf(kind, map, text) {
  const known = options[kind];
  if (known.size !== map.size || known.list.some(([name]) => !map.has(name))) {
    options[kind] = { size: map.size, list: [...map.keys()].sort().map(name => [name, text(name)]) };
  }
  return options[kind].list;
}

function drawFilters(app, view, { settings }) {
  const { totals } = app.cluster;
  const search = byId('search');
  if (document.activeElement !== search) search.value = settings.q;
  const isSet = ['q', 'namespace', 'model', 'state'].some(name => settings[name]);
  const filters = view.filters ?? [];
  render(
    byId('filters'),
    filters.includes('namespace') &&
      choice(
        app,
        'namespace',
        'Namespace',
        'All namespaces',
        optionsOf('namespaces', totals.namespaces, String),
        settings.namespace,
      ),
    filters.includes('model') &&
      choice(app, 'model', 'Model of GPU', 'All models', optionsOf('models', totals.models, String), settings.model),
    filters.includes('state') && choice(app, 'state', 'State', 'Any state', Object.entries(STATES), settings.state),
    isSet &&
      view.change &&
      h(
        'button',
        { type: 'button', onclick: () => app.change({ q: '', namespace: '', model: '', state: '' }) },
        'Clear',
      ),
  );
}

function drawProblems({ problems }, { state, since }) {
  const lost =
    state === 'lost' &&
    `Lost the connection to kubectl divvy dashboard at ${clock(since)}; trying again. What is shown is from then.`;
  render(
    byId('problems'),
    lost && h('p', { class: 'banner bad-note' }, lost),
    problems.map(problem => h('p', { class: 'banner' }, problem)),
  );
}
