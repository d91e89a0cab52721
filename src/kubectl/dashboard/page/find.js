// Objects that a search finds, for direct links.

import { hasWords, searchText, words } from './filter.js';
import { gpuLink, modelLink, namespaceLink, nodeLink, podLink } from './route.js';

/** Objects of each kind that are listed. */
const MOST = 6;

/**
 * Groups `{kind, found: [{name, href, on?}], more}` of what has all words of the query in its own name. `more` is
 * whether there are more than listed.
 */
export function find(cluster, query) {
  const wanted = words(query);
  if (wanted.length === 0) return [];
  const matches = (...names) => hasWords(names.join('\n').toLowerCase(), wanted);
  const groups = ['Nodes', 'Pods', 'GPUs', 'Namespaces', 'Models'].map(kind => ({ kind, found: [], more: false }));
  const [nodes, pods, gpus, namespaces, models] = groups;
  const put = (group, item) => {
    if (group.found.length < MOST) group.found.push(item());
    else group.more = true;
  };
  for (const model of cluster.totals.models.keys()) {
    if (matches(model)) put(models, () => ({ name: model, href: modelLink(model) }));
  }
  for (const namespace of cluster.totals.namespaces.keys()) {
    if (matches(namespace)) put(namespaces, () => ({ name: namespace, href: namespaceLink(namespace) }));
  }
  for (const pod of cluster.pods.values()) {
    if (!matches(`${pod.namespace}/${pod.name}`)) continue;
    const on = pod.phase === 'bound' ? pod.node : 'waiting';
    put(pods, () => ({ name: `${pod.namespace}/${pod.name}`, href: podLink(pod.namespace, pod.name), on }));
  }
  for (const entry of cluster.nodes.values()) {
    if ([nodes, pods, gpus].every(group => group.more)) break;
    // Whatever is on the node is in its text, so most nodes take one look.
    if (!hasWords(searchText(entry), wanted)) continue;
    if (matches(entry.name)) put(nodes, () => ({ name: entry.name, href: nodeLink(entry.name) }));
    for (const gpu of entry.node.gpus) {
      if (matches(gpu.uuid)) put(gpus, () => ({ name: gpu.uuid, href: gpuLink(gpu.uuid), on: entry.name }));
    }
    for (const pod of entry.summary.pods) {
      if (cluster.pods.has(pod.uid) || !matches(`${pod.namespace}/${pod.name}`)) continue;
      put(pods, () => ({
        name: `${pod.namespace}/${pod.name}`,
        href: podLink(pod.namespace, pod.name),
        on: entry.name,
      }));
    }
  }
  return groups.filter(group => group.found.length > 0);
}
