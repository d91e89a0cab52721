// One pod: where its shares are and what it uses, or why it waits and what would help.

import { groups } from './answers.js';
import { h, render } from './dom.js';
import { ageSince, count, exactMemory, memory, number, quoted, shortIds } from './format.js';
import { usageNote } from './gpu.js';
import {
  badge, bar, command, figures, gpuName, namespaceName, nodeName, podName, requestedMemory, section, table, usedCores, usedMemory,
} from './parts.js';

/** Nodes of a group that are shown at first, and with each further step. */
const STEP = 20;

function shares(app, entries, isIt) {
  const usageOf = name => app.usage.of(name);
  const hasUsage = entries.some(({ name }) => usageOf(name).usage);
  const rows = entries.flatMap(({ name, node }) => {
    const names = shortIds(node.gpus.map(gpu => gpu.uuid));
    return node.gpus.flatMap((gpu, at) => gpu.shares.filter(isIt).map(share => {
      const used = usageOf(name).usage?.ofShare(gpu.uuid, share) ?? {};
      const cells = [nodeName(name), gpuName(gpu.uuid, names[at]), gpu.model ?? '–', share.container, share.kind,
        requestedMemory(share), number(share.cores)];
      return hasUsage ? [...cells, usedMemory(used.memoryMi), usedCores(used.cores)] : cells;
    }));
  });
  if (rows.length === 0) return undefined;
  const titles = ['Node', 'GPU', 'Model', 'Container', 'Kind', 'Memory held', 'Cores held'];
  if (hasUsage) titles.push('Memory used', 'Compute used');
  return section('Shares', { class: 'panel' },
    entries.slice(0, 1).map(({ name }) => usageNote(usageOf(name))),
    table('Shares of the pod', titles, rows),
    entries.flatMap(({ name, node }) => node.gpus.filter(gpu => gpu.shares.some(isIt)).map(gpu => bars(gpu, usageOf(name).usage, isIt))));
}

/** What the pod has of a GPU beside the others there. */
function bars(gpu, usage, isIt) {
  const options = { usage, isDim: pod => !isIt(pod) };
  return h('div', { key: gpu.uuid, class: 'bars' },
    h('span', { class: 'what' }, gpuName(gpu.uuid), ' memory'), bar(gpu, 'memoryMi', options), h('span', { class: 'figures' }, figures(gpu, 'memoryMi')),
    h('span', { class: 'what' }, 'Cores'), bar(gpu, 'cores', options), h('span', { class: 'figures' }, figures(gpu, 'cores')));
}

function reserved(entries, isIt) {
  const rows = entries.flatMap(({ name, node }) => node.reservations.filter(isIt).map(one =>
    [nodeName(name), gpuName(one.uuid), requestedMemory(one), number(one.cores)]));
  if (rows.length === 0) return undefined;
  return section('Reserved', { class: 'panel' },
    h('p', null, 'The pod is bound, and the node hasn\'t reported its allocation yet.'),
    table('Reservations', ['Node', 'GPU', 'Memory', 'Cores'], rows));
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
    ['kube-scheduler', pod.reason ?? 'hasn\'t said anything yet'],
  ].filter(Boolean);
  return section(pod.phase === 'bound' ? 'On its way' : 'Waits for GPUs', { class: 'panel' },
    h('dl', null, facts.map(([name, value]) => [h('dt', null, name), h('dd', null, value)])));
}

function asks(document) {
  const containers = document.asks?.containers;
  if (!containers?.length) return undefined;
  const amount = value => (typeof value === 'number' ? exactMemory(value) : String(value ?? '–'));
  const rows = containers.map(one => [one.name, one.kind, number(one.cards), one.profile ?? '–', amount(one.memory),
    number(one.cores), one.exclusive ? 'yes' : 'no']);
  const wishes = Object.entries(document.asks.wishes ?? {}).map(([name, value]) => h('li', { class: 'mono' }, `${name}: ${value}`));
  return section('Requests', { class: 'panel' },
    table('Requests of the containers', ['Container', 'Kind', 'GPUs', 'MIG profile', 'Memory of each', 'Cores of each', 'Exclusive'], rows),
    wishes.length > 0 && [h('h3', null, 'Annotations'), h('ul', { class: 'plain' }, wishes)]);
}

function suggestions(list) {
  if (list.length === 0) return h('p', { class: 'quiet' }, 'No single change that would let the pod run was found.');
  return h('ol', { class: 'suggestions' }, list.map(({ text, command: line, node, pods = [], cards = [] }) =>
    h('li', null,
      h('p', null, String(text)),
      line && command(String(line)),
      (node || pods.length > 0 || cards.length > 0) && h('p', { class: 'quiet links' },
        node && ['Node ', nodeName(node)], pods.map(pod => [' Pod ', podName({ namespace: pod.namespace, pod: pod.name })]),
        cards.map(uuid => [' GPU ', gpuName(uuid)])))));
}

/** The view of one pod. */
export function podView(app, names) {
  const { namespace, name } = names;
  const isIt = one => one.pod === name && one.namespace === namespace;
  const title = `${namespace}/${name}`;
  /** Of the last time that the cluster was asked: `document` or `error`, and the time. */
  let answer;
  let asking;
  let parent;
  let isShown = false;
  const opened = new Set();
  const shown = new Map();

  async function ask() {
    asking?.abort();
    const own = (asking = new AbortController());
    draw();
    try {
      answer = { document: await app.ask('explain', { namespace, name }, own.signal), at: app.now() };
    } catch (error) {
      if (own.signal.aborted) return;
      answer = { error: error.message, at: app.now() };
    }
    asking = undefined;
    if (isShown) draw();
  }

  function gpusOf(node) {
    const ids = shortIds((node.cards ?? []).map(card => card.uuid));
    const rows = (node.cards ?? []).map((card, at) => [gpuName(card.uuid, ids[at]), card.model ?? '–',
      `${memory(card.memoryMi?.free ?? 0)} of ${memory(card.memoryMi?.capacity ?? 0)}`,
      `${number(card.cores?.free ?? 0)} of ${number(card.cores?.capacity ?? 0)}`,
      number(card.pods ?? 0), card.chosen ? 'would be chosen' : (card.reason ?? 'would do by itself')]);
    return rows.length > 0 ? table(`GPUs of ${node.name}`, ['GPU', 'Model', 'Memory free', 'Cores free', 'Pods', 'Reason'], rows)
      : h('p', { class: 'quiet' }, 'The node reports no GPUs.');
  }

  function groupOf(group) {
    const most = shown.get(group.key) ?? STEP;
    const toggle = (key, event) => {
      if (event.target.open === opened.has(key)) return;
      if (event.target.open) opened.add(key);
      else opened.delete(key);
      draw();
    };
    const nodes = opened.has(group.key) && group.nodes.slice(0, most).map(node => {
      const key = `${group.key}\n${node.name}`;
      return h('details', { key, class: 'answer', open: opened.has(key), ontoggle: event => toggle(key, event) },
        h('summary', null, node.name, node.reason !== group.reason && h('span', { class: 'quiet' }, node.reason),
          node.container && h('span', { class: 'quiet' }, `container ${node.container}`)),
        opened.has(key) && [h('p', null, nodeName(node.name), node.closed && h('span', { class: 'quiet' }, ` takes no pods: ${node.closed}`)), gpusOf(node)]);
    });
    return h('details', { key: group.key, class: 'group', open: opened.has(group.key), ontoggle: event => toggle(group.key, event) },
      h('summary', null, h('b', null, `${count(group.nodes.length, 'node')}: `), group.reason ?? group.title,
        group.reason && h('span', { class: 'quiet' }, group.title)),
      nodes,
      opened.has(group.key) && group.nodes.length > most && h('button', { type: 'button',
        onclick: () => (shown.set(group.key, most + 5 * STEP), draw()) }, `Show more of ${number(group.nodes.length)}`));
  }

  function explanation(pod) {
    const status = asking ? h('p', { class: 'quiet', role: 'status' }, 'Asking the nodes; this takes up to 10 seconds on large clusters.')
      : answer && h('p', { class: 'quiet' }, `Asked ${ageSince(new Date(answer.at).toISOString(), app.now())} ago. `,
        h('button', { type: 'button', onclick: ask }, 'Ask again'));
    if (!answer) return status;
    if (answer.error) return [h('p', { class: 'note bad-note' }, `The explanation failed: ${answer.error}`), status];
    const { document } = answer;
    const nodes = document.nodes ?? [];
    if (!['waiting', 'bound'].includes(document.state?.phase)) {
      return [h('p', null, String(document.verdict ?? '')), status, asks(document)];
    }
    return [
      section('What would help', { class: 'panel attention' },
        pod?.verdict !== document.verdict && h('p', null, String(document.verdict ?? '')),
        (document.remarks ?? []).map(remark => h('p', { class: 'note' }, String(remark))),
        document.fitting > 0 ? h('p', null, 'There are GPUs for it. If it keeps waiting, kubectl describe pod says what else it lacks.')
          : suggestions(document.suggestions ?? []),
        command(`kubectl divvy explain -n ${quoted(namespace)} ${quoted(name)}`),
        command(`kubectl describe pod -n ${quoted(namespace)} ${quoted(name)}`), status),
      asks(document),
      nodes.length > 0 && section('Answers of the nodes', { class: 'panel' }, groups(nodes).map(groupOf)),
    ];
  }

  /** Whether the page has to ask: for a pod that holds shares the nodes have already told all. */
  const isOpen = entries => !entries.some(({ node }) => node.gpus.some(gpu => gpu.shares.some(isIt)));

  function draw() {
    const { cluster } = app;
    const entries = cluster.nodesOfPod(namespace, name);
    const pod = cluster.pod(namespace, name);
    app.usage.watch(entries.map(entry => entry.name));
    const needsAnswer = isOpen(entries) && (cluster.synced || pod);
    if (needsAnswer && !answer && !asking) {
      ask();
      return;
    }
    const state = entries.length > 0 && !isOpen(entries) ? badge('good', 'Holds GPUs')
      : pod ? badge('warn', pod.phase === 'bound' ? 'Bound' : 'Waiting') : undefined;
    render(parent,
      h('h1', { tabindex: '-1' }, name),
      h('p', { class: 'lead' }, state, h('span', { class: 'fact' }, 'Namespace ', namespaceName(namespace)),
        entries.map(entry => h('span', { class: 'fact' }, 'Node ', nodeName(entry.name)))),
      pod && waiting(pod, app.now()),
      shares(app, entries, isIt),
      reserved(entries, isIt),
      needsAnswer ? explanation(pod) : !cluster.synced && h('p', null, 'Not loaded yet.'));
  }

  return {
    title,
    show(element) {
      [parent, isShown] = [element, true];
      draw();
    },
    update: draw,
    close() {
      isShown = false;
      asking?.abort();
    },
  };
}
