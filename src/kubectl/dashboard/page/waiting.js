// Pods that wait for GPUs, and pods on their way to a node.

import { h, render } from './dom.js';
import { ageSince, count, number } from './format.js';
import { nextSort, waitingFilter, waitingOrder } from './filter.js';
import { namespaceName, nodeName } from './parts.js';
import { podLink } from './route.js';
import { Rows } from './rows.js';

/** Height of a row in CSS pixels: three lines. */
const HEIGHT = 72;

export function waitingView(app) {
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
        h('span', { class: 'quiet' }, namespaceName(pod.namespace)),
        pod.phase === 'bound' && pod.node && h('span', { class: 'quiet' }, 'bound to ', nodeName(pod.node)),
      ],
    },
    {
      key: 'asks',
      title: 'Requests',
      cell: pod => [pod.asks || '–', pod.models.length > 0 && h('span', { class: 'quiet' }, pod.models.join(', '))],
    },
    {
      key: 'reasons',
      title: 'Why it waits',
      cell: pod => [
        pod.verdict && h('span', null, pod.verdict),
        pod.reason && h('span', { class: 'wrap quiet' }, `kube-scheduler: ${pod.reason}`),
      ],
    },
    { key: 'fitting', title: 'Nodes for it', sortable: true, amount: true, cell: pod => number(pod.fitting) },
    { key: 'priority', title: 'Priority', sortable: true, amount: true, cell: pod => number(pod.priority) },
    { key: 'age', title: 'Age', sortable: true, amount: true, cell: pod => ageSince(pod.created, app.now()) || '–' },
  ];

  function draw() {
    const pods = [...app.cluster.pods.values()].filter(waitingFilter(settings)).sort(waitingOrder(settings.sort));
    const bound = pods.filter(pod => pod.phase === 'bound').length;
    const onTheirWay =
      bound > 0 ? `, ${number(bound)} of them bound to a node that hasn't reported their GPUs yet` : '';
    const all = app.cluster.pods.size;
    const some = pods.length === all ? '' : ` of ${number(all)}`;
    render(
      heading,
      h('h1', { tabindex: '-1' }, 'Waiting pods'),
      h(
        'p',
        { class: 'lead' },
        pods.length === 0
          ? all === 0
            ? 'No pod waits for GPUs.'
            : 'No pod matches the filters.'
          : `${count(pods.length, 'pod')}${some}${onTheirWay}. Open one to see what would help.`,
      ),
    );
    rows.show(pods, 'Waiting pods', settings.sort);
  }

  return {
    title: 'Waiting pods',
    filters: ['namespace', 'model'],
    show(parent, names, shown) {
      settings = shown;
      heading = document.createElement('div');
      const list = document.createElement('div');
      list.className = 'list waiting-list';
      parent.replaceChildren(heading, list);
      app.usage.watch([]);
      rows = new Rows(list, {
        columns,
        height: HEIGHT,
        key: pod => pod.uid,
        sorted: key => app.change({ sort: nextSort(settings.sort, key) }),
      });
      draw();
    },
    change(shown) {
      settings = shown;
      draw();
    },
    update: draw,
    move: by => rows.move(by),
    focus: key => rows.focusKey(key),
    close: () => rows.close(),
  };
}
