// Puts the page together: messages into the state, the state into the view that the address names.

import { ask, connect } from './connection.js';
import { h } from './dom.js';
import { find } from './find.js';
import { count } from './format.js';
import { gpuView } from './gpu.js';
import { listen } from './keys.js';
import { nodeView } from './node.js';
import { overview } from './overview.js';
import { link } from './parts.js';
import { podView } from './pod.js';
import { podsView } from './pods.js';
import { LISTS, format, parse } from './route.js';
import { announce, drawShell } from './shell.js';
import { Cluster } from './state.js';
import { UsagePoller } from './usage.js';
import { objectView } from './views.js';
import { waitingView } from './waiting.js';

const VIEWS = {
  overview,
  pods: podsView,
  waiting: waitingView,
  node: nodeView,
  pod: podView,
  gpu: gpuView,
  unknown: unknownView,
};
/** Least time between two drawings of what the messages changed, in ms. */
const DRAW_INTERVAL = 500;
/** Ages go on and usage is asked for without messages, at this interval in ms. */
const TICK = 1000;
/** Time after the last key in the search box before it is searched, in ms. */
const SEARCH_PAUSE = 150;

const main = document.getElementById('main');
const cluster = new Cluster();
const connection = { state: 'connecting', since: Date.now() };
const app = {
  cluster,
  ask,
  now: () => Date.now(),
  usage: new UsagePoller(
    node => ask('usage', { node }),
    () => schedule(),
  ),
  change,
};
let route;
let view;
/** Names of nodes that changed since the last drawing. */
let changedNodes = new Set();
let scheduled;
let drawn = 0;
/** The list that was last shown, for the way back; and of each list how far it was scrolled and what had the focus. */
let lastList = format('overview');
const places = new Map();

function unknownView() {
  const text = ['The address names no view. ', link(format('overview'), 'To the overview')];
  return objectView('Not found', () => [h('h1', { tabindex: '-1' }, 'Not found'), h('p', text)]);
}

function receive(kind, message) {
  const isInitial = !cluster.synced;
  for (const name of cluster.apply(kind, message)) changedNodes.add(name);
  if (isInitial && cluster.synced) {
    announce(`Loaded: ${count(cluster.nodes.size, 'node')}.`);
    drawn = 0;
  }
  schedule();
}

/** Draws soon: in the next frame, but not too often. */
function schedule() {
  if (scheduled && drawn > 0) return;
  clearTimeout(scheduled);
  scheduled = setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawn + DRAW_INTERVAL - Date.now()));
}

function draw() {
  [scheduled, drawn] = [undefined, Date.now()];
  const changed = changedNodes;
  changedNodes = new Set();
  view.update(changed);
  drawShell(app, view, route, connection);
}

/** Shows the view of the address. */
function showAddress() {
  const previous = route;
  const hash = location.hash || format('overview');
  route = parse(hash);
  if (previous && LISTS.includes(previous.view)) {
    const focused = document.activeElement.closest('[data-row]')?.dataset.row;
    places.set(previous.hash, { scroll: previous.scroll, focused });
  }
  route.hash = hash;
  if (LISTS.includes(route.view)) lastList = hash;
  view?.close?.();
  main.replaceChildren();
  view = VIEWS[route.view](app, route.names);
  changedNodes = new Set();
  view.show(main, route.names, route.settings);
  drawShell(app, view, route, connection);
  const place = places.get(hash);
  window.scrollTo(0, place?.scroll ?? 0);
  // Not at the start, and not while somebody types a search.
  if (!previous || document.activeElement.id === 'search') return;
  main.querySelector('h1')?.focus({ preventScroll: true });
  if (place?.focused) view.focus(place.focused);
}

/** Other settings of the list that is shown; from a view of one object, to the overview with them. */
function change(settings) {
  if (!view.change) {
    location.hash = format('overview', {}, settings);
    return;
  }
  // What is found stands at the top.
  if ((settings.q ?? route.settings.q) !== route.settings.q) window.scrollTo(0, 0);
  route.settings = { ...route.settings, ...settings };
  route.hash = format(route.view, route.names, route.settings);
  history.replaceState(null, '', route.hash);
  lastList = route.hash;
  view.change(route.settings);
  drawShell(app, view, route, connection);
}

function setConnection(state) {
  if (connection.state === state) return;
  if (state === 'lost') announce('Connection lost.');
  else if (connection.state === 'lost') announce('Connected again.');
  Object.assign(connection, { state, since: Date.now() });
  drawShell(app, view, route, connection);
}

function searchBox() {
  const box = document.getElementById('search');
  let pause;
  box.addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(() => change({ q: box.value }), SEARCH_PAUSE);
  });
  box.form.addEventListener('submit', event => {
    event.preventDefault();
    clearTimeout(pause);
    const [first] = find(cluster, box.value).flatMap(group => group.found);
    if (first) location.hash = first.href;
  });
}

function copyButtons() {
  document.addEventListener('click', async event => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    const isCopied = await navigator.clipboard.writeText(button.dataset.copy).then(
      () => true,
      () => false,
    );
    const result = isCopied ? 'copied' : 'not-copied';
    button.classList.add(result);
    announce(isCopied ? 'Copied.' : "The browser doesn't let the page copy.");
    setTimeout(() => button.classList.remove(result), 2000);
  });
}

function start() {
  history.scrollRestoration = 'manual';
  window.addEventListener('hashchange', showAddress);
  window.addEventListener('scroll', () => (route.scroll = window.scrollY), { passive: true });
  const header = document.querySelector('header');
  new ResizeObserver(() =>
    document.documentElement.style.setProperty('--header-height', `${header.offsetHeight}px`),
  ).observe(header);
  const help = document.getElementById('keys');
  document.getElementById('help').addEventListener('click', () => help.showModal());
  // The address is the view's, so the skip link can't be an ordinary one.
  document.getElementById('skip').addEventListener('click', event => {
    event.preventDefault();
    main.querySelector('h1')?.focus();
  });
  listen({
    search: () => document.getElementById('search').select(),
    move: by => view.move?.(by),
    back: () => LISTS.includes(route.view) || (location.hash = lastList),
    help: () => help.showModal(),
  });
  searchBox();
  copyButtons();
  showAddress();
  connect(receive, setConnection);
  setInterval(() => {
    if (document.hidden) return;
    app.usage.tick(Date.now());
    schedule();
  }, TICK);
}

start();
