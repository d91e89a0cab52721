// Pods that hold GPUs or have some reserved.

import { h, render } from './dom.js';
import { count, memory, number, orderOf } from './format.js';
import { nextSort, podFilter, podOrder } from './filter.js';
import { badge, namespaceName, nodeName } from './parts.js';
import { podLink } from './route.js';
import { Rows } from './rows.js';
import { Selection } from './selection.js';

const HEIGHT = 36;

/** The pods of a node. What they are sorted by takes a while for tens of thousands, so it is made here, once each. */
function podsOf({ summary }) {
  for (const pod of summary.pods) pod.order ||= orderOf(`${pod.namespace}\n${pod.name}`);
  return summary.pods;
}

export function podsView(app) {
  const selection = new Selection(podsOf, pod => pod.node);
  let rows;
  let settings;
  let heading;
  const columns = [
    {
      key: 'name',
      title: 'Pod',
      sortable: true,
      cell: (pod, isStop) => [
        h('a', { href: podLink(pod.namespace, pod.name), class: 'name', tabindex: isStop ? '0' : '-1' }, pod.name),
        pod.reserved && badge('info', 'Reserved'),
      ],
    },
    { key: 'namespace', title: 'Namespace', cell: pod => namespaceName(pod.namespace) },
    { key: 'node', title: 'Node', sortable: true, cell: pod => nodeName(pod.node) },
    { key: 'gpus', title: 'GPUs', sortable: true, amount: true, cell: pod => number(pod.gpus) },
    { key: 'memory', title: 'Memory', sortable: true, amount: true, cell: pod => memory(pod.memoryMi) },
    { key: 'cores', title: 'Cores', sortable: true, amount: true, cell: pod => number(pod.cores) },
  ];

  function draw() {
    const { totals, nodes } = app.cluster;
    const sum = totals.namespaces.get(settings.namespace);
    const held =
      sum && ` ${settings.namespace}: ${count(sum.pods, 'pod')}, ${memory(sum.memoryMi)}, ${number(sum.cores)} cores.`;
    const none = nodes.size === 0 ? 'No node has reported GPUs.' : 'No pod matches.';
    render(
      heading,
      h('h1', { tabindex: '-1' }, 'Pods with GPUs'),
      h('p', { class: 'lead' }, selection.items.length === 0 ? none : `${count(selection.items.length, 'pod')}.`, held),
    );
    rows.show(selection.items, 'Pods with GPUs', settings.sort);
  }

  function change(shown) {
    settings = shown;
    selection.reset(app.cluster.nodes, podFilter(settings, app.cluster.nodes), podOrder(settings.sort));
    draw();
  }

  return {
    title: 'Pods with GPUs',
    filters: ['namespace', 'model'],
    show(parent, names, shown) {
      heading = document.createElement('div');
      const list = document.createElement('div');
      list.className = 'list pod-list';
      parent.replaceChildren(heading, list);
      app.usage.watch([]);
      rows = new Rows(list, {
        columns,
        height: HEIGHT,
        key: pod => `${pod.node}\n${pod.uid}`,
        sorted: key => app.change({ sort: nextSort(settings.sort, key) }),
      });
      change(shown);
    },
    change,
    update(changed) {
      selection.refresh(app.cluster.nodes, changed.nodes);
      draw();
    },
    move: by => rows.move(by),
    focus: key => rows.focusKey(key),
    close: () => rows.close(),
  };
}
