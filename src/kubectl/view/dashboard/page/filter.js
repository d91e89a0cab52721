// What a list shows: search, filters and order.

import { trouble } from './holding.js';

/** Filters of nodes by state: their names for people, and their tests. */
export const STATES = {
  problems: ['With problems', ({ node, summary }) => isClosed(node) || isTroubled(summary)],
  unhealthy: ['Unhealthy GPUs', ({ summary }) => summary.unhealthy > 0],
  cordoned: ['Cordoned GPUs', ({ summary }) => summary.cordoned > 0],
  closed: ['Takes no pods', ({ node }) => !node.takesPods],
  reserved: ['Reserved GPUs', ({ node }) => node.reservations.length > 0],
  free: ['Free memory', ({ summary }) => summary.memory.free > 0],
};

const isClosed = node => node.problems.length > 0 || !node.takesPods;
const isTroubled = summary => summary.unhealthy + summary.cordoned > 0;

/** Words of a search; each must occur. */
export const words = query =>
  query
    .toLowerCase()
    .split(/\s+/)
    .filter(word => word !== '');

export const hasWords = (text, wanted) => wanted.every(word => text.includes(word));

/** Everything of a node that is searched, made when it is first searched. */
export function searchText(entry) {
  if (entry.text === undefined) {
    const { node, summary } = entry;
    const gpus = node.gpus.map(gpu => gpu.uuid);
    const pods = summary.pods.map(pod => `${pod.namespace}/${pod.name}`);
    entry.text = [node.name, ...summary.models.keys(), ...gpus, ...pods].join('\n').toLowerCase();
  }
  return entry.text;
}

/** A test for nodes. */
export function nodeFilter({ q, namespace, model, state }) {
  const wanted = words(q);
  const [, inState] = Object.hasOwn(STATES, state) ? STATES[state] : [];
  return entry =>
    (!namespace || entry.summary.pods.some(pod => pod.namespace === namespace)) &&
    (!model || entry.summary.models.has(model)) &&
    (!inState || inState(entry)) &&
    (wanted.length === 0 || hasWords(searchText(entry), wanted));
}

/** A test for pods that hold GPUs. */
export function podFilter({ q, namespace, model }, nodes) {
  const wanted = words(q);
  return pod =>
    (!namespace || pod.namespace === namespace) &&
    (!model || hasModel(pod, nodes.get(pod.node), model)) &&
    (wanted.length === 0 || hasWords(`${pod.namespace}/${pod.name}\n${pod.node}`.toLowerCase(), wanted));
}

function hasModel({ uid }, entry, model) {
  const isIts = one => one.podUid === uid;
  return entry?.node.gpus.some(gpu => gpu.model === model && (gpu.shares.some(isIts) || gpu.reserved.some(isIts)));
}

/** A test for pods that wait. */
export function waitingFilter({ q, namespace, model }) {
  const wanted = words(q);
  const isOf = pod =>
    pod.models.length === 0 || pod.models.some(name => model.toLowerCase().includes(name.toLowerCase()));
  return pod =>
    (!namespace || pod.namespace === namespace) &&
    (!model || isOf(pod)) &&
    (wanted.length === 0 ||
      hasWords(`${pod.namespace}/${pod.name}\n${pod.node ?? ''}\n${pod.models.join(' ')}`.toLowerCase(), wanted));
}

const share = ({ held, capacity }) => (capacity > 0 ? held / capacity : 0);

/** Values that lists can be sorted by; text goes up, amounts go down first. */
const NODE_KEYS = {
  tier: entry => entry.node.tier ?? '',
  gpus: entry => entry.summary.listed,
  memory: entry => share(entry.summary.memory),
  cores: entry => share(entry.summary.cores),
  free: entry => entry.summary.memory.free,
  pods: entry => entry.summary.holding,
  problems: entry => entry.node.problems.length + entry.summary.unhealthy + entry.summary.cordoned,
};
const POD_KEYS = {
  node: pod => pod.node,
  gpus: pod => pod.gpus,
  memory: pod => pod.memoryMi,
  cores: pod => pod.cores,
};
const WAITING_KEYS = {
  priority: pod => pod.priority,
  age: pod => -pod.createdAt || -Infinity,
  fitting: pod => pod.fitting,
};

/** A comparison for `sort` in the address: a key, with `-` before it for the other way round. */
function comparison(keys, sort) {
  const name = sort.replace(/^-/, '');
  const byName = (a, b) => (a.order < b.order ? -1 : a.order > b.order ? 1 : 0);
  if (!Object.hasOwn(keys, name)) return sort === '-name' ? (a, b) => byName(b, a) : byName;
  const value = keys[name];
  const turned = sort.startsWith('-') ? -1 : 1;
  return (a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === other) return byName(a, b);
    const isBefore = typeof one === 'string' ? one < other : one > other;
    return isBefore ? -turned : turned;
  };
}

export const nodeOrder = sort => comparison(NODE_KEYS, sort);
export const podOrder = sort => comparison(POD_KEYS, sort);
export const waitingOrder = sort => comparison(WAITING_KEYS, sort);

/** The value of `sort` once its column is chosen: by it, the other way round, and by it again. */
export const nextSort = (sort, key) => (sort === key || (key === 'name' && !sort) ? `-${key}` : key);

/** GPUs that aren't healthy or are cordoned, of some nodes, and nodes with problems. */
export function troubles(entries) {
  const gpus = [];
  const nodes = [];
  for (const { node, summary } of entries) {
    if (isClosed(node)) nodes.push(node);
    if (isTroubled(summary)) gpus.push(...node.gpus.filter(trouble).map(gpu => ({ node, gpu })));
  }
  // A cordon is somebody's wish, and comes last.
  const isWish = ({ gpu }) => (gpu.health === 'Healthy' ? 1 : 0);
  gpus.sort((a, b) => isWish(a) - isWish(b));
  return { gpus, nodes };
}
