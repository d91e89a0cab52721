// Panels of the overview: what needs attention, and what a search found.

import { h } from './dom.js';
import { find } from './find.js';
import { troubles, waitingOrder } from './filter.js';
import { ageSince, count, number } from './format.js';
import { gpuName, healthBadge, link, nodeName, section, troubleText } from './parts.js';
import { format, podLink } from './route.js';

/** Lines of a list; the rest is behind a link. */
const MOST = 3;

/** GPUs that aren't healthy, and nodes with problems. */
export function attention({ nodes, synced }) {
  const { gpus, nodes: closed } = troubles(nodes.values());
  if (gpus.length === 0 && closed.length === 0) {
    return section(
      'Problems',
      { class: 'panel' },
      h(
        'p',
        { class: 'quiet' },
        nodes.size > 0
          ? '✓ All GPUs are healthy, none is cordoned, and no node has problems.'
          : synced
            ? 'There are no nodes.'
            : 'Loading.',
      ),
    );
  }
  const all = (list, state, noun) =>
    list.length > MOST && h('p', null, link(format('overview', {}, { state }), `All ${count(list.length, noun)}`));
  return section(
    'Problems',
    { class: 'panel attention' },
    gpus.length > 0 && [
      h('h3', null, count(gpus.length, 'GPU')),
      h(
        'ul',
        { class: 'plain lines' },
        gpus
          .slice(0, MOST)
          .map(({ node, gpu }) =>
            h(
              'li',
              { key: gpu.uuid },
              healthBadge(gpu),
              ' ',
              gpuName(gpu.uuid),
              ' on ',
              nodeName(node.name),
              h('span', { class: 'quiet' }, ` ${troubleText(gpu)}`),
            ),
          ),
      ),
      all(gpus, 'problems', 'GPU'),
    ],
    closed.length > 0 && [
      h('h3', null, count(closed.length, 'node')),
      h(
        'ul',
        { class: 'plain lines' },
        closed
          .slice(0, MOST)
          .map(node =>
            h(
              'li',
              { key: node.name },
              nodeName(node.name),
              h('span', { class: 'quiet' }, ` ${node.problems[0] ?? 'takes no pods'}`),
            ),
          ),
      ),
      all(closed, 'problems', 'node'),
    ],
  );
}

/** The pods that wait longest. */
export function waitingPanel(cluster, now) {
  const pods = cluster.waiting();
  const reserved = cluster.pods.size - pods.length;
  const oldest = pods.sort(waitingOrder('age')).slice(0, MOST);
  return section(
    'Waiting pods',
    { class: 'panel' },
    pods.length === 0 && h('p', { class: 'quiet' }, cluster.synced ? 'No pod waits for GPUs.' : 'Loading.'),
    h(
      'ul',
      { class: 'plain lines' },
      oldest.map(pod =>
        h(
          'li',
          { key: pod.uid },
          link(podLink(pod.namespace, pod.name), pod.name, { class: 'name' }),
          h(
            'span',
            { class: 'quiet' },
            ` ${[pod.namespace, pod.asks, ageSince(pod.created, now)].filter(Boolean).join(' · ')}`,
          ),
          h('span', { class: 'line' }, pod.verdict || pod.reason || ''),
        ),
      ),
    ),
    (pods.length > MOST || reserved > 0) &&
      h(
        'p',
        null,
        link(format('waiting'), `All ${count(pods.length, 'waiting pod')}`),
        reserved > 0 && h('span', { class: 'quiet' }, `, ${number(reserved)} on their way to a node`),
      ),
  );
}

/** What a search found. */
export function foundPanel(cluster, q) {
  const groups = find(cluster, q);
  if (!q.trim()) return undefined;
  return section(
    'Found',
    { class: 'panel found' },
    groups.length === 0 && h('p', { class: 'quiet' }, 'Nothing has all these words in its name.'),
    h(
      'dl',
      null,
      groups.map(({ kind, found, more }) => [
        h('dt', null, kind),
        h(
          'dd',
          null,
          found.map(({ name, href, on }) =>
            h('span', { class: 'hit' }, link(href, name), on && h('span', { class: 'quiet' }, ` ${on}`)),
          ),
          more && h('span', { class: 'quiet' }, 'and more'),
        ),
      ]),
    ),
  );
}
