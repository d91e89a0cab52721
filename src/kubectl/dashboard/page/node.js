// One node: its GPUs, what is wrong with it, and what it has been doing since the page was opened.

import { chart, roundUp } from './chart.js';
import { h, render } from './dom.js';
import { ageSince, clock, count, dayAndClock, memory, number, quoted, shortIds } from './format.js';
import { findings, gpuDetails, usageNote } from './gpu.js';
import {
  badge,
  barLegend,
  command,
  coresOf,
  gpuName,
  heldOf,
  namespaceName,
  podName,
  requestedMemory,
  section,
  sumBar,
  table,
} from './parts.js';

/** Changes that are shown at first. */
const MOST_CHANGES = 50;

function lead({ node, summary }) {
  return h(
    'p',
    { class: 'lead' },
    node.takesPods ? badge('good', 'Takes pods') : badge('off', 'Takes no pods'),
    h('span', { class: 'fact' }, node.tier ? `Isolation tier ${node.tier}` : 'Isolation tier not reported'),
    h('span', { class: 'fact' }, `${number(summary.healthy)} of ${count(summary.listed, 'GPU')} healthy`),
    h('span', { class: 'fact' }, count(summary.holding, 'pod')),
    node.clique && h('span', { class: 'fact' }, `NVLink clique ${node.clique}`),
    node.ledgerRevision !== undefined && h('span', { class: 'fact' }, `Ledger revision ${node.ledgerRevision}`),
  );
}

function sums({ node, summary }) {
  const { oversubscription } = node;
  const one = (title, sum, text, reserved) =>
    h(
      'div',
      { class: 'tile' },
      h('h2', null, title),
      h('p', { class: 'figure' }, text),
      sumBar(sum),
      h('p', { class: 'quiet' }, reserved),
    );
  const rest = (sum, format) => `${format(sum.reserved)} reserved, ${format(sum.free)} free`;
  return h(
    'div',
    { class: 'tiles' },
    one('Memory held', summary.memory, heldOf(summary.memory), rest(summary.memory, memory)),
    one('Cores held', summary.cores, coresOf(summary.cores), rest(summary.cores, number)),
    oversubscription &&
      one(
        'Host memory held',
        { reserved: 0, ...oversubscription.hostMemoryMi },
        heldOf(oversubscription.hostMemoryMi),
        `GPU memory is oversubscribed to ${oversubscription.memoryScale} %`,
      ),
  );
}

function problems({ problems }) {
  if (problems.length === 0) return undefined;
  return section(
    'Problems',
    { class: 'panel attention' },
    h(
      'ul',
      { class: 'plain' },
      problems.map(text => h('li', null, text)),
    ),
  );
}

function reservations({ reservations }) {
  if (reservations.length === 0) return undefined;
  const rows = reservations.map(one => [
    podName(one),
    namespaceName(one.namespace),
    gpuName(one.uuid),
    requestedMemory(one),
    number(one.cores),
  ]);
  return section(
    'Reserved for pods on their way',
    { class: 'panel' },
    table('Reservations', ['Pod', 'Namespace', 'GPU', 'Memory', 'Cores'], rows),
  );
}

function links({ gpus }, names) {
  if (gpus.length < 2 || !gpus.some(gpu => gpu.topology)) return undefined;
  const rows = gpus.map((gpu, at) => [
    gpuName(gpu.uuid, names[at]),
    ...names.map((_, other) => (gpu.topology ?? '').split(/\s+/)[other] ?? '–'),
  ]);
  return section(
    'Links between GPUs',
    { class: 'panel' },
    h('p', { class: 'quiet' }, 'As nvidia-smi topo -m has them.'),
    table('Links between GPUs', ['GPU', ...names], rows),
  );
}

function conditions({ conditions }, now) {
  if (conditions.length === 0) return undefined;
  const rows = conditions.map(({ type, status, reason, message, since }) => [
    type,
    status,
    reason,
    message || '–',
    h('time', { datetime: since, title: dayAndClock(since) }, ageSince(since, now) || '–'),
  ]);
  return section(
    'Conditions',
    { class: 'panel' },
    table('Conditions', ['Type', 'Status', 'Reason', 'Message', 'Since'], rows),
  );
}

function history(app, { name, node, summary }, isAll, showAll) {
  const history = app.recorder.node(name);
  const now = app.recorder.seconds(app.now());
  const since = clock(app.opened);
  const one = (title, value, most, mostText, text) =>
    chart({
      title,
      series: [{ name: 'Now', text, points: history.points(value) }],
      most: Math.max(1, most),
      mostText,
      now,
      since,
    });
  const mostPods = roundUp(1 + Math.max(...history.points(2).map(([, pods]) => pods)));
  const all = app.recorder.changesOf(name);
  const shown = isAll ? all : all.slice(0, MOST_CHANGES);
  const item = change => h('li', null, h('time', { class: 'mono' }, clock(change.at)), ' ', change.text);
  return section(
    'Since the page was opened',
    { class: 'panel' },
    h(
      'div',
      { class: 'charts' },
      one('Memory held', 0, summary.memory.capacity, memory(summary.memory.capacity), memory(summary.memory.held)),
      one('Cores held', 1, summary.cores.capacity, number(summary.cores.capacity), number(summary.cores.held)),
      one('Pods', 2, mostPods, number(mostPods), number(summary.holding)),
    ),
    h('h3', null, 'Changes'),
    all.length === 0
      ? h('p', { class: 'quiet' }, 'None so far.')
      : h('ul', { class: 'plain changes' }, shown.map(item)),
    all.length > shown.length && h('button', { type: 'button', onclick: showAll }, `Show all ${number(all.length)}`),
  );
}

/** The view of one node. */
export function nodeView(app, { node: name }) {
  let parent;
  let isAll = false;
  function draw() {
    const entry = app.cluster.nodes.get(name);
    app.usage.watch(entry ? [name] : []);
    if (!entry) {
      const past = app.recorder.changesOf(name).map(change => h('li', null, `${clock(change.at)} ${change.text}`));
      render(
        parent,
        h('h1', { tabindex: '-1' }, name),
        h('p', null, app.cluster.synced ? 'There is no such node with GPUs.' : 'Not loaded yet.'),
        h('ul', { class: 'plain' }, past),
      );
      return;
    }
    const { node } = entry;
    const names = shortIds(node.gpus.map(gpu => gpu.uuid));
    const answer = app.usage.of(name);
    render(
      parent,
      h('h1', { tabindex: '-1' }, name),
      lead(entry),
      problems(node),
      findings(answer.usage?.findings),
      sums(entry),
      section(
        'GPUs',
        { class: 'gpus' },
        barLegend(),
        usageNote(answer),
        node.gpus.length === 0 ? h('p', { class: 'quiet' }, 'The node reports no GPUs.') : undefined,
        node.gpus.map((gpu, at) => gpuDetails(gpu, names[at], answer.usage)),
      ),
      reservations(node),
      history(app, entry, isAll, () => ((isAll = true), draw())),
      links(node, names),
      conditions(node, app.now()),
      section(
        'On the command line',
        { class: 'panel' },
        command(`kubectl divvy inspect ${quoted(name)} -o wide`),
        command(`kubectl describe node ${quoted(name)}`),
      ),
    );
  }
  return { title: name, show: element => ((parent = element), draw()), update: draw };
}
