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

  /** Takes in a message. Returns the names of nodes that changed, came or went. */
  apply(kind, message) {
    let changed = [];
    if (kind === 'hello') {
      this.hello = message;
      this.#round += 1;
      this.synced = false;
    } else if (kind === 'nodes') {
      for (const node of message.set ?? []) changed.push(this.#setNode(readNode(node)));
      changed.push(...(message.gone ?? []).filter(name => this.#removeNode(name)));
    } else if (kind === 'pods') {
      for (const pod of message.set ?? []) this.#setPod(readPod(pod));
      for (const uid of message.gone ?? []) this.pods.delete(uid);
    } else if (kind === 'status') {
      this.problems = (message.problems ?? []).map(String);
      if (message.synced && !this.synced) changed = this.#forgetOlder();
      this.synced = message.synced === true;
    }
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
    const { name } = node;
    const before = this.nodes.get(name);
    if (before) this.totals.remove(before);
    const entry = { name, order: orderOf(name), node, summary: summaryOf(node), round: this.#round };
    this.totals.add(entry);
    this.nodes.set(name, entry);
    return name;
  }

  /** Whether it was there. */
  #removeNode(name) {
    const entry = this.nodes.get(name);
    if (entry) this.totals.remove(entry);
    return this.nodes.delete(name);
  }

  #setPod(pod) {
    this.pods.set(pod.uid, { ...pod, order: orderOf(`${pod.namespace}\n${pod.name}`), round: this.#round });
  }

  /** Forgets what an earlier connection sent and this one didn't. Returns the names of these nodes. */
  #forgetOlder() {
    const isOlder = ({ round }) => round !== this.#round;
    for (const pod of [...this.pods.values()].filter(isOlder)) this.pods.delete(pod.uid);
    const gone = [...this.nodes.values()].filter(isOlder).map(({ name }) => name);
    return gone.filter(name => this.#removeNode(name));
  }
}
