// The columns of the table of nodes.

import { h } from './dom.js';
import { memory, number } from './format.js';
import { fullness, trouble } from './holding.js';
import { states } from './nodecard.js';
import { heldOf, meter } from './parts.js';
import { nodeLink } from './route.js';

/** `of()` is what the small bars of the GPUs show: `memoryMi` or `cores`. */
export function nodeColumns(of) {
  const cells = gpu => {
    const word = trouble(gpu);
    const kind = !word ? '' : word === 'Cordoned' ? ' off' : ' bad';
    const fill = `${100 * fullness(gpu, of())}%`;
    return h('span', { class: `tiny${kind}` }, h('span', { style: { height: fill } }));
  };
  return [
    {
      key: 'name',
      title: 'Node',
      sortable: true,
      cell: (entry, isStop) => [
        h('a', { href: nodeLink(entry.name), class: 'name', tabindex: isStop ? '0' : '-1' }, entry.name),
      ],
    },
    {
      key: 'gpus',
      title: 'GPUs healthy',
      sortable: true,
      amount: true,
      cell: ({ node, summary }) => [
        h('span', { class: 'tinies', 'aria-hidden': 'true' }, node.gpus.slice(0, 16).map(cells)),
        `${number(summary.healthy)} of ${number(summary.listed)}`,
      ],
    },
    {
      key: 'memory',
      title: 'Memory held',
      sortable: true,
      amount: true,
      cell: ({ summary }) => meter(summary.memory, heldOf(summary.memory)),
    },
    { key: 'cores', title: 'Cores held', sortable: true, amount: true, cell: ({ summary }) => meter(summary.cores) },
    {
      key: 'free',
      title: 'Memory free',
      sortable: true,
      amount: true,
      cell: ({ summary }) => memory(summary.memory.free),
    },
    { key: 'pods', title: 'Pods', sortable: true, amount: true, cell: ({ summary }) => number(summary.holding) },
    { key: 'problems', title: 'State', sortable: true, amount: true, cell: entry => states(entry) },
  ];
}
