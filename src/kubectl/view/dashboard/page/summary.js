// Sums over a node, kept beside it, and over the cluster, kept up to date by what a node adds and takes away.

import { divided, holders } from './holding.js';

const FIELDS = ['total', 'capacity', 'held', 'reserved', 'free'];
const none = () => ({ total: 0, capacity: 0, held: 0, reserved: 0, free: 0 });

function add(sum, part, sign = 1) {
  for (const field of FIELDS) sum[field] += sign * part[field];
}

/** What the pods of a node hold: one row for each pod. */
function podsOf(node) {
  const pods = new Map();
  const count = (share, reserved) => {
    const { podUid: uid, namespace, pod: name } = share;
    const none = { uid, namespace, name, node: node.name, gpus: 0, memoryMi: 0, cores: 0, reserved, order: '' };
    const pod = pods.get(uid) ?? none;
    pods.set(uid, pod);
    pod.gpus += 1;
    pod.memoryMi += share.memoryMi;
    pod.cores += share.cores;
    pod.reserved &&= reserved;
  };
  for (const gpu of node.gpus) {
    for (const holder of holders(gpu)) count(holder, false);
  }
  for (const reservation of node.reservations) count(reservation, true);
  return [...pods.values()];
}

/** Sums over a node's GPUs. */
export function summaryOf(node) {
  const memory = none();
  const cores = none();
  let healthy = 0;
  let listed = 0;
  let cordoned = 0;
  const models = new Map();
  for (const gpu of node.gpus) {
    add(memory, divided(gpu, 'memoryMi'));
    add(cores, divided(gpu, 'cores'));
    if (gpu.health !== 'Missing') listed += 1;
    if (gpu.health === 'Healthy') healthy += 1;
    if (gpu.cordoned) cordoned += 1;
    if (gpu.model) models.set(gpu.model, (models.get(gpu.model) ?? 0) + 1);
  }
  const pods = podsOf(node);
  const holding = pods.filter(pod => !pod.reserved).length;
  return { listed, healthy, unhealthy: node.gpus.length - healthy, cordoned, memory, cores, models, pods, holding };
}

/** Sums over the cluster. */
export class Totals {
  nodes = 0;
  closed = 0;
  gpus = 0;
  healthy = 0;
  unhealthy = 0;
  cordoned = 0;
  pods = 0;
  memory = none();
  cores = none();
  /** GPUs by model. */
  models = new Map();
  /** What pods hold, by namespace. */
  namespaces = new Map();

  add(entry) {
    this.#count(entry, 1);
  }

  remove(entry) {
    this.#count(entry, -1);
  }

  #count({ node, summary }, sign) {
    this.nodes += sign;
    if (!node.takesPods) this.closed += sign;
    this.gpus += sign * summary.listed;
    this.healthy += sign * summary.healthy;
    this.unhealthy += sign * summary.unhealthy;
    this.cordoned += sign * summary.cordoned;
    this.pods += sign * summary.holding;
    add(this.memory, summary.memory, sign);
    add(this.cores, summary.cores, sign);
    for (const [model, gpus] of summary.models) {
      const sum = (this.models.get(model) ?? 0) + sign * gpus;
      if (sum > 0) this.models.set(model, sum);
      else this.models.delete(model);
    }
    for (const pod of summary.pods) {
      let sum = this.namespaces.get(pod.namespace);
      if (!sum) {
        sum = { pods: 0, memoryMi: 0, cores: 0 };
        this.namespaces.set(pod.namespace, sum);
      }
      sum.pods += sign;
      sum.memoryMi += sign * pod.memoryMi;
      sum.cores += sign * pod.cores;
      if (sum.pods === 0) this.namespaces.delete(pod.namespace);
    }
  }
}
