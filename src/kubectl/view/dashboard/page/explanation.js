// Why a pod waits and what would help: what the cluster answers when it is asked about the pod.

import { groups } from './answers.js';
import { h } from './dom.js';
import { age, count, memory, number, quoted, shortIds } from './format.js';
import { command, gpuName, nodeName, podName, section, table } from './parts.js';

/** Nodes of a group that are shown at first, and with each further step. */
const STEP = 20;
/** An answer isn't asked for anew until it is this old, in ms. */
const LEAST_AGE = 30_000;

/** Annotations by which the pod says where it may run. */
function wishes(document) {
  const wishes = Object.entries(document.asks?.wishes ?? {});
  if (wishes.length === 0) return undefined;
  const line = ([name, value]) => h('li.mono', `${name}: ${value}`);
  return section('Annotations', 'panel', h('ul.plain', wishes.map(line)));
}

function suggestion({ text, command: line, node, pods = [], cards = [] }) {
  const links = [
    node && ['Node ', nodeName(node)],
    pods.map(pod => [' Pod ', podName({ namespace: pod.namespace, pod: pod.name })]),
    cards.map(uuid => [' GPU ', gpuName(uuid)]),
  ];
  return h('li', h('p', String(text)), line && command(String(line)), h('p.quiet.links', links));
}

function suggestions(list) {
  if (list.length === 0) return h('p.quiet', 'No single change that would let the pod run was found.');
  return h('ol.suggestions', list.map(suggestion));
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
    if (!this.#answer) return this.#status(pod);
    const { document, error, groups } = this.#answer;
    if (error) return [h('p.note.bad-note', `The explanation failed: ${error}`), this.#status(pod)];
    const verdict = h('p', String(document.verdict ?? ''));
    if (!['waiting', 'bound'].includes(document.state?.phase)) return [verdict, this.#status(pod), wishes(document)];
    const name = `-n ${quoted(this.#namespace)} ${quoted(this.#name)}`;
    return [
      section(
        'What would help',
        'panel.attention',
        pod?.verdict !== document.verdict && verdict,
        (document.remarks ?? []).map(remark => h('p.note', String(remark))),
        document.fitting > 0
          ? h('p', 'There are GPUs for it. If it keeps waiting, kubectl describe pod says what else it lacks.')
          : suggestions(document.suggestions ?? []),
        command(`kubectl divvy explain ${name}`),
        command(`kubectl describe pod ${name}`),
        this.#status(pod),
      ),
      wishes(document),
      groups.length > 0 &&
        section(
          'Answers of the nodes',
          'panel',
          groups.map(group => this.#group(group)),
        ),
    ];
  }

  #status(pod) {
    const asking = 'Asking the nodes; this takes up to 10 seconds on large clusters.';
    if (this.#asking) return h('p.quiet', { role: 'status' }, asking);
    if (!this.#answer) return undefined;
    const ago = age(this.#app.now() - this.#answer.at);
    const again = h('button', { type: 'button', onclick: () => this.#ask(pod?.verdict) }, 'Ask again');
    return h('p.quiet', `Asked ${ago} ago. `, again);
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
    const { key, nodes, reason, title } = group;
    const most = this.#shown.get(key) ?? STEP;
    const more = () => {
      this.#shown.set(key, most + 5 * STEP);
      this.#changed();
    };
    const head = [h('b', `${count(nodes.length, 'node')}: `), reason ?? title, reason && h('span.quiet', title)];
    return this.#details('group', key, head, () => [
      nodes.slice(0, most).map(node => this.#node(node, group)),
      nodes.length > most && h('button', { type: 'button', onclick: more }, `Show more of ${number(nodes.length)}`),
    ]);
  }

  #node({ name, reason, container, closed, cards = [] }, group) {
    const head = [
      name,
      reason !== group.reason && h('span.quiet', reason),
      container && h('span.quiet', `container ${container}`),
    ];
    return this.#details('answer', `${group.key}\n${name}`, head, () => [
      h('p', nodeName(name), closed && h('span.quiet', ` takes no pods: ${closed}`)),
      gpuTable(name, cards),
    ]);
  }

  /** What can be opened; it has no content before, as there can be thousands. */
  #details(kind, key, head, content) {
    const open = this.#opened.has(key);
    const ontoggle = event => {
      if (event.target.open === this.#opened.has(key)) return;
      if (event.target.open) this.#opened.add(key);
      else this.#opened.delete(key);
      this.#changed();
    };
    return h(`details.${kind}`, { key, open, ontoggle }, h('summary', head), open && content());
  }
}

/** The GPUs of a node as the pod finds them. */
function gpuTable(node, cards) {
  if (cards.length === 0) return h('p.quiet', 'The node reports no GPUs.');
  const ids = shortIds(cards.map(card => card.uuid));
  const free = (amounts, text) => `${text(amounts?.free ?? 0)} of ${text(amounts?.capacity ?? 0)}`;
  const columns = [
    ['GPU', ({ uuid, at }) => gpuName(uuid, ids[at])],
    ['Model', ({ model }) => model ?? '–'],
    ['Memory free', ({ memoryMi }) => free(memoryMi, memory)],
    ['Cores free', ({ cores }) => free(cores, number)],
    ['Pods', ({ pods = 0 }) => number(pods)],
    ['Reason', ({ chosen, reason }) => (chosen ? 'would be chosen' : (reason ?? 'would do by itself'))],
  ];
  const rows = cards.map((card, at) => ({ ...card, at }));
  return table(`GPUs of ${node}`, columns, rows);
}
