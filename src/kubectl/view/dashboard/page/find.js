// Objects that a search finds, for direct links.

import { hasWords, searchText, words } from './filter.js';
import { gpuLink, modelLink, namespaceLink, nodeLink, podLink } from './route.js';

/** Objects of each kind that are listed. */
const MOST = 6;
const KINDS = ['Nodes', 'Pods', 'GPUs', 'Namespaces', 'Models'];

/** What may have all these words in its own name: `{kind, name, link, on?}`, where `link()` is its address. */
function* objects({ nodes, pods, totals }, wanted) {
  const ofPod = ({ namespace, name }, on) => {
    return { kind: 'Pods', name: `${namespace}/${name}`, link: () => podLink(namespace, name), on };
  };
  for (const name of totals.models.keys()) yield { kind: 'Models', name, link: () => modelLink(name) };
  for (const name of totals.namespaces.keys()) yield { kind: 'Namespaces', name, link: () => namespaceLink(name) };
  for (const pod of pods.values()) yield ofPod(pod, pod.phase === 'bound' ? pod.node : 'waiting');
  for (const entry of nodes.values()) {
    // Whatever is on the node is in its text, so most nodes take one look.
    if (!hasWords(searchText(entry), wanted)) continue;
    const { name: on, node, summary } = entry;
    yield { kind: 'Nodes', name: on, link: () => nodeLink(on) };
    for (const { uuid } of node.gpus) yield { kind: 'GPUs', name: uuid, link: () => gpuLink(uuid), on };
    for (const pod of summary.pods.filter(({ uid }) => !pods.has(uid))) yield ofPod(pod, on);
  }
}

/**
 * Groups `{kind, found: [{name, href, on?}], more}` of what has all words of the query in its own name. `more` is
 * whether there are more than listed.
 */
export function find(cluster, query) {
  const wanted = words(query);
  if (wanted.length === 0) return [];
  const groups = new Map(KINDS.map(kind => [kind, { kind, found: [], more: false }]));
  for (const { kind, name, link, on } of objects(cluster, wanted)) {
    if (!hasWords(name.toLowerCase(), wanted)) continue;
    const group = groups.get(kind);
    if (group.found.length < MOST) group.found.push({ name, href: link(), on });
    else group.more = true;
  }
  return [...groups.values()].filter(({ found }) => found.length > 0);
}
