// Pods that hold GPUs or have some reserved.

import { h } from './dom.js';
import { podFilter, podOrder } from './filter.js';
import { count, memory, number, orderOf } from './format.js';
import { listView } from './views.js';
import { badge, namespaceName, nodeName, rowName } from './parts.js';
import { podLink } from './route.js';

const COLUMNS = [
  {
    key: 'name',
    title: 'Pod',
    sortable: true,
    cell: (pod, isStop) => [
      rowName(podLink(pod.namespace, pod.name), pod.name, isStop),
      pod.reserved && badge('info', 'Reserved'),
    ],
  },
  { key: 'namespace', title: 'Namespace', cell: pod => namespaceName(pod.namespace) },
  { key: 'node', title: 'Node', sortable: true, cell: pod => nodeName(pod.node) },
  { key: 'gpus', title: 'GPUs', sortable: true, amount: true, cell: pod => number(pod.gpus) },
  { key: 'memory', title: 'Memory', sortable: true, amount: true, cell: pod => memory(pod.memoryMi) },
  { key: 'cores', title: 'Cores', sortable: true, amount: true, cell: pod => number(pod.cores) },
];

/** The pods of a node. What they are sorted by takes a while for tens of thousands, so it is made here, once each. */
function podsOf({ summary }) {
  for (const pod of summary.pods) pod.order ||= orderOf(`${pod.namespace}\n${pod.name}`);
  return summary.pods;
}

function heading({ nodes, totals }, pods, { namespace }) {
  const sum = totals.namespaces.get(namespace);
  const held = sum && ` ${namespace}: ${count(sum.pods, 'pod')}, ${memory(sum.memoryMi)}, ${number(sum.cores)} cores.`;
  const none = nodes.size === 0 ? 'No node has reported GPUs.' : 'No pod matches.';
  return [
    h('h1', { tabindex: '-1' }, 'Pods with GPUs'),
    h('p.lead', pods.length === 0 ? none : `${count(pods.length, 'pod')}.`, held),
  ];
}

export const podsView = app =>
  listView(app, {
    title: 'Pods with GPUs',
    label: 'Pods with GPUs',
    kind: 'pod',
    filters: ['namespace', 'model'],
    columns: COLUMNS,
    height: 36,
    key: pod => `${pod.node}\n${pod.uid}`,
    itemsOf: podsOf,
    nodeOf: pod => pod.node,
    keeps: settings => podFilter(settings, app.cluster.nodes),
    order: podOrder,
    heading: (pods, settings) => heading(app.cluster, pods, settings),
  });
