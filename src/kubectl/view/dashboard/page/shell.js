// What surrounds every view: connection, navigation, search and filters.

import { h, render } from './dom.js';
import { STATES } from './filter.js';
import { age, count, number } from './format.js';
import { link } from './parts.js';
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
  drawProblems(cluster, connection, app.now());
  document.body.classList.toggle('stale', connection.state === 'lost');
  document.title = `${view.title} · ${cluster.hello?.context ?? 'Divvy'}`;
}

function drawContext({ hello }) {
  if (!hello) return;
  render(byId('context'), h('span.context-name', hello.context ?? ''), h('span.quiet', hello.server ?? ''));
}

/** Class, mark and word of the connection's state. */
function connectionState(cluster, state) {
  if (state === 'lost') return ['bad', '✕', 'Connection lost'];
  if (state === 'connecting') return ['', '○', 'Connecting'];
  if (!cluster.synced) return ['', '○', `Loading: ${count(cluster.nodes.size, 'node')}`];
  return ['good', '●', 'Live'];
}

function drawConnection(cluster, { state }) {
  const [kind, mark, text] = connectionState(cluster, state);
  render(
    byId('connection'),
    h('span', { class: `connection ${kind}` }, h('span', { 'aria-hidden': 'true' }, mark), ` ${text}`),
  );
}

function drawNavigation(cluster, { view }) {
  const item = (name, text) => link(format(name), text, { 'aria-current': view === name ? 'page' : undefined });
  const waiting = cluster.waiting().length;
  const count = waiting > 0 && h('span.count', number(waiting));
  render(byId('navigation'), item('overview', 'Overview'), item('pods', 'Pods'), item('waiting', ['Waiting', count]));
}

const namesOf = map => [...map.keys()].sort().map(name => [name, name]);

/** Filters of lists: the setting, what it is of, what it is called while it is off, and its values with their names. */
const FILTERS = [
  ['namespace', 'Namespace', 'All namespaces', totals => namesOf(totals.namespaces)],
  ['model', 'Model of GPU', 'All models', totals => namesOf(totals.models)],
  ['state', 'State', 'Any state', () => Object.entries(STATES).map(([state, [name]]) => [state, name])],
];

function choice(app, [setting, title, all, valuesOf], value) {
  const values = valuesOf(app.cluster.totals);
  // A value from a link that there is no more stays chosen, so that the list isn't other than the address says.
  if (value && !values.some(([name]) => name === value)) values.push([value, value]);
  const option = ([name, text]) => h('option', { key: name, value: name, selected: name === value }, text);
  const properties = {
    value,
    class: value ? 'set' : undefined,
    onchange: event => app.change({ [setting]: event.target.value }),
  };
  return h(
    'label',
    { key: setting },
    h('span.visually-hidden', title),
    h('select', properties, [['', all], ...values].map(option)),
  );
}

function drawFilters(app, view, { settings }) {
  const search = byId('search');
  if (document.activeElement !== search) search.value = settings.q;
  const isSet = ['q', 'namespace', 'model', 'state'].some(name => settings[name]);
  const clear = () => app.change({ q: '', namespace: '', model: '', state: '' });
  const filters = FILTERS.filter(([setting]) => view.filters?.includes(setting));
  render(
    byId('filters'),
    filters.map(filter => choice(app, filter, settings[filter[0]])),
    isSet && view.change && h('button', { type: 'button', onclick: clear }, 'Clear'),
  );
}

function drawProblems({ problems }, { state, since }, now) {
  const ago = `Lost the connection to kubectl divvy dashboard ${age(now - since)} ago; trying again.`;
  render(
    byId('problems'),
    state === 'lost' && h('p.banner.bad-note', `${ago} What is shown is from then.`),
    problems.map(problem => h('p.banner', problem)),
  );
}
