// One pod: where its shares are and what it uses, or why it waits and what would help.

import { h } from './dom.js';
import { Explanation } from './explanation.js';
import { ageSince, number, shortIds } from './format.js';
import { usageNote } from './gpu.js';
import {
  badge,
  gpuName,
  namespaceName,
  nodeName,
  requestedMemory,
  section,
  table,
  usedCores,
  usedMemory,
} from './parts.js';
import { objectView } from './views.js';

/** Where the pod's shares are, and what is reserved for it. */
function shares(app, entries, isIt) {
  const usageOf = node => app.usage.of(node.name).usage;
  const usedOf = ({ node, gpu, share }) => usageOf(node)?.ofShare(gpu.uuid, share) ?? {};
  const found = entries.flatMap(({ node }) => {
    const ids = shortIds(node.gpus.map(gpu => gpu.uuid));
    return node.gpus.flatMap((gpu, at) =>
      [...gpu.shares, ...gpu.reserved].filter(isIt).map(share => ({ node, gpu, id: ids[at], share })),
    );
  });
  if (found.length === 0) return undefined;
  const hasUsage = entries.some(({ node }) => usageOf(node));
  const columns = [
    ['Node', ({ node }) => nodeName(node.name)],
    ['GPU', ({ gpu, id }) => gpuName(gpu.uuid, id)],
    ['Model', ({ gpu }) => gpu.model ?? '–'],
    ['Container', ({ share }) => share.container ?? '–'],
    ['Kind', ({ share }) => share.kind ?? 'reserved'],
    ['Memory held', ({ share }) => requestedMemory(share)],
    ['Cores held', ({ share }) => number(share.cores)],
    hasUsage && ['Memory used', one => usedMemory(usedOf(one))],
    hasUsage && ['Compute used', one => usedCores(usedOf(one))],
  ];
  return section(
    'Shares',
    'panel',
    entries.some(({ node }) => node.reservations.some(isIt)) &&
      h('p', "What is reserved for it, its node hasn't reported as allocated yet."),
    usageNote(app.usage.of(entries[0].name)),
    table('Shares of the pod', columns, found),
  );
}

/** What is known of a pod that waits without asking the cluster further. */
function waiting(pod, now) {
  const facts = [
    ['Requests', pod.asks || '–'],
    ['Waits for', ageSince(pod.created, now) || '–'],
    ['Priority', number(pod.priority)],
    ['Nodes with GPUs for it now', number(pod.fitting)],
    pod.node && ['Bound to', nodeName(pod.node)],
    pod.nominated && ['Nominated', [nodeName(pod.nominated), ', where pods are being evicted for it']],
    ['Divvy', pod.verdict || '–'],
    ['kube-scheduler', pod.reason ?? "hasn't said anything yet"],
  ];
  const items = facts.filter(Boolean).map(([name, value]) => [h('dt', name), h('dd', value)]);
  return section(pod.phase === 'bound' ? 'On its way' : 'Waits for GPUs', 'panel', h('dl', items));
}

/** The view of one pod. */
export function podView(app, names) {
  const { namespace, name } = names;
  const isIt = one => one.pod === name && one.namespace === namespace;
  const explanation = new Explanation(app, names, () => view.update());
  const view = objectView(`${namespace}/${name}`, describe, () => explanation.close());

  function describe() {
    const { cluster } = app;
    const entries = cluster.nodesOfPod(namespace, name);
    const pod = cluster.pod(namespace, name);
    app.usage.watch(entries.map(entry => entry.name));
    // Of a pod that holds shares the nodes have already told all.
    const isHolder = entries.some(({ node }) => node.gpus.some(gpu => gpu.shares.some(isIt)));
    const needsAnswer = !isHolder && (cluster.synced || pod);
    if (needsAnswer) explanation.ensure(pod);
    return [
      h('h1', { tabindex: '-1' }, name),
      h(
        'p.lead',
        isHolder && badge('good', 'Holds GPUs'),
        !isHolder && pod && badge('warn', pod.phase === 'bound' ? 'Bound' : 'Waiting'),
        h('span.fact', 'Namespace ', namespaceName(namespace)),
        entries.map(entry => h('span.fact', 'Node ', nodeName(entry.name))),
      ),
      pod && waiting(pod, app.now()),
      shares(app, entries, isIt),
      needsAnswer ? explanation.draw(pod) : !cluster.synced && h('p', 'Not loaded yet.'),
    ];
  }

  return view;
}
