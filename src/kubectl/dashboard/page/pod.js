// One pod: where its shares are and what it uses, or why it waits and what would help.

import { h, render } from './dom.js';
import { Explanation } from './explanation.js';
import { ageSince, number, quoted, shortIds } from './format.js';
import { usageNote } from './gpu.js';
import {
  badge,
  bar,
  command,
  figures,
  gpuName,
  namespaceName,
  nodeName,
  requestedMemory,
  section,
  table,
  usedCores,
  usedMemory,
} from './parts.js';

function shares(app, entries, isIt) {
  const usageOf = name => app.usage.of(name);
  const hasUsage = entries.some(({ name }) => usageOf(name).usage);
  const rows = entries.flatMap(({ name, node }) => {
    const names = shortIds(node.gpus.map(gpu => gpu.uuid));
    return node.gpus.flatMap((gpu, at) =>
      gpu.shares.filter(isIt).map(share => {
        const used = usageOf(name).usage?.ofShare(gpu.uuid, share) ?? {};
        const cells = [
          nodeName(name),
          gpuName(gpu.uuid, names[at]),
          gpu.model ?? '–',
          share.container,
          share.kind,
          requestedMemory(share),
          number(share.cores),
        ];
        return hasUsage ? [...cells, usedMemory(used.memoryMi), usedCores(used.cores)] : cells;
      }),
    );
  });
  if (rows.length === 0) return undefined;
  const titles = ['Node', 'GPU', 'Model', 'Container', 'Kind', 'Memory held', 'Cores held'];
  if (hasUsage) titles.push('Memory used', 'Compute used');
  return section(
    'Shares',
    { class: 'panel' },
    entries.slice(0, 1).map(({ name }) => usageNote(usageOf(name))),
    table('Shares of the pod', titles, rows),
    entries.flatMap(({ name, node }) =>
      node.gpus.filter(gpu => gpu.shares.some(isIt)).map(gpu => bars(gpu, usageOf(name).usage, isIt)),
    ),
  );
}

/** What the pod has of a GPU beside the others there. */
function bars(gpu, usage, isIt) {
  const options = { usage, isDim: pod => !isIt(pod) };
  return h(
    'div',
    { key: gpu.uuid, class: 'bars' },
    h('span', { class: 'what' }, gpuName(gpu.uuid), ' memory'),
    bar(gpu, 'memoryMi', options),
    h('span', { class: 'figures' }, figures(gpu, 'memoryMi')),
    h('span', { class: 'what' }, 'Cores'),
    bar(gpu, 'cores', options),
    h('span', { class: 'figures' }, figures(gpu, 'cores')),
  );
}

function reserved(entries, isIt) {
  const rows = entries.flatMap(({ name, node }) =>
    node.reservations
      .filter(isIt)
      .map(one => [nodeName(name), gpuName(one.uuid), requestedMemory(one), number(one.cores)]),
  );
  if (rows.length === 0) return undefined;
  return section(
    'Reserved',
    { class: 'panel' },
    h('p', null, "The pod is bound, and the node hasn't reported its allocation yet."),
    table('Reservations', ['Node', 'GPU', 'Memory', 'Cores'], rows),
  );
}

/** What is known of a pod that waits without asking the cluster further. */
function waiting(pod, now) {
  const facts = [
    ['Requests', pod.asks || '–'],
    pod.models.length > 0 && ['Models', pod.models.join(', ')],
    ['Waits for', ageSince(pod.created, now) || '–'],
    ['Priority', number(pod.priority)],
    ['Nodes with GPUs for it now', number(pod.fitting)],
    pod.node && ['Bound to', nodeName(pod.node)],
    pod.nominated && ['Nominated', [nodeName(pod.nominated), ', where pods are being evicted for it']],
    ['Divvy', pod.verdict || '–'],
    ['kube-scheduler', pod.reason ?? "hasn't said anything yet"],
  ].filter(Boolean);
  return section(
    pod.phase === 'bound' ? 'On its way' : 'Waits for GPUs',
    { class: 'panel' },
    h(
      'dl',
      null,
      facts.map(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
    ),
  );
}

/** The view of one pod. */
export function podView(app, names) {
  const { namespace, name } = names;
  const isIt = one => one.pod === name && one.namespace === namespace;
  const title = `${namespace}/${name}`;
  let parent;
  const explanation = new Explanation(app, names, () => draw());

  /** Whether the page has to ask: for a pod that holds shares the nodes have already told all. */
  const isOpen = entries => !entries.some(({ node }) => node.gpus.some(gpu => gpu.shares.some(isIt)));

  function draw() {
    const { cluster } = app;
    const entries = cluster.nodesOfPod(namespace, name);
    const pod = cluster.pod(namespace, name);
    app.usage.watch(entries.map(entry => entry.name));
    const needsAnswer = isOpen(entries) && (cluster.synced || pod);
    if (needsAnswer) explanation.ensure(pod);
    const state =
      entries.length > 0 && !isOpen(entries)
        ? badge('good', 'Holds GPUs')
        : pod
          ? badge('warn', pod.phase === 'bound' ? 'Bound' : 'Waiting')
          : undefined;
    render(
      parent,
      h('h1', { tabindex: '-1' }, name),
      h(
        'p',
        { class: 'lead' },
        state,
        h('span', { class: 'fact' }, 'Namespace ', namespaceName(namespace)),
        entries.map(entry => h('span', { class: 'fact' }, 'Node ', nodeName(entry.name))),
      ),
      pod && waiting(pod, app.now()),
      shares(app, entries, isIt),
      reserved(entries, isIt),
      needsAnswer ? explanation.draw(pod) : !cluster.synced && h('p', null, 'Not loaded yet.'),
      entries.length > 0 &&
        section(
          'On the command line',
          { class: 'panel' },
          command(`kubectl describe pod -n ${quoted(namespace)} ${quoted(name)}`),
        ),
    );
  }

  return {
    title,
    show(element) {
      parent = element;
      draw();
    },
    update: draw,
    close: () => explanation.close(),
  };
}
