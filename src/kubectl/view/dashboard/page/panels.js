// Panels of the overview: what needs attention, and what a search found.

import { find } from './find.js';
import { troubles } from './filter.js';
import { count } from './format.js';
import { h } from './dom.js';
import { gpuName, healthBadge, link, nodeName, section, troubleText } from './parts.js';
import { format } from './route.js';

/** Lines of a list; the rest is behind a link. */
const MOST = 3;

/** The first of many objects with a problem, and the way to the others. */
function troubled(noun, list, line) {
  if (list.length === 0) return undefined;
  return [
    h('h3', count(list.length, noun)),
    h(
      'ul.plain.lines',
      list.slice(0, MOST).map(one => h('li', line(one))),
    ),
    list.length > MOST &&
      h('p', link(format('overview', {}, { state: 'problems' }), `All ${count(list.length, noun)}`)),
  ];
}

/** GPUs that aren't healthy, and nodes with problems, if there are any. */
export function attention(nodes) {
  const { gpus, nodes: closed } = troubles(nodes.values());
  if (gpus.length === 0 && closed.length === 0) return undefined;
  return section(
    'Problems',
    'panel.attention',
    troubled('GPU', gpus, ({ node, gpu }) => [
      [healthBadge(gpu), ' ', gpuName(gpu.uuid), ' on ', nodeName(node.name)],
      h('span.quiet', ` ${troubleText(gpu)}`),
    ]),
    troubled('node', closed, ({ name, problems }) => [
      nodeName(name),
      h('span.quiet', ` ${problems[0] ?? 'takes no pods'}`),
    ]),
  );
}

/** What a search found. */
export function foundPanel(cluster, q) {
  const groups = find(cluster, q);
  const hit = ({ name, href, on }) => h('span.hit', link(href, name), on && h('span.quiet', ` ${on}`));
  return section(
    'Found',
    'panel.found',
    groups.length === 0 && h('p.quiet', 'Nothing has all these words in its name.'),
    h(
      'dl',
      groups.map(({ kind, found, more }) => [
        h('dt', kind),
        h('dd', found.map(hit), more && h('span.quiet', 'and more')),
      ]),
    ),
  );
}
