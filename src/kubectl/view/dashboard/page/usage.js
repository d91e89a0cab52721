// Measured usage of the nodes whose details are visible.

import { mebibytes } from './format.js';

/** How often a node is asked, in ms, and how many at a time. */
const INTERVAL = 5000;
const MOST = 8;
/** How long the answer of a node that is out of sight is kept, in ms: it may come back. */
const KEPT = 20_000;

const key = (podUid, container, uuid) => `${podUid}\n${container}\n${uuid}`;

/** What the containers of a node's usage document use, by container and by pod. */
export class Usage {
  unmeasured;
  findings;
  #containers = new Map();
  #pods = new Map();

  constructor(document) {
    this.unmeasured = document.unmeasured;
    this.findings = Array.isArray(document.findings) ? document.findings : [];
    for (const entry of document.containers ?? []) {
      const { books, driverBytes, overheadBytes = 0 } = entry;
      const bytes = books ? books.usedBytes + overheadBytes : driverBytes;
      const used = {
        memoryMi: Number.isFinite(bytes) ? mebibytes(bytes) : undefined,
        cores: books?.busyPercent,
        processes: books?.processes,
      };
      this.#containers.set(key(entry.podUid, entry.container, entry.card), used);
      const pod = key(entry.podUid, '', entry.card);
      const sum = this.#pods.get(pod);
      this.#pods.set(
        pod,
        sum ? { memoryMi: plus(sum.memoryMi, used.memoryMi), cores: plus(sum.cores, used.cores) } : used,
      );
    }
  }

  /** `{memoryMi, cores, processes}` of a share, each absent where it isn't known. */
  ofShare(uuid, { podUid, container }) {
    return this.#containers.get(key(podUid, container, uuid)) ?? {};
  }

  ofPod(uuid, podUid) {
    return this.#pods.get(key(podUid, '', uuid)) ?? {};
  }
}

function plus(one, other) {
  return one === undefined || other === undefined ? (one ?? other) : one + other;
}

/** Asks for the usage of the nodes that are watched, again and again. */
export class UsagePoller {
  /** By node: `{usage}` or `{error}`. */
  #answers = new Map();
  #asked = new Map();
  #watched = [];
  #running = 0;
  #ask;
  #changed;

  /** `ask(node)` resolves to the document, `changed(node)` is called after each answer. */
  constructor(ask, changed) {
    this.#ask = ask;
    this.#changed = changed;
  }

  of(node) {
    return this.#answers.get(node) ?? {};
  }

  /** Watches these nodes and no others. Those beyond the most are left out. */
  watch(nodes) {
    this.#watched = nodes.slice(0, MOST);
  }

  /** Asks where it is time to, and forgets what is old; called every second or so. */
  tick(now) {
    for (const [node, at] of this.#asked) {
      if (now - at <= KEPT) continue;
      this.#asked.delete(node);
      this.#answers.delete(node);
    }
    for (const node of this.#watched) {
      if (this.#running >= MOST) return;
      if (now - (this.#asked.get(node) ?? -Infinity) >= INTERVAL) this.#one(node, now);
    }
  }

  async #one(node, now) {
    // Until there is an answer, as if it were asked for ever.
    this.#asked.set(node, Infinity);
    this.#running += 1;
    try {
      const answer = await this.#ask(node).then(
        document => ({ usage: new Usage(document) }),
        error => ({ error: error.message }),
      );
      this.#answers.set(node, answer);
    } finally {
      this.#running -= 1;
      this.#asked.set(node, now);
      this.#changed(node);
    }
  }
}
