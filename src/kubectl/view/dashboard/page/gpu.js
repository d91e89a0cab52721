// One GPU: what it is, how it is, and who holds and uses what of it.

import { h } from './dom.js';
import { memory, number, shortId } from './format.js';
import {
  absent,
  badge,
  bar,
  figures,
  gpuName,
  healthBadge,
  known,
  namespaceName,
  nodeName,
  podName,
  requestedMemory,
  section,
  table,
  troubleText,
  usedCores,
  usedMemory,
} from './parts.js';
import { objectView } from './views.js';

function facts(gpu) {
  const facts = [];
  if (gpu.mig) facts.push(`MIG ${gpu.mig}`);
  if (gpu.tier) facts.push(`Isolation tier ${gpu.tier}`);
  if (gpu.slots !== undefined) facts.push(`At most ${number(gpu.slots)} containers`);
  if (gpu.numa !== undefined) facts.push(`NUMA node ${gpu.numa}`);
  if (gpu.utilization !== undefined) facts.push(`${gpu.utilization} % utilization`);
  if (gpu.hostMemoryMi > 0) facts.push(`${memory(gpu.hostMemoryMi)} of host memory held`);
  return facts.map(fact => h('span.fact', fact));
}

function notes(share) {
  const notes = [];
  if (share.exclusive) notes.push('exclusive');
  if (share.byHardware) notes.push('enforced by hardware');
  if (share.adopted) notes.push('allocated by another device plugin');
  return notes.join(', ');
}

function shareTable(gpu, usage, name) {
  if (gpu.shares.length === 0) return h('p.quiet', 'No pod holds a share of it.');
  const usedOf = share => usage.ofShare(gpu.uuid, share);
  const columns = [
    ['Pod', podName],
    ['Namespace', share => namespaceName(share.namespace)],
    ['Container', share => share.container],
    ['Kind', share => share.kind],
    ['Memory held', requestedMemory],
    gpu.shares.some(share => share.hostMemoryMi > 0) && ['of it host memory', share => memory(share.hostMemoryMi)],
    ['Cores held', share => number(share.cores)],
    usage && ['Memory used', share => usedMemory(usedOf(share))],
    usage && ['Compute used', share => usedCores(usedOf(share))],
    usage && ['Processes', share => known(usedOf(share).processes, number)],
    gpu.shares.some(notes) && ['Notes', notes],
  ];
  return table(`Shares of GPU ${name}`, columns, gpu.shares, { class: 'even' });
}

function reservation(reserved) {
  const amounts = `: ${requestedMemory(reserved)}, ${number(reserved.cores)} cores`;
  return h('li', 'Reserved for pod ', podName(reserved), ' in ', namespaceName(reserved.namespace), amounts);
}

/** A GPU with everything that is known of it. `usage` is absent where it isn't known. */
export function gpuDetails(gpu, name, usage) {
  const trouble = troubleText(gpu);
  const amount = (title, of) => [h('span.what', title), bar(gpu, of, { usage }), h('span.figures', figures(gpu, of))];
  return h(
    'article',
    { class: `gpu${trouble ? ' troubled' : ''}`, key: gpu.uuid, 'aria-label': `GPU ${name}` },
    h(
      'div.gpu-title',
      h('h3', gpuName(gpu.uuid, name)),
      gpu.model && h('span', gpu.model),
      healthBadge(gpu),
      gpu.health !== 'Healthy' && gpu.cordoned && badge('off', 'Cordoned'),
      gpu.exclusive && badge('info', 'Exclusive'),
      facts(gpu),
    ),
    trouble && h('p.trouble', trouble),
    h('div.bars', amount('Memory', 'memoryMi'), amount('Cores', 'cores')),
    shareTable(gpu, usage, name),
    gpu.reserved.length > 0 && h('ul.plain', gpu.reserved.map(reservation)),
  );
}

/** Why usage isn't known, or isn't known in full; nothing where it is, or isn't yet. */
export function usageNote({ usage, error }) {
  if (error) return h('p.note', `Used memory and compute aren't known: ${error}`);
  if (usage?.unmeasured) return h('p.note', `Used memory is known in part: ${usage.unmeasured}`);
  return undefined;
}

export function findings(list) {
  if (!list || list.length === 0) return undefined;
  const items = list.map(finding => h('li', badge('warn', String(finding.kind)), ' ', String(finding.message ?? '')));
  return section('Use beyond shares', 'panel.attention', h('ul.plain', items));
}

/** The view of one GPU. */
export function gpuView(app, { uuid }) {
  function describe() {
    const entry = app.cluster.nodeOfGpu(uuid);
    app.usage.watch(entry ? [entry.name] : []);
    if (!entry) return absent(app.cluster, `GPU ${uuid}`, 'No node reports a GPU of this UUID.');
    const answer = app.usage.of(entry.name);
    const gpu = entry.node.gpus.find(one => one.uuid === uuid);
    return [
      h('h1.mono', { tabindex: '-1' }, uuid),
      h('p.lead', 'GPU of node ', nodeName(entry.name), !entry.node.takesPods && badge('off', 'Node takes no pods')),
      usageNote(answer),
      findings(answer.usage?.findings.filter(finding => finding.card === uuid)),
      gpuDetails(gpu, shortId(uuid), answer.usage),
    ];
  }
  return objectView(uuid, describe);
}
