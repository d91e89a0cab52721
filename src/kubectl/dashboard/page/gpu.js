// One GPU: what it is, how it is, and who holds and uses what of it.

import { h, render } from './dom.js';
import { memory, number } from './format.js';
import {
  badge,
  bar,
  figures,
  gpuName,
  healthBadge,
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

function facts(gpu) {
  const facts = [];
  if (gpu.mig) facts.push(`MIG ${gpu.mig}`);
  if (gpu.tier) facts.push(`Isolation tier ${gpu.tier}`);
  if (gpu.slots !== undefined) facts.push(`At most ${number(gpu.slots)} containers`);
  if (gpu.numa !== undefined) facts.push(`NUMA node ${gpu.numa}`);
  if (gpu.utilization !== undefined) facts.push(`${gpu.utilization} % utilization`);
  if (gpu.hostMemoryMi > 0) facts.push(`${memory(gpu.hostMemoryMi)} of host memory held`);
  return facts.map(fact => h('span', { class: 'fact' }, fact));
}

function notes(share) {
  const notes = [];
  if (share.exclusive) notes.push('exclusive');
  if (share.byHardware) notes.push('enforced by hardware');
  if (share.adopted) notes.push('allocated by another device plugin');
  return notes.join(', ');
}

function shareTable(gpu, usage, name) {
  if (gpu.shares.length === 0) return h('p', { class: 'quiet' }, 'No pod holds a share of it.');
  const hasHost = gpu.shares.some(share => share.hostMemoryMi > 0);
  const titles = ['Pod', 'Namespace', 'Container', 'Kind', 'Memory held', hasHost && 'of it host memory', 'Cores held'];
  if (usage) titles.push('Memory used', 'Compute used', 'Processes');
  const hasNotes = gpu.shares.some(notes);
  if (hasNotes) titles.push('Notes');
  const rows = gpu.shares.map(share => {
    const cells = [podName(share), namespaceName(share.namespace), share.container, share.kind, requestedMemory(share)];
    if (hasHost) cells.push(memory(share.hostMemoryMi));
    cells.push(number(share.cores));
    if (usage) {
      const used = usage.ofShare(gpu.uuid, share);
      cells.push(
        usedMemory(used.memoryMi),
        usedCores(used.cores),
        used.processes === undefined ? '–' : number(used.processes),
      );
    }
    return hasNotes ? [...cells, notes(share)] : cells;
  });
  return table(`Shares of GPU ${name}`, titles.filter(Boolean), rows, { class: 'even' });
}

function reservations(gpu) {
  if (gpu.reserved.length === 0) return undefined;
  const one = reserved =>
    h(
      'li',
      null,
      'Reserved for pod ',
      podName(reserved),
      ' in ',
      namespaceName(reserved.namespace),
      `: ${requestedMemory(reserved)}, ${number(reserved.cores)} cores`,
    );
  return h('ul', { class: 'plain' }, gpu.reserved.map(one));
}

/** A GPU with everything that is known of it. `usage` is absent where it isn't known. */
export function gpuDetails(gpu, name, usage) {
  const trouble = troubleText(gpu);
  const details = [
    h(
      'div',
      { class: 'bars' },
      h('span', { class: 'what' }, 'Memory'),
      bar(gpu, 'memoryMi', { usage }),
      h('span', { class: 'figures' }, figures(gpu, 'memoryMi')),
      h('span', { class: 'what' }, 'Cores'),
      bar(gpu, 'cores', { usage }),
      h('span', { class: 'figures' }, figures(gpu, 'cores')),
    ),
    shareTable(gpu, usage, name),
    reservations(gpu),
  ];
  return h(
    'article',
    { class: `gpu${trouble ? ' troubled' : ''}`, key: gpu.uuid, 'aria-label': `GPU ${name}` },
    h(
      'div',
      { class: 'gpu-title' },
      h('h3', null, gpuName(gpu.uuid, name)),
      gpu.model && h('span', null, gpu.model),
      healthBadge(gpu),
      gpu.health !== 'Healthy' && gpu.cordoned && badge('off', 'Cordoned'),
      gpu.exclusive && badge('info', 'Exclusive'),
      facts(gpu),
    ),
    trouble && h('p', { class: 'trouble' }, trouble),
    details,
  );
}

/** Why usage isn't known, or isn't known in full; nothing where it is, or isn't yet. */
export function usageNote({ usage, error }) {
  if (error) return h('p', { class: 'note' }, `Used memory and compute aren't known: ${error}`);
  if (usage?.unmeasured) return h('p', { class: 'note' }, `Used memory is known in part: ${usage.unmeasured}`);
  return undefined;
}

export function findings(list) {
  if (!list || list.length === 0) return undefined;
  const items = list.map(finding =>
    h('li', null, badge('warn', String(finding.kind)), ' ', String(finding.message ?? '')),
  );
  return section('Use beyond shares', { class: 'panel attention' }, h('ul', { class: 'plain' }, items));
}

/** The view of one GPU. */
export function gpuView(app, { uuid }) {
  let parent;
  function draw() {
    const entry = app.cluster.nodeOfGpu(uuid);
    app.usage.watch(entry ? [entry.name] : []);
    if (!entry) {
      render(
        parent,
        h('h1', { tabindex: '-1' }, `GPU ${uuid}`),
        h('p', null, app.cluster.synced ? 'No node reports a GPU of this UUID.' : 'Not loaded yet.'),
      );
      return;
    }
    const answer = app.usage.of(entry.name);
    const gpu = entry.node.gpus.find(one => one.uuid === uuid);
    const found = answer.usage?.findings.filter(finding => finding.card === uuid);
    render(
      parent,
      h('h1', { tabindex: '-1', class: 'mono' }, uuid),
      h(
        'p',
        { class: 'lead' },
        `GPU of node `,
        nodeName(entry.name),
        !entry.node.takesPods && badge('off', 'Node takes no pods'),
      ),
      usageNote(answer),
      findings(found),
      gpuDetails(gpu, uuid, answer.usage),
    );
  }
  return { title: uuid, show: element => ((parent = element), draw()), update: draw };
}
