// The table of nodes, with a bar for each of their GPUs.

import { h } from './dom.js';
import { nodeFilter, nodeOrder } from './filter.js';
import { count, memory, number, shortModel } from './format.js';
import { usageNote } from './gpu.js';
import { hueOf } from './hue.js';
import { badge, barLegend, healthKind, link, meter, rowName, smallBars } from './parts.js';
import { format, nodeLink } from './route.js';

/** GPUs of a node that are shown; its own view has all of them. */
const MOST_GPUS = 16;
/** Namespaces that the legend of the bars names. */
const MOST_NAMESPACES = 12;

function nameCell({ name, node, summary }, isStop) {
  const models = [...summary.models].map(([model, gpus]) => `${gpus} × ${shortModel(model)}`).join(', ');
  return [
    rowName(nodeLink(name), name, isStop),
    models && h('span.quiet', models),
    node.tier && h('span.quiet', `tier ${node.tier}`),
  ];
}

function gpuCell({ node, summary }, usage, settings) {
  const { namespace, model } = settings;
  const shown = node.gpus.slice(0, MOST_GPUS);
  const one = gpu => {
    const isDim = pod => (namespace && pod.namespace !== namespace) || (model && gpu.model !== model);
    return h('span', { key: gpu.uuid, class: `gpu-bars ${healthKind(gpu)}` }, smallBars(gpu, { usage, isDim }));
  };
  const columns = shown.length > 4 ? Math.ceil(shown.length / 2) : Math.max(1, shown.length);
  const healthy = `${number(summary.healthy)} of ${count(summary.listed, 'GPU')} healthy`;
  return [
    h('span.visually-hidden', healthy),
    h('span.gpu-grid', { style: { '--columns': String(columns) }, title: healthy }, shown.map(one)),
  ];
}

/** What is to be known of a node's state in few words. */
function stateCell({ node, summary }) {
  const marks = [];
  if (!node.takesPods) marks.push(badge('off', 'Takes no pods'));
  if (summary.unhealthy > 0) marks.push(badge('bad', `${number(summary.unhealthy)} not healthy`));
  if (summary.cordoned > 0) marks.push(badge('off', `${number(summary.cordoned)} cordoned`));
  if (node.reservations.length > 0) marks.push(badge('info', `${number(node.reservations.length)} reserved`));
  const [problem] = node.problems;
  if (marks.length === 0 && !problem) return h('span.quiet', 'Takes pods');
  return [marks, problem && h('span.quiet', { title: problem }, problem)];
}

const columns = app => [
  { key: 'name', title: 'Node', sortable: true, cell: nameCell },
  {
    key: 'gpus',
    title: 'GPUs',
    sortable: true,
    amount: true,
    cell: (entry, isStop, settings) => gpuCell(entry, app.usage.of(entry.name).usage, settings),
  },
  { key: 'memory', title: 'Memory held', sortable: true, amount: true, cell: ({ summary }) => meter(summary.memory) },
  { key: 'cores', title: 'Cores held', sortable: true, amount: true, cell: ({ summary }) => meter(summary.cores) },
  {
    key: 'free',
    title: 'Memory free',
    sortable: true,
    amount: true,
    cell: ({ summary }) => memory(summary.memory.free),
  },
  { key: 'pods', title: 'Pods', sortable: true, amount: true, cell: ({ summary }) => number(summary.holding) },
  { key: 'problems', title: 'State', sortable: true, amount: true, cell: stateCell },
];

/** The heading of the table: how many nodes there are, and what their bars mean. */
export function nodesHeading({ cluster, usage }, entries, settings) {
  const { nodes, synced, totals } = cluster;
  const all = count(nodes.size, 'node');
  let none;
  if (nodes.size === 0)
    none = synced ? 'No node has reported GPUs. kubectl divvy doctor says what is missing.' : 'Loading.';
  else if (entries.length === 0) none = 'No node matches the search and the filters.';
  const failed = entries.map(({ name }) => usage.of(name)).find(({ error }) => error);
  return [
    h(
      'div.list-title',
      h('h2', 'Nodes'),
      h('span.quiet', entries.length === nodes.size ? all : `${number(entries.length)} of ${all}`),
    ),
    none ? h('p.empty', none) : [barLegend(namespaces(totals, settings)), usageNote(failed ?? {})],
  ];
}

/** The namespaces and their colours, where there are few. */
function namespaces(totals, settings) {
  const names = [...totals.namespaces.keys()].sort();
  if (names.length > MOST_NAMESPACES) return undefined;
  return names.map(namespace =>
    h(
      'span.legend',
      h('span.chip.held', { style: { '--hue': String(hueOf(namespace)) }, 'aria-hidden': 'true' }),
      link(format('overview', {}, { ...settings, namespace }), namespace),
    ),
  );
}

/** The nodes as a list of `listView`. */
export const nodeList = app => ({
  label: 'Nodes',
  kind: 'node',
  filters: ['namespace', 'model', 'state'],
  columns: columns(app),
  height: 68,
  key: entry => entry.name,
  itemsOf: entry => [entry],
  nodeOf: entry => entry.name,
  keeps: nodeFilter,
  order: nodeOrder,
  watched: entry => entry.name,
});
