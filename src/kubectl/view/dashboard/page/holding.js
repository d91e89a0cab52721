// Who holds how much of a GPU, and what that adds up to.

/** Memory of a share that is on the GPU; the rest is the node's. */
const onGpu = share => Math.max(0, share.memoryMi - share.hostMemoryMi);

/**
 * Pods on a GPU, with what each holds there. Its init containers hold their shares one after another, so a pod holds
 * the larger of the largest of them and the sum of its others.
 */
export function holders(gpu) {
  const pods = new Map();
  for (const share of gpu.shares) {
    let pod = pods.get(share.podUid);
    if (!pod) {
      const { podUid, namespace, pod: name } = share;
      pod = { podUid, namespace, pod: name, memoryMi: 0, cores: 0, exclusive: false, init: { memoryMi: 0, cores: 0 } };
      pods.set(podUid, pod);
    }
    if (share.kind === 'init') {
      pod.init.memoryMi = Math.max(pod.init.memoryMi, onGpu(share));
      pod.init.cores = Math.max(pod.init.cores, share.cores);
    } else {
      pod.memoryMi += onGpu(share);
      pod.cores += share.cores;
    }
    pod.exclusive ||= share.exclusive;
  }
  return [...pods.values()].map(({ init, ...pod }) => ({
    ...pod,
    memoryMi: Math.max(pod.memoryMi, init.memoryMi),
    cores: Math.max(pod.cores, init.cores),
  }));
}

/** What of a GPU is held, reserved and free; `of` is `memoryMi` or `cores`. */
export function divided(gpu, of) {
  const { total, capacity, held, free } = gpu[of];
  const reserved = gpu.reserved.some(reservation => reservation.exclusive)
    ? free
    : Math.min(
        free,
        gpu.reserved.reduce((sum, reservation) => sum + reservation[of], 0),
      );
  return { total, capacity, held, reserved, free: free - reserved };
}

/**
 * Parts of a GPU's bar, from 0 to 1: `held` and `reserved` by pods, `free`, and `unavailable`, which nobody holds and
 * no pod gets.
 */
export function segments(gpu, of) {
  const { capacity, held, reserved, free } = divided(gpu, of);
  const parts = holders(gpu)
    .filter(pod => pod[of] > 0)
    .map(pod => ({ kind: 'held', amount: pod[of], pod }));
  const named = parts.reduce((sum, part) => sum + part.amount, 0);
  if (held > named) parts.push({ kind: 'held', amount: held - named });
  if (reserved > 0) {
    const wanted = gpu.reserved.map(pod => (pod.exclusive ? capacity : pod[of]));
    const sum = wanted.reduce((one, other) => one + other, 0);
    gpu.reserved.forEach((pod, at) => {
      if (wanted[at] > 0) parts.push({ kind: 'reserved', amount: (reserved * wanted[at]) / sum, pod });
    });
  }
  if (free > 0) parts.push({ kind: 'free', amount: free });
  const used = parts.reduce((sum, part) => sum + part.amount, 0);
  const whole = Math.max(capacity, used);
  if (whole === 0) return [{ kind: 'unavailable', amount: 0, from: 0, size: 1 }];
  if (whole > used) parts.push({ kind: 'unavailable', amount: whole - used });
  let from = 0;
  return parts.map(part => {
    const size = part.amount / whole;
    const placed = { ...part, from, size };
    from += size;
    return placed;
  });
}

/** Whether a GPU is anything but healthy, in words for people; undefined if all is well. */
export function trouble(gpu) {
  if (gpu.health !== 'Healthy') return gpu.health;
  return gpu.cordoned ? 'Cordoned' : undefined;
}
