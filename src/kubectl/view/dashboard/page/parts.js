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
/** The link of a table's row; `isStop` is whether it can be reached by Tab. */
export const rowName = (href, text, isStop) => link(href, text, { class: 'name', tabindex: isStop ? '0' : '-1' });
export const gpuName = (uuid, text = shortId(uuid)) => link(gpuLink(uuid), text, { class: 'name mono' });

/** A word with a mark before it, so that it isn't told by its colour alone. */
export function badge(kind, text) {
  const marks = { good: '✓', bad: '✕', warn: '!', off: '⊘', info: '' };
  const mark = marks[kind];
  return h('span', { class: `badge ${kind}` }, mark && h('span', { 'aria-hidden': 'true', class: 'mark' }, mark), text);
}

/** The kind of badge that a GPU's health has. */
export function healthKind(gpu) {
  const word = trouble(gpu);
  if (!word) return 'good';
  if (word === 'Cordoned') return 'off';
  return word === 'Unhealthy' || word === 'Missing' ? 'bad' : 'warn';
}

/** Health of a GPU in a word. */
export const healthBadge = gpu => badge(healthKind(gpu), trouble(gpu) ?? 'Healthy');

/** Why a GPU isn't healthy or takes no pods; undefined if it is and does. */
export function troubleText(gpu) {
  const cordon = gpu.cordoned ? "in the GpuNode's spec.unschedulableCards" : undefined;
  const health = gpu.health === 'Healthy' ? undefined : (gpu.reason ?? `divvy-node reports it as ${gpu.health}`);
  return [health, cordon].filter(Boolean).join('; ') || undefined;
}

function segmentText(part, of) {
  const amount = of === 'memoryMi' ? memory(part.amount) : `${number(part.amount)} cores`;
  if (part.pod) return `${part.kind} by pod ${part.pod.namespace}/${part.pod.pod}: ${amount}`;
  return `${part.kind}: ${amount}`;
}

/** Where what a pod uses ends, in percent of what it holds. */
function usedPart(used, held) {
  return used === undefined || held === 0 ? undefined : `${Math.min(100, (100 * used) / held)}%`;
}

/** Part of a small bar from which on a pod is named in it. */
const NAMED = 0.5;

/**
 * The bar of a GPU: who holds what. The text beside it says the same in figures, so it is hidden from screen readers,
 * and its links are for the pointer. `usage` shows how much of it is used; pods for which `isDim(pod)` holds are
 * dimmed. A small one has no element that it can do without: a table has thousands.
 */
export function bar(gpu, of, { usage, isDim, isSmall } = {}) {
  const shown = segments(gpu, of).filter(part => !isSmall || part.kind !== 'free');
  const parts = shown.map((part, at) => {
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
      of === 'memoryMi' && (!isSmall || part.size >= NAMED) && h('span.label', part.pod.pod),
      used && h('span.used', { style: { width: used } }),
    );
  });
  return h('span', { class: `bar ${of === 'memoryMi' ? 'memory' : 'cores'}`, 'aria-hidden': 'true' }, parts);
}

/** Both bars of a GPU, of memory and of cores below it, as small ones. */
export function smallBars(gpu, options) {
  return ['memoryMi', 'cores'].map(of => bar(gpu, of, { ...options, isSmall: true }));
}

/** What the parts of bars mean. */
export function barLegend(...more) {
  const item = (kind, text) => h('span.legend', h('span', { class: `chip ${kind}`, 'aria-hidden': 'true' }), text);
  return h(
    'p.legends.quiet',
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
function sumBar({ capacity, held, reserved, free }) {
  const whole = Math.max(capacity, held + reserved + free, 1);
  const part = (kind, amount) => h('span', { class: kind, style: { width: `${(100 * amount) / whole}%` } });
  const parts = [part('held', held), part('reserved', reserved), part('free', free)];
  return h('span.sum-bar', { 'aria-hidden': 'true' }, parts);
}

/** A thin bar with its percentage. */
export function meter({ held, capacity }) {
  const width = `${Math.min(100, capacity > 0 ? (100 * held) / capacity : 0)}%`;
  return h(
    'span.meter',
    h('span.track', { 'aria-hidden': 'true' }, h('span', { style: { width } })),
    h('span.percent', `${percent(held, capacity)} %`),
  );
}

/** An amount as `text` writes it; a dash where it isn't known. */
export const known = (amount, text) => (amount === undefined ? '–' : text(amount));
/** What a container uses of its share. */
export const usedMemory = used => known(used.memoryMi, memory);
export const usedCores = used => known(used.cores, cores => `${number(cores)} %`);

/** Amounts of a share or reservation as they were requested. */
export const requestedMemory = share =>
  share.exclusive ? `${exactMemory(share.memoryMi)} (whole GPU)` : exactMemory(share.memoryMi);

/** A command, with a button that copies it; main.js has the handler. */
export function command(text) {
  return h(
    'div.command',
    h('code', text),
    h('button', { type: 'button', class: 'copy', 'data-copy': text, 'aria-label': `Copy the command ${text}` }, 'Copy'),
  );
}

/** A table of few rows, one for each item. `columns` are pairs of a title and `cell(item)`; absent ones are left out. */
export function table(label, columns, items, properties) {
  const shown = columns.filter(Boolean);
  const head = shown.map(([title]) => h('th', { scope: 'col' }, title));
  const body = items.map(item =>
    h(
      'tr',
      shown.map(([, cell]) => h('td', cell(item))),
    ),
  );
  return h(
    'div.scroll',
    h('table', { 'aria-label': label, ...properties }, h('thead', h('tr', head)), h('tbody', body)),
  );
}

/** A section with a heading, of these classes. */
export const section = (title, classes, ...children) =>
  h(`section.${classes}`, { 'aria-label': title }, h('h2', title), children);

/** The view of something that isn't there, or isn't yet. */
export const absent = ({ synced }, title, text) => [
  h('h1', { tabindex: '-1' }, title),
  h('p', synced ? text : 'Not loaded yet.'),
];

/** A figure under a title, with more below it. */
export const tile = (title, figure, ...rest) => h('div.tile', h('h2', title), h('p.figure', figure), rest);

/** What of a sum is held, reserved and free; `text` writes an amount. */
export function amountTile(title, sum, text) {
  const { capacity, held, reserved = 0, free } = sum;
  const parts = [`${text(held)} held`, reserved > 0 && `${text(reserved)} reserved`, `${text(free)} free`];
  return tile(
    title,
    [`${percent(held, capacity)} %`, h('small', ` of ${text(capacity)}`)],
    sumBar({ capacity, held, reserved, free }),
    h('p.quiet', parts.filter(Boolean).join(' · ')),
  );
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
