// Parts that several views have: links, marks, amounts, and the bars of a GPU.

import { h } from './dom.js';
import { exactMemory, memory, number, percent, shortId } from './format.js';
import { divided, segments, trouble } from './holding.js';
import { hueOf } from './hue.js';
import { gpuLink, namespaceLink, nodeLink, podLink } from './route.js';

export const link = (href, text, properties) => h('a', { href, ...properties }, text);
export const nodeName = name => link(nodeLink(name), name, { class: 'name' });
export const podName = ({ namespace, pod }) => link(podLink(namespace, pod), pod, { class: 'name' });
export const namespaceName = namespace => link(namespaceLink(namespace), namespace);
export const gpuName = (uuid, text = shortId(uuid)) => link(gpuLink(uuid), text, { class: 'name mono' });

/** A word with a mark before it, so that it isn't told by its colour alone. */
export function badge(kind, text) {
  const marks = { good: '✓', bad: '✕', warn: '!', off: '⊘', info: '' };
  const mark = marks[kind];
  return h('span', { class: `badge ${kind}` }, mark && h('span', { 'aria-hidden': 'true', class: 'mark' }, mark), text);
}

/** Health of a GPU in a word. */
export function healthBadge(gpu) {
  const word = trouble(gpu);
  if (!word) return badge('good', 'Healthy');
  return badge(word === 'Cordoned' ? 'off' : word === 'Unhealthy' || word === 'Missing' ? 'bad' : 'warn', word);
}

/** Why a GPU isn't healthy or takes no pods; undefined if it is and does. */
export function troubleText(gpu) {
  const cordon = gpu.cordoned ? "in the GpuNode's spec.unschedulableCards" : undefined;
  const health = gpu.health === 'Healthy' ? undefined : (gpu.reason ?? `divvy-node reports it as ${gpu.health}`);
  return [health, cordon].filter(Boolean).join('; ') || undefined;
}

/** `52Gi of 80Gi`. */
export const heldOf = ({ held, capacity }) => (capacity > 0 ? `${memory(held)} of ${memory(capacity)}` : memory(held));
export const coresOf = ({ held, capacity }) => `${number(held)} of ${number(capacity)}`;

function segmentText(part, of) {
  const amount = of === 'memoryMi' ? memory(part.amount) : `${number(part.amount)} cores`;
  if (part.pod) return `${part.kind} by pod ${part.pod.namespace}/${part.pod.pod}: ${amount}`;
  return `${part.kind}: ${amount}`;
}

/** Where what a pod uses ends, in percent of what it holds. */
function usedPart(used, held) {
  return used === undefined || held === 0 ? undefined : `${Math.min(100, (100 * used) / held)}%`;
}

/**
 * The bar of a GPU: who holds what. The text beside it says the same in figures, so it is hidden from screen readers,
 * and its links are for the pointer. `usage` shows how much of it is used; pods for which `isDim(pod)` holds are
 * dimmed.
 */
export function bar(gpu, of, { usage, isDim } = {}) {
  const parts = segments(gpu, of).map((part, at) => {
    const style = { left: `${100 * part.from}%`, width: `${100 * part.size}%` };
    const title = segmentText(part, of);
    if (!part.pod) return h('span', { key: `${part.kind}${at}`, class: `segment ${part.kind}`, style, title });
    style['--hue'] = String(hueOf(part.pod.namespace));
    const used = part.kind === 'held' ? usedPart(usage?.ofPod(gpu.uuid, part.pod.podUid)[of], part.amount) : undefined;
    const properties = {
      key: `${part.kind}${part.pod.podUid}`,
      class: `segment ${part.kind}${isDim?.(part.pod) ? ' dim' : ''}`,
      href: podLink(part.pod.namespace, part.pod.pod),
      tabindex: '-1',
      style,
      title,
    };
    return h(
      'a',
      properties,
      of === 'memoryMi' && h('span', { class: 'label' }, part.pod.pod),
      used && h('span', { class: 'used', style: { width: used } }),
    );
  });
  return h('span', { class: `bar ${of === 'memoryMi' ? 'memory' : 'cores'}`, 'aria-hidden': 'true' }, parts);
}

/** What the parts of bars mean. */
export function barLegend(...more) {
  const item = (kind, text) =>
    h('span', { class: 'legend' }, h('span', { class: `chip ${kind}`, 'aria-hidden': 'true' }), text);
  return h(
    'p',
    { class: 'legends quiet' },
    'Each GPU: memory, and cores below it. ',
    item('held', 'held, by namespace'),
    item('used', 'used'),
    item('reserved', 'reserved'),
    item('free', 'free'),
    item('unavailable', 'not available'),
    more,
  );
}

/** A bar of sums: held, reserved, free, and what nobody gets now. */
export function sumBar({ capacity, held, reserved, free }) {
  const whole = Math.max(capacity, held + reserved + free, 1);
  const part = (kind, amount) => h('span', { class: kind, style: { width: `${(100 * amount) / whole}%` } });
  return h(
    'span',
    { class: 'sum-bar', 'aria-hidden': 'true' },
    part('held', held),
    part('reserved', reserved),
    part('free', free),
  );
}

/** A thin bar with its percentage. */
export function meter({ held, capacity }, text) {
  const width = `${Math.min(100, capacity > 0 ? (100 * held) / capacity : 0)}%`;
  return h(
    'span',
    { class: 'meter' },
    h('span', { class: 'track', 'aria-hidden': 'true' }, h('span', { style: { width } })),
    h('span', { class: 'percent' }, `${percent(held, capacity)} %`),
    text && h('span', { class: 'quiet' }, text),
  );
}

/** `3Gi of 8Gi`, or `8Gi` where usage isn't known. */
export const usedMemory = used => (used === undefined ? '–' : memory(used));
export const usedCores = used => (used === undefined ? '–' : `${number(used)} %`);

/** Amounts of a share or reservation as they were requested. */
export const requestedMemory = share =>
  share.exclusive ? `${exactMemory(share.memoryMi)} (whole GPU)` : exactMemory(share.memoryMi);

/** A command, with a button that copies it; main.js has the handler. */
export function command(text) {
  return h(
    'div',
    { class: 'command' },
    h('code', null, text),
    h('button', { type: 'button', class: 'copy', 'data-copy': text, 'aria-label': `Copy the command ${text}` }, 'Copy'),
  );
}

/** A table of few rows; `rows` are lists of cells. */
export function table(label, titles, rows, properties) {
  return h(
    'div',
    { class: 'scroll' },
    h(
      'table',
      { 'aria-label': label, ...properties },
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          titles.map(title => h('th', { scope: 'col' }, title)),
        ),
      ),
      h(
        'tbody',
        null,
        rows.map(cells =>
          h(
            'tr',
            null,
            cells.map(cell => h('td', null, cell)),
          ),
        ),
      ),
    ),
  );
}

/** A section with a heading. */
export function section(title, properties, ...children) {
  return h('section', { 'aria-label': title, ...properties }, h('h2', null, title), children);
}

/** Figures of what is held, reserved and free of an amount, in words. */
export function figures(gpu, of) {
  const { capacity, held, reserved, free } = divided(gpu, of);
  const text = of === 'memoryMi' ? memory : number;
  const parts = [
    capacity > 0 ? `${text(held)} of ${text(capacity)} held` : `${text(held)} held, the capacity isn't reported`,
  ];
  if (reserved > 0) parts.push(`${text(reserved)} reserved`);
  parts.push(`${text(free)} free`);
  return parts.join(', ');
}
