// Why a pod waits and what would help: what the cluster answers when it is asked about the pod.

import { groups } from './answers.js';
import { h } from './dom.js';
import { ageSince, count, exactMemory, memory, number, quoted, shortIds } from './format.js';
import { command, gpuName, nodeName, podName, section, table } from './parts.js';

/** Nodes of a group that are shown at first, and with each further step. */
const STEP = 20;
/** An answer isn't asked for anew until it is this old, in ms. */
const LEAST_AGE = 30_000;

function asks(document) {
  const containers = document.asks?.containers;
  if (!containers?.length) return undefined;
  const amount = value => (typeof value === 'number' ? exactMemory(value) : String(value ?? '–'));
  const rows = containers.map(one => [
    one.name,
    one.kind,
    number(one.cards),
    one.profile ?? '–',
    amount(one.memory),
    number(one.cores),
    one.exclusive ? 'yes' : 'no',
  ]);
  const wishes = Object.entries(document.asks.wishes ?? {}).map(([name, value]) =>
    h('li', { class: 'mono' }, `${name}: ${value}`),
  );
  return section(
    'Requests',
    { class: 'panel' },
    table(
      'Requests of the containers',
      ['Container', 'Kind', 'GPUs', 'MIG profile', 'Memory of each', 'Cores of each', 'Exclusive'],
      rows,
    ),
    wishes.length > 0 && [h('h3', null, 'Annotations'), h('ul', { class: 'plain' }, wishes)],
  );
}

function suggestions(list) {
  if (list.length === 0) return h('p', { class: 'quiet' }, 'No single change that would let the pod run was found.');
  return h(
    'ol',
    { class: 'suggestions' },
    list.map(({ text, command: line, node, pods = [], cards = [] }) =>
      h(
        'li',
        null,
        h('p', null, String(text)),
        line && command(String(line)),
        (node || pods.length > 0 || cards.length > 0) &&
          h(
            'p',
            { class: 'quiet links' },
            node && ['Node ', nodeName(node)],
            pods.map(pod => [' Pod ', podName({ namespace: pod.namespace, pod: pod.name })]),
            cards.map(uuid => [' GPU ', gpuName(uuid)]),
          ),
      ),
    ),
  );
}

/** The explanation of a pod; `changed()` is called when there is something new to draw. */
export class Explanation {
  #app;
  #namespace;
  #name;
  #changed;
  /** Of the last time that the cluster was asked: `document` or `error`, the verdict in the events, and the time. */
  #answer;
  #asking;
  /** Keys of the groups and nodes that are open, and how many nodes of a group are shown. */
  #opened = new Set();
  #shown = new Map();

  constructor(app, { namespace, name }, changed) {
    [this.#app, this.#namespace, this.#name, this.#changed] = [app, namespace, name, changed];
  }

  /** Asks, unless it has been done; again when the events have another verdict for the pod than they had then. */
  ensure(pod) {
    if (this.#asking) return;
    const isOld =
      this.#answer && pod?.verdict !== this.#answer.verdict && this.#app.now() - this.#answer.at > LEAST_AGE;
    if (!this.#answer || isOld) this.#ask(pod?.verdict);
  }

  close() {
    this.#asking?.abort();
  }

  /** What is known by now; `pod` is the pod as the events have it, if they do. */
  draw(pod) {
    const status = this.#asking
      ? h('p', { class: 'quiet', role: 'status' }, 'Asking the nodes; this takes up to 10 seconds on large clusters.')
      : this.#answer &&
        h(
          'p',
          { class: 'quiet' },
          `Asked ${ageSince(new Date(this.#answer.at).toISOString(), this.#app.now())} ago. `,
          h('button', { type: 'button', onclick: () => this.#ask(pod?.verdict) }, 'Ask again'),
        );
    if (!this.#answer) return status;
    if (this.#answer.error)
      return [h('p', { class: 'note bad-note' }, `The explanation failed: ${this.#answer.error}`), status];
    const { document } = this.#answer;
    if (!['waiting', 'bound'].includes(document.state?.phase)) {
      return [h('p', null, String(document.verdict ?? '')), status, asks(document)];
    }
    return [
      section(
        'What would help',
        { class: 'panel attention' },
        pod?.verdict !== document.verdict && h('p', null, String(document.verdict ?? '')),
        (document.remarks ?? []).map(remark => h('p', { class: 'note' }, String(remark))),
        document.fitting > 0
          ? h('p', null, 'There are GPUs for it. If it keeps waiting, kubectl describe pod says what else it lacks.')
          : suggestions(document.suggestions ?? []),
        command(`kubectl divvy explain -n ${quoted(this.#namespace)} ${quoted(this.#name)}`),
        command(`kubectl describe pod -n ${quoted(this.#namespace)} ${quoted(this.#name)}`),
        status,
      ),
      asks(document),
      this.#answer.groups.length > 0 &&
        section(
          'Answers of the nodes',
          { class: 'panel' },
          this.#answer.groups.map(group => this.#group(group)),
        ),
    ];
  }

  async #ask(verdict) {
    const asking = new AbortController();
    this.#asking = asking;
    this.#changed();
    const parameters = { namespace: this.#namespace, name: this.#name };
    const answer = await this.#app.ask('explain', parameters, asking.signal).then(
      document => ({ document, groups: groups(document.nodes ?? []) }),
      error => ({ error: error.message }),
    );
    if (asking.signal.aborted) return;
    [this.#answer, this.#asking] = [{ ...answer, verdict, at: this.#app.now() }, undefined];
    this.#changed();
  }

  #group(group) {
    const most = this.#shown.get(group.key) ?? STEP;
    const toggle = (key, event) => {
      if (event.target.open === this.#opened.has(key)) return;
      if (event.target.open) this.#opened.add(key);
      else this.#opened.delete(key);
      this.#changed();
    };
    const nodes =
      this.#opened.has(group.key) &&
      group.nodes.slice(0, most).map(node => {
        const key = `${group.key}\n${node.name}`;
        return h(
          'details',
          { key, class: 'answer', open: this.#opened.has(key), ontoggle: event => toggle(key, event) },
          h(
            'summary',
            null,
            node.name,
            node.reason !== group.reason && h('span', { class: 'quiet' }, node.reason),
            node.container && h('span', { class: 'quiet' }, `container ${node.container}`),
          ),
          this.#opened.has(key) && [
            h(
              'p',
              null,
              nodeName(node.name),
              node.closed && h('span', { class: 'quiet' }, ` takes no pods: ${node.closed}`),
            ),
            gpusOf(node),
          ],
        );
      });
    return h(
      'details',
      {
        key: group.key,
        class: 'group',
        open: this.#opened.has(group.key),
        ontoggle: event => toggle(group.key, event),
      },
      h(
        'summary',
        null,
        h('b', null, `${count(group.nodes.length, 'node')}: `),
        group.reason ?? group.title,
        group.reason && h('span', { class: 'quiet' }, group.title),
      ),
      nodes,
      this.#opened.has(group.key) &&
        group.nodes.length > most &&
        h(
          'button',
          { type: 'button', onclick: () => (this.#shown.set(group.key, most + 5 * STEP), this.#changed()) },
          `Show more of ${number(group.nodes.length)}`,
        ),
    );
  }
}

/** The GPUs of a node as the pod finds them. */
function gpusOf(node) {
  const ids = shortIds((node.cards ?? []).map(card => card.uuid));
  const rows = (node.cards ?? []).map((card, at) => [
    gpuName(card.uuid, ids[at]),
    card.model ?? '–',
    `${memory(card.memoryMi?.free ?? 0)} of ${memory(card.memoryMi?.capacity ?? 0)}`,
    `${number(card.cores?.free ?? 0)} of ${number(card.cores?.capacity ?? 0)}`,
    number(card.pods ?? 0),
    card.chosen ? 'would be chosen' : (card.reason ?? 'would do by itself'),
  ]);
  return rows.length > 0
    ? table(`GPUs of ${node.name}`, ['GPU', 'Model', 'Memory free', 'Cores free', 'Pods', 'Reason'], rows)
    : h('p', { class: 'quiet' }, 'The node reports no GPUs.');
}
