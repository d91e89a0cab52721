// Values over time since the page was opened, in bounded memory.

/**
 * Samples of several values. Once there are too many, every second one is dropped and the interval between them
 * doubled. Times are in seconds since the page was opened.
 */
export class History {
  /** One after another: the time and the values of a sample. Small integers in one array take the least memory. */
  #flat = [];
  #width;
  #limit;
  #interval;

  constructor(values, limit, interval) {
    this.#width = values + 1;
    this.#limit = limit;
    this.#interval = interval;
  }

  get length() {
    return this.#flat.length / this.#width;
  }

  /** Adds a sample; within the interval of the last one it takes its place. */
  add(seconds, values) {
    const last = this.#flat.length - this.#width;
    const sameSlot =
      last >= 0 && Math.floor(this.#flat[last] / this.#interval) === Math.floor(seconds / this.#interval);
    // The first sample stays: it is what the page was opened with.
    if (sameSlot && last > 0) this.#flat.length = last;
    this.#flat.push(seconds, ...values);
    while (this.length > this.#limit) this.#thin();
  }

  /** Points `[seconds, value]` of one value. */
  points(value) {
    const points = [];
    for (let at = 0; at < this.#flat.length; at += this.#width)
      points.push([this.#flat[at], this.#flat[at + 1 + value]]);
    return points;
  }

  #thin() {
    const kept = [];
    const samples = this.length;
    for (let sample = 0; sample < samples; sample += 1) {
      if (sample % 2 === 0 || sample === samples - 1) {
        kept.push(...this.#flat.slice(sample * this.#width, (sample + 1) * this.#width));
      }
    }
    this.#flat = kept;
    this.#interval *= 2;
  }
}

/** Samples of the cluster, and of one node: an hour at this interval before the first halving. */
const CLUSTER = { limit: 720, interval: 5 };
const NODE = { limit: 96, interval: 2 };
/** Changes that are kept in all; the older half goes when there are more. */
const CHANGES = 20_000;

/** What the page has seen: the cluster, each node, and changes in words. */
export class Recorder {
  /** Memory held, compute held, both in tenths of a percent, and pods that wait. */
  cluster = new History(3, CLUSTER.limit, CLUSTER.interval);
  #nodes = new Map();
  #changes = [];
  #opened;

  constructor(opened) {
    this.#opened = opened;
  }

  seconds(now) {
    return Math.floor((now - this.#opened) / 1000);
  }

  /** Memory held in Mi, cores held, and pods of a node. */
  node(name) {
    return this.#nodes.get(name);
  }

  /** Changes of a node, the latest first. */
  changesOf(name) {
    return this.#changes.filter(change => change.node === name).reverse();
  }

  takeCluster({ totals }, waiting, now) {
    const part = ({ held, capacity }) => (capacity > 0 ? Math.round((1000 * held) / capacity) : 0);
    this.cluster.add(this.seconds(now), [part(totals.memory), part(totals.cores), waiting]);
  }

  takeNode(name, summary, now) {
    let history = this.#nodes.get(name);
    if (!history) {
      history = new History(3, NODE.limit, NODE.interval);
      this.#nodes.set(name, history);
    }
    history.add(this.seconds(now), [summary.memory.held, summary.cores.held, summary.holding]);
  }

  takeChanges(name, texts, now) {
    for (const text of texts) this.#changes.push({ node: name, at: now, text });
    if (this.#changes.length > CHANGES) this.#changes.splice(0, CHANGES / 2);
  }

  /** Forgets the history of a node that is gone for good; its changes stay for a while. */
  forget(name) {
    this.#nodes.delete(name);
  }
}
