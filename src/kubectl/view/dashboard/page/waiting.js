// Pods that wait for GPUs, and pods on their way to a node.

import { h } from './dom.js';
import { waitingFilter, waitingOrder } from './filter.js';
import { ageSince, count, number } from './format.js';
import { listView } from './views.js';
import { namespaceName, nodeName, rowName } from './parts.js';
import { podLink } from './route.js';

const columns = app => [
  {
    key: 'name',
    title: 'Pod',
    sortable: true,
    cell: (pod, isStop) => [
      rowName(podLink(pod.namespace, pod.name), pod.name, isStop),
      h('span.quiet', namespaceName(pod.namespace)),
      pod.phase === 'bound' && pod.node && h('span.quiet', 'bound to ', nodeName(pod.node)),
    ],
  },
  {
    key: 'asks',
    title: 'Requests',
    cell: pod => [h('span.wrap', pod.asks || '–'), pod.models.length > 0 && h('span.quiet', pod.models.join(', '))],
  },
  {
    key: 'reasons',
    title: 'Why it waits',
    cell: pod => [
      pod.verdict && h('span', pod.verdict),
      pod.reason && h('span.wrap.quiet', `kube-scheduler: ${pod.reason}`),
    ],
  },
  { key: 'fitting', title: 'Nodes for it', sortable: true, amount: true, cell: pod => number(pod.fitting) },
  { key: 'priority', title: 'Priority', sortable: true, amount: true, cell: pod => number(pod.priority) },
  { key: 'age', title: 'Age', sortable: true, amount: true, cell: pod => ageSince(pod.created, app.now()) || '–' },
];

function heading(cluster, pods) {
  const bound = pods.filter(pod => pod.phase === 'bound').length;
  const onTheirWay = bound > 0 ? `, ${number(bound)} of them bound to a node that hasn't reported their GPUs yet` : '';
  const all = cluster.pods.size;
  const some = pods.length === all ? '' : ` of ${number(all)}`;
  const none = all === 0 ? 'No pod waits for GPUs.' : 'No pod matches the filters.';
  const text = `${count(pods.length, 'pod')}${some}${onTheirWay}. Open one to see what would help.`;
  return [h('h1', { tabindex: '-1' }, 'Waiting pods'), h('p.lead', pods.length === 0 ? none : text)];
}

export const waitingView = app =>
  listView(app, {
    title: 'Waiting pods',
    label: 'Waiting pods',
    kind: 'waiting',
    filters: ['namespace', 'model'],
    columns: columns(app),
    height: 72,
    key: pod => pod.uid,
    itemsOf: pod => [pod],
    keeps: waitingFilter,
    order: waitingOrder,
    heading: pods => heading(app.cluster, pods),
  });
