// What the server sends, made complete: absent fields get a value here, so that no other module has to ask.

const texts = new Map();

/** One copy of texts that thousands of GPUs share, such as models. */
function shared(text) {
  const known = texts.get(text);
  if (known !== undefined) return known;
  texts.set(text, text);
  return text;
}

const list = value => (Array.isArray(value) ? value : []);
const text = value => (value === undefined || value === null ? '' : String(value));
const optionalText = value => (value === undefined || value === null || value === '' ? undefined : String(value));
const sharedText = value => (value === undefined || value === null || value === '' ? undefined : shared(String(value)));
const amount = value => (Number.isFinite(value) && value > 0 ? value : 0);
const optionalAmount = value => (Number.isFinite(value) ? value : undefined);

function amounts(value) {
  return {
    total: amount(value?.total),
    capacity: amount(value?.capacity ?? value?.total),
    held: amount(value?.held),
    free: amount(value?.free),
  };
}

function share(value) {
  return {
    namespace: shared(text(value.namespace)),
    pod: text(value.pod),
    podUid: text(value.podUid),
    container: shared(text(value.container)),
    kind: shared(text(value.kind || 'app')),
    memoryMi: amount(value.memoryMi),
    hostMemoryMi: amount(value.hostMemoryMi),
    cores: amount(value.cores),
    exclusive: value.exclusive === true,
    byHardware: value.byHardware === true,
    adopted: value.adopted === true,
  };
}

function reservation(value) {
  return {
    uuid: text(value.card),
    podUid: text(value.uid),
    namespace: shared(text(value.namespace)),
    pod: text(value.pod),
    memoryMi: amount(value.memoryMi),
    cores: amount(value.cores),
    exclusive: value.exclusive === true,
  };
}

function gpu(value, reservations) {
  const uuid = text(value.uuid);
  return {
    uuid,
    model: sharedText(value.model),
    health: shared(text(value.health || 'Unknown')),
    reason: sharedText(value.reason),
    cordoned: value.cordoned === true,
    exclusive: value.exclusive === true,
    numa: optionalAmount(value.numa),
    mig: sharedText(value.mig),
    tier: sharedText(value.tier),
    slots: optionalAmount(value.slots),
    utilization: optionalAmount(value.utilization),
    topology: sharedText(value.topology),
    memoryMi: amounts(value.memoryMi),
    hostMemoryMi: amount(value.hostMemoryMi),
    cores: amounts(value.cores),
    shares: list(value.shares).map(share),
    reserved: reservations.filter(reserved => reserved.uuid === uuid),
  };
}

function condition(value) {
  return {
    type: shared(text(value.type)),
    status: shared(text(value.status)),
    reason: shared(text(value.reason)),
    message: shared(text(value.message)),
    since: optionalText(value.lastTransitionTime),
  };
}

/** A node as `nodes` messages have it. */
export function readNode(value) {
  const reservations = list(value.reservations).map(reservation);
  const oversubscription = value.oversubscription && {
    memoryScale: amount(value.oversubscription.memoryScale),
    hostMemoryMi: amounts(value.oversubscription.hostMemoryMi),
  };
  return {
    name: text(value.name),
    takesPods: value.takesPods === true,
    tier: sharedText(value.tier),
    clique: sharedText(value.clique),
    oversubscription,
    ledgerRevision: optionalAmount(value.ledgerRevision),
    problems: list(value.problems).map(text),
    conditions: list(value.conditions).map(condition),
    gpus: list(value.cards).map(card => gpu(card, reservations)),
    reservations,
  };
}

/** A pod as `pods` messages have it. */
export function readPod(value) {
  return {
    uid: text(value.uid),
    namespace: shared(text(value.namespace)),
    name: text(value.name),
    created: optionalText(value.created),
    createdAt: Date.parse(text(value.created)),
    priority: Number.isFinite(value.priority) ? value.priority : 0,
    phase: value.phase === 'bound' ? 'bound' : 'waiting',
    node: optionalText(value.node),
    nominated: optionalText(value.nominated),
    asks: text(value.asks),
    models: list(value.models).map(text),
    reason: optionalText(value.reason),
    verdict: text(value.verdict),
    fitting: amount(value.fitting),
  };
}
