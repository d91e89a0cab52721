// The overview: sums, packing over time, what needs attention, and the nodes.

import { chart, roundUp } from './chart.js';
import { h, render } from './dom.js';
import { find } from './find.js';
import { troubles, waitingOrder } from './filter.js';
import { ageSince, clock, count, memory, number, percent } from './format.js';
import { NodeList } from './nodes.js';
import { gpuName, healthBadge, link, nodeName, section, sumBar, troubleText } from './parts.js';
import { format, podLink } from './route.js';

/** Lines of a list on the overview; the rest is behind a link. */
const MOST = 3;

function tile(title, figure, ...rest) {
  return h('div', { class: 'tile' }, h('h2', null, title), h('p', { class: 'figure' }, figure), rest);
}

function tiles(cluster, now) {
  const { totals } = cluster;
  const pods = cluster.waiting().sort(waitingOrder('age'));
  const waiting = pods.length;
  const oldest = waiting > 0 && ageSince(pods[0].created, now);
  const wrong = [];
  if (totals.unhealthy > 0) wrong.push(`${number(totals.unhealthy)} not healthy`);
  if (totals.cordoned > 0) wrong.push(`${number(totals.cordoned)} cordoned`);
  const amounts = (title, sum, text) => tile(title,
    [`${percent(sum.held, sum.capacity)} %`, h('small', null, ` of ${text(sum.capacity)}`)], sumBar(sum),
    h('p', { class: 'quiet' }, `${text(sum.held)} held · ${sum.reserved > 0 ? `${text(sum.reserved)} reserved · ` : ''}${text(sum.free)} free`));
  return h('div', { class: 'tiles' },
    tile('GPUs healthy', [number(totals.healthy), h('small', null, ` of ${number(totals.gpus)}`)], h('p', { class: wrong.length > 0 ? 'alarm' : 'quiet' }, wrong.join(' · ') || 'none cordoned')),
    amounts('Memory held', totals.memory, memory),
    amounts('Cores held', totals.cores, number),
    tile('Nodes', number(totals.nodes), h('p', { class: totals.closed > 0 ? 'alarm' : 'quiet' }, totals.closed > 0 ? `${number(totals.closed)} ${totals.closed === 1 ? 'takes' : 'take'} no pods` : 'all take pods')),
    tile('Pods with GPUs', link(format('pods'), number(totals.pods)), h('p', { class: 'quiet' }, `in ${count(totals.namespaces.size, 'namespace')}`)),
    tile('Waiting pods', link(format('waiting'), number(waiting)), h('p', { class: 'quiet' }, oldest ? `the oldest for ${oldest}` : 'none')));
}

function charts({ cluster, recorder, opened, now }) {
  const at = recorder.seconds(now());
  const { totals } = cluster;
  const held = (sum, value) => ({ text: `${percent(sum.held, sum.capacity)} %`, points: recorder.cluster.points(value) });
  const waiting = recorder.cluster.points(2);
  const most = roundUp(1 + Math.max(0, ...waiting.map(([, pods]) => pods)));
  const since = clock(opened);
  return h('div', { class: 'charts wide' },
    chart({ title: 'Packing since the page was opened', most: 1000, mostText: '100 %', now: at, since,
      series: [{ name: 'Memory held', ...held(totals.memory, 0) }, { name: 'Cores held', ...held(totals.cores, 1) }] }),
    chart({ title: 'Waiting pods', most, mostText: number(most), now: at, since,
      series: [{ name: 'Now', text: number(waiting.at(-1)?.[1] ?? 0), points: waiting }] }));
}

function attention({ nodes, synced }) {
  const { gpus, nodes: closed } = troubles(nodes.values());
  if (gpus.length === 0 && closed.length === 0) {
    return section('Problems', { class: 'panel' }, h('p', { class: 'quiet' }, nodes.size > 0 ? '✓ All GPUs are healthy, none is cordoned, and no node has problems.' : synced ? 'There are no nodes.' : 'Loading.'));
  }
  const all = (list, state, noun) => list.length > MOST && h('p', null, link(format('overview', {}, { state }), `All ${count(list.length, noun)}`));
  return section('Problems', { class: 'panel attention' },
    gpus.length > 0 && [
      h('h3', null, count(gpus.length, 'GPU')),
      h('ul', { class: 'plain lines' }, gpus.slice(0, MOST).map(({ node, gpu }) =>
        h('li', { key: gpu.uuid }, healthBadge(gpu), ' ', gpuName(gpu.uuid), ' on ', nodeName(node.name), h('span', { class: 'quiet' }, ` ${troubleText(gpu)}`)))),
      all(gpus, 'problems', 'GPU'),
    ],
    closed.length > 0 && [
      h('h3', null, count(closed.length, 'node')),
      h('ul', { class: 'plain lines' }, closed.slice(0, MOST).map(node =>
        h('li', { key: node.name }, nodeName(node.name), h('span', { class: 'quiet' }, ` ${node.problems[0] ?? 'takes no pods'}`)))),
      all(closed, 'problems', 'node'),
    ]);
}

function waitingPanel(cluster, now) {
  const pods = cluster.waiting();
  const reserved = cluster.pods.size - pods.length;
  const oldest = pods.sort(waitingOrder('age')).slice(0, MOST);
  return section('Waiting pods', { class: 'panel' },
    pods.length === 0 && h('p', { class: 'quiet' }, cluster.synced ? 'No pod waits for GPUs.' : 'Loading.'),
    h('ul', { class: 'plain lines' }, oldest.map(pod =>
      h('li', { key: pod.uid }, link(podLink(pod.namespace, pod.name), pod.name, { class: 'name' }),
        h('span', { class: 'quiet' }, ` ${[pod.namespace, pod.asks, ageSince(pod.created, now)].filter(Boolean).join(' · ')}`),
        h('span', { class: 'line' }, pod.verdict || pod.reason || '')))),
    (pods.length > MOST || reserved > 0) && h('p', null, link(format('waiting'), `All ${count(pods.length, 'waiting pod')}`),
      reserved > 0 && h('span', { class: 'quiet' }, `, ${number(reserved)} on their way to a node`)));
}

function foundPanel(cluster, q) {
  const groups = find(cluster, q);
  if (!q.trim()) return undefined;
  return section('Found', { class: 'panel found' },
    groups.length === 0 && h('p', { class: 'quiet' }, 'Nothing has all these words in its name.'),
    h('dl', null, groups.map(({ kind, found, more }) => [
      h('dt', null, kind),
      h('dd', null, found.map(({ name, href, on }) => h('span', { class: 'hit' }, link(href, name), on && h('span', { class: 'quiet' }, ` ${on}`))), more && h('span', { class: 'quiet' }, 'and more')),
    ])));
}

export function overview(app) {
  let list;
  let top;
  let settings;

  function draw() {
    const { cluster } = app;
    render(top,
      h('h1', { tabindex: '-1', class: 'visually-hidden' }, 'Overview'),
      foundPanel(cluster, settings.q),
      // A search is for nodes and what is on them: nothing else is in the way.
      !settings.q.trim() && [
        tiles(cluster, app.now()), charts(app),
        h('div', { class: 'columns' }, attention(cluster), waitingPanel(cluster, app.now())),
      ]);
  }

  return {
    title: 'Overview',
    filters: ['namespace', 'model', 'state'],
    show(parent, names, shown) {
      settings = shown;
      top = document.createElement('div');
      const nodes = document.createElement('section');
      nodes.setAttribute('aria-label', 'Nodes');
      parent.replaceChildren(top, nodes);
      draw();
      list = new NodeList(app, nodes);
      list.change(settings);
    },
    change(shown) {
      settings = shown;
      draw();
      list.change(settings);
    },
    update(changed) {
      draw();
      list.update(changed.nodes);
    },
    move: by => list.move(by),
    focus: name => list.focus(name),
    close: () => list.close(),
  };
}
