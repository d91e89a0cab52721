// One node: its GPUs, how they are linked, and what is wrong with it.

import { h } from './dom.js';
import { ageSince, count, dayAndClock, memory, number, shortIds } from './format.js';
import { findings, gpuDetails, usageNote } from './gpu.js';
import { absent, amountTile, badge, barLegend, gpuName, section, table } from './parts.js';
import { objectView } from './views.js';

function lead({ node, summary }) {
  return h(
    'p.lead',
    node.takesPods ? badge('good', 'Takes pods') : badge('off', 'Takes no pods'),
    h('span.fact', node.tier ? `Isolation tier ${node.tier}` : 'Isolation tier not reported'),
    h('span.fact', `${number(summary.healthy)} of ${count(summary.listed, 'GPU')} healthy`),
    h('span.fact', count(summary.holding, 'pod')),
    node.clique && h('span.fact', `NVLink clique ${node.clique}`),
    node.ledgerRevision !== undefined && h('span.fact', `Ledger revision ${node.ledgerRevision}`),
  );
}

function sums({ node, summary }) {
  const { memoryScale, hostMemoryMi } = node.oversubscription ?? {};
  return h(
    'div.tiles',
    amountTile('Memory held', summary.memory, memory),
    amountTile('Cores held', summary.cores, number),
    hostMemoryMi && amountTile(`Host memory held, GPU memory scaled to ${memoryScale} %`, hostMemoryMi, memory),
  );
}

function problems({ problems }) {
  if (problems.length === 0) return undefined;
  const items = problems.map(text => h('li', text));
  return section('Problems', 'panel.attention', h('ul.plain', items));
}

function links({ gpus }, ids) {
  if (gpus.length < 2 || !gpus.some(gpu => gpu.topology)) return undefined;
  const rows = gpus.map((gpu, at) => ({ gpu, id: ids[at], words: (gpu.topology ?? '').split(/\s+/) }));
  const others = ids.map((id, other) => [id, ({ words }) => words[other] ?? '–']);
  return section(
    'Links between GPUs',
    'panel',
    h('p.quiet', 'As nvidia-smi topo -m has them.'),
    table('Links between GPUs', [['GPU', ({ gpu, id }) => gpuName(gpu.uuid, id)], ...others], rows),
  );
}

function conditions({ conditions }, now) {
  if (conditions.length === 0) return undefined;
  const age = since => h('time', { datetime: since, title: dayAndClock(since) }, ageSince(since, now) || '–');
  const columns = [
    ['Type', ({ type }) => type],
    ['Status', ({ status }) => status],
    ['Reason', ({ reason }) => reason],
    ['Message', ({ message }) => message || '–'],
    ['Since', ({ since }) => age(since)],
  ];
  return section('Conditions', 'panel', table('Conditions', columns, conditions));
}

/** The view of one node. */
export function nodeView(app, { node: name }) {
  function describe() {
    const entry = app.cluster.nodes.get(name);
    app.usage.watch(entry ? [name] : []);
    if (!entry) return absent(app.cluster, name, 'There is no such node with GPUs.');
    const { node } = entry;
    const ids = shortIds(node.gpus.map(gpu => gpu.uuid));
    const answer = app.usage.of(name);
    return [
      h('h1', { tabindex: '-1' }, name),
      lead(entry),
      problems(node),
      findings(answer.usage?.findings),
      sums(entry),
      h('h2.above', 'GPUs'),
      barLegend(),
      usageNote(answer),
      node.gpus.length === 0 && h('p.quiet', 'The node reports no GPUs.'),
      node.gpus.map((gpu, at) => gpuDetails(gpu, ids[at], answer.usage)),
      links(node, ids),
      conditions(node, app.now()),
    ];
  }
  return objectView(name, describe);
}
