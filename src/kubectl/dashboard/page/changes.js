// What happened between two reports of a node, in words.

import { count, exactMemory, shortId } from './format.js';

const amountsOf = pod => {
  const cores = pod.cores > 0 ? `, ${count(pod.cores, 'core')}` : '';
  return `${count(pod.gpus, 'GPU')}, ${exactMemory(pod.memoryMi)}${cores}`;
};

function podChanges(before, after) {
  const texts = [];
  const known = new Map(before.summary.pods.map(pod => [pod.uid, pod]));
  for (const pod of after.summary.pods) {
    const was = known.get(pod.uid);
    known.delete(pod.uid);
    const name = `${pod.namespace}/${pod.name}`;
    if (!was) texts.push(`${pod.reserved ? 'reserved for' : 'held by'} pod ${name}: ${amountsOf(pod)}`);
    else if (was.reserved && !pod.reserved) texts.push(`held by pod ${name}: ${amountsOf(pod)}`);
    else if (was.memoryMi !== pod.memoryMi || was.cores !== pod.cores || was.gpus !== pod.gpus) {
      texts.push(`pod ${name} now has ${amountsOf(pod)}`);
    }
  }
  for (const pod of known.values()) {
    texts.push(
      `pod ${pod.namespace}/${pod.name} ${pod.reserved ? 'has no reservation any more' : 'ended'}: ${amountsOf(pod)}`,
    );
  }
  return texts;
}

function gpuChanges(before, after) {
  const texts = [];
  const known = new Map(before.node.gpus.map(gpu => [gpu.uuid, gpu]));
  for (const gpu of after.node.gpus) {
    const was = known.get(gpu.uuid);
    known.delete(gpu.uuid);
    const name = `GPU ${shortId(gpu.uuid)}`;
    if (!was) texts.push(`${name} appeared: ${gpu.health}`);
    else {
      if (was.health !== gpu.health) texts.push(`${name} is ${gpu.health}${gpu.reason ? `: ${gpu.reason}` : ''}`);
      if (was.cordoned !== gpu.cordoned) texts.push(`${name} is ${gpu.cordoned ? 'cordoned' : 'no longer cordoned'}`);
    }
  }
  for (const uuid of known.keys()) texts.push(`GPU ${shortId(uuid)} is gone`);
  return texts;
}

function conditionChanges(before, after) {
  const known = new Map(before.node.conditions.map(condition => [condition.type, condition.status]));
  return after.node.conditions
    .filter(condition => known.get(condition.type) !== condition.status)
    .map(({ type, status, reason, message }) => `${type} is ${status} (${reason})${message ? `: ${message}` : ''}`);
}

/** A sentence for each change from one state of a node to another; either may be undefined. */
export function changes(before, after) {
  if (!before) return ['the node appeared'];
  if (!after) return ['the node is gone'];
  const texts = [];
  if (before.node.takesPods !== after.node.takesPods) {
    const [problem] = after.node.problems;
    texts.push(after.node.takesPods ? 'takes pods again' : `takes no pods${problem ? `: ${problem}` : ''}`);
  }
  texts.push(...conditionChanges(before, after), ...gpuChanges(before, after), ...podChanges(before, after));
  return texts;
}
