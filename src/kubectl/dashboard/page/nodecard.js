// One node of the overview.

import { h } from './dom.js';
import { count, memory, number, shortIds, shortModel } from './format.js';
import { divided } from './holding.js';
import { badge, bar, gpuName, healthBadge, heldOf, nodeName, troubleText } from './parts.js';

/** What is to be known of a node's state in one line. */
export function states({ node, summary }) {
  const marks = [];
  if (!node.takesPods) marks.push(badge('off', 'Takes no pods'));
  if (summary.unhealthy > 0) marks.push(badge('bad', `${number(summary.unhealthy)} not healthy`));
  if (summary.cordoned > 0) marks.push(badge('off', `${number(summary.cordoned)} cordoned`));
  if (node.reservations.length > 0) marks.push(badge('info', `${number(node.reservations.length)} reserved`));
  const [problem] = node.problems;
  if (marks.length === 0 && !problem) return h('span', { class: 'quiet' }, 'Takes pods');
  return [marks, problem && h('span', { class: 'problem' }, problem)];
}

/** A node with a bar for each GPU. */
export function nodeCard({ name, node, summary }, { usage, namespace, model }) {
  const names = shortIds(node.gpus.map(gpu => gpu.uuid));
  const models = [...summary.models].map(([text, gpus]) => `${gpus} × ${shortModel(text)}`).join(', ');
  const [problem, ...more] = node.problems;
  return h(
    'article',
    { class: 'node-card', key: name, 'data-node': name, 'aria-label': `Node ${name}` },
    h('div', { class: 'node-title' }, h('h3', null, nodeName(name)), !node.takesPods && badge('off', 'Takes no pods')),
    h(
      'p',
      { class: 'quiet' },
      [models, node.tier && `tier ${node.tier}`, count(summary.holding, 'pod')].filter(Boolean).join(' · '),
    ),
    problem && h('p', { class: 'trouble' }, problem, more.length > 0 && ` (and ${more.length} more)`),
    node.gpus.length === 0 && h('p', { class: 'quiet' }, 'No GPUs reported.'),
    h(
      'ul',
      { class: 'gpus plain' },
      node.gpus.map((gpu, at) => gpuLine(gpu, names[at], { usage, namespace, isDim: model && gpu.model !== model })),
    ),
  );
}

function gpuLine(gpu, name, { usage, namespace, isDim: isDimLine }) {
  const isDim = pod => namespace && pod.namespace !== namespace;
  const why = troubleText(gpu);
  const { held, reserved, capacity } = divided(gpu, 'memoryMi');
  return h(
    'li',
    { key: gpu.uuid, class: isDimLine ? 'gpu-line dim' : 'gpu-line' },
    gpuName(gpu.uuid, name),
    h('span', { class: 'two-bars' }, bar(gpu, 'memoryMi', { usage, isDim }), bar(gpu, 'cores', { usage, isDim })),
    h(
      'span',
      { class: 'figures' },
      heldOf({ held, capacity }),
      reserved > 0 && h('span', { class: 'quiet' }, ` +${memory(reserved)} reserved`),
    ),
    why && h('span', { class: 'why' }, healthBadge(gpu), ' ', why),
  );
}
