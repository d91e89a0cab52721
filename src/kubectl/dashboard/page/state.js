// The cluster as the server's messages describe it.

import { orderOf } from './format.js';
import { readNode, readPod } from './report.js';
import { Totals, summaryOf } from './summary.js';

export class Cluster {
  hello;
  /** Whether the initial state is complete; false again from a reconnection until all is sent anew. */
  synced = false;
  problems = [];
  /** By name: `{name, order, node, summary, round}`. */
  nodes = new Map();
  /** Pods that wait, and pods bound whose GPUs aren't reported, by UID. */
  pods = new Map();
  totals = new Totals();
  /** Counts connections: what an earlier one sent and this one didn't is gone. */
  #round = 0;

  /** Takes in a message. Returns what changed: nodes as pairs of before and after, either of which may be undefined. */
  apply(kind, message) {
    const changed = { nodes: [], pods: false, status: false };
    if (kind === 'hello') {
      this.hello = message;
      this.#round += 1;
      this.synced = false;
      changed.status = true;
    } else if (kind === 'nodes') {
      for (const node of message.set ?? []) changed.nodes.push(this.#setNode(readNode(node)));
      for (const name of message.gone ?? []) changed.nodes.push(this.#removeNode(name));
    } else if (kind === 'pods') {
      for (const pod of message.set ?? []) this.#setPod(readPod(pod));
      for (const uid of message.gone ?? []) this.pods.delete(uid);
      changed.pods = true;
    } else if (kind === 'status') {
      this.problems = (message.problems ?? []).map(String);
      if (message.synced && !this.synced) this.#finish(changed);
      this.synced = message.synced === true;
      changed.status = true;
    }
    changed.nodes = changed.nodes.filter(([before, after]) => before || after);
    return changed;
  }

  /** Nodes that hold a GPU of this UUID, or a pod: found by going through all of them. */
  nodeOfGpu(uuid) {
    for (const entry of this.nodes.values()) {
      if (entry.node.gpus.some(gpu => gpu.uuid === uuid)) return entry;
    }
    return undefined;
  }

  nodesOfPod(namespace, name) {
    const isIt = pod => pod.name === name && pod.namespace === namespace;
    return [...this.nodes.values()].filter(entry => entry.summary.pods.some(isIt));
  }

  pod(namespace, name) {
    for (const pod of this.pods.values()) {
      if (pod.name === name && pod.namespace === namespace) return pod;
    }
    return undefined;
  }

  waiting() {
    return [...this.pods.values()].filter(pod => pod.phase === 'waiting');
  }

  #setNode(node) {
    const before = this.nodes.get(node.name);
    const after = { name: node.name, order: orderOf(node.name), node, summary: summaryOf(node), round: this.#round };
    if (before) this.totals.remove(before);
    this.totals.add(after);
    this.nodes.set(node.name, after);
    return [before, after];
  }

  #removeNode(name) {
    const before = this.nodes.get(name);
    if (before) this.totals.remove(before);
    this.nodes.delete(name);
    return [before, undefined];
  }

  #setPod(pod) {
    this.pods.set(pod.uid, { ...pod, order: orderOf(`${pod.namespace}\n${pod.name}`), round: this.#round });
  }

  /** Forgets what an earlier connection sent and this one didn't. */
  #finish(changed) {
    for (const entry of this.nodes.values()) {
      if (entry.round !== this.#round) changed.nodes.push(this.#removeNode(entry.name));
    }
    for (const pod of this.pods.values()) {
      if (pod.round !== this.#round) this.pods.delete(pod.uid);
    }
    changed.pods = true;
  }
}
