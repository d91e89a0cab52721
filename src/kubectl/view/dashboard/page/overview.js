// The overview: sums, what needs attention, what a search found, and the nodes.

import { h } from './dom.js';
import { waitingOrder } from './filter.js';
import { ageSince, count, memory, number } from './format.js';
import { listView } from './views.js';
import { nodeList, nodesHeading } from './nodes.js';
import { attention, foundPanel } from './panels.js';
import { amountTile, link, tile } from './parts.js';
import { format } from './route.js';

function tiles(cluster, now) {
  const { totals } = cluster;
  const waiting = cluster.waiting().sort(waitingOrder('age'));
  const oldest = waiting.length > 0 && ageSince(waiting[0].created, now);
  const wrong = [];
  if (totals.unhealthy > 0) wrong.push(`${number(totals.unhealthy)} not healthy`);
  if (totals.cordoned > 0) wrong.push(`${number(totals.cordoned)} cordoned`);
  const closed = `${number(totals.closed)} ${totals.closed === 1 ? 'takes' : 'take'} no pods`;
  return h(
    'div.tiles',
    tile(
      'GPUs healthy',
      [number(totals.healthy), h('small', ` of ${number(totals.gpus)}`)],
      h('p', { class: wrong.length > 0 ? 'alarm' : 'quiet' }, wrong.join(' · ') || 'none cordoned'),
    ),
    amountTile('Memory held', totals.memory, memory),
    amountTile('Cores held', totals.cores, number),
    tile(
      'Nodes',
      number(totals.nodes),
      h('p', { class: totals.closed > 0 ? 'alarm' : 'quiet' }, totals.closed > 0 ? closed : 'all take pods'),
    ),
    tile(
      'Pods with GPUs',
      link(format('pods'), number(totals.pods)),
      h('p.quiet', `in ${count(totals.namespaces.size, 'namespace')}`),
    ),
    tile(
      'Waiting pods',
      link(format('waiting'), number(waiting.length)),
      h('p.quiet', oldest ? `the oldest for ${oldest}` : 'none'),
    ),
  );
}

function heading(app, nodes, settings) {
  const { cluster } = app;
  const isSearch = settings.q.trim() !== '';
  return [
    h('h1.visually-hidden', { tabindex: '-1' }, 'Overview'),
    // A search is for nodes and what is on them: nothing else is in the way.
    isSearch ? foundPanel(cluster, settings.q) : [tiles(cluster, app.now()), attention(cluster.nodes)],
    nodesHeading(app, nodes, settings),
  ];
}

export const overview = app =>
  listView(app, {
    ...nodeList(app),
    title: 'Overview',
    heading: (nodes, settings) => heading(app, nodes, settings),
  });
