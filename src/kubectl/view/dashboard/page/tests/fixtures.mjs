// Reports as the server sends them.

export const amounts = (capacity, held = 0, free = capacity - held) => ({ total: capacity, capacity, held, free });

export const share = (pod, memoryMi, cores = 0, more = {}) => ({
  namespace: 'team',
  pod,
  podUid: `uid-${pod}`,
  container: 'main',
  kind: 'app',
  memoryMi,
  cores,
  ...more,
});

export function card(uuid, shares = [], more = {}) {
  const held = shares.reduce((sum, one) => sum + one.memoryMi, 0);
  const cores = shares.reduce((sum, one) => sum + one.cores, 0);
  return {
    uuid,
    model: 'NVIDIA L40S',
    health: 'Healthy',
    cordoned: false,
    exclusive: false,
    pods: shares.length,
    memoryMi: amounts(1000, held),
    cores: amounts(100, cores),
    shares,
    ...more,
  };
}

export const node = (name, cards, more = {}) => ({
  name,
  takesPods: true,
  tier: 'shim',
  problems: [],
  conditions: [],
  cards,
  reservations: [],
  ...more,
});

export const reservation = (uuid, pod, memoryMi, cores = 0, more = {}) => ({
  card: uuid,
  uid: `uid-${pod}`,
  namespace: 'team',
  pod,
  memoryMi,
  cores,
  exclusive: false,
  ...more,
});
