// An explanation's nodes by their answer.

/** Answers in the order in which they help, with their names for people. */
export const FITS = {
  now: 'Fit now',
  barred: 'Fit, but the Node is cordoned or not ready',
  byEviction: 'Fit once pods of lower priority are evicted',
  later: 'Fit once other pods end, or the node or its GPUs are healthy',
  unknown: 'Not evaluated in time',
  never: 'Never fit, even if all their GPUs were healthy and free',
};

/** A reason without its figures: `Insufficient GPUs (short of memory; unhealthy)`. */
const withoutFigures = reason => reason.replace(/, [^,;)]*\d[^,;)]*(?=[;)])/g, '').replace(/\b\d+ /g, '');

/** Groups of nodes with the same answer, and the same reason but for figures: `{fits, title, reason, nodes}`. */
export function groups(nodes) {
  const found = new Map();
  for (const node of nodes) {
    const reason = node.reason && withoutFigures(node.reason);
    const key = `${node.fits}\n${reason ?? ''}`;
    const group = found.get(key);
    if (group) {
      group.nodes.push(node);
      if (group.reason !== node.reason) group.reason = reason;
    } else
      found.set(key, { key, fits: node.fits, title: FITS[node.fits] ?? node.fits, reason: node.reason, nodes: [node] });
  }
  const order = Object.keys(FITS);
  const rank = ({ fits }) => (order.includes(fits) ? order.indexOf(fits) : order.length);
  return [...found.values()].sort((a, b) => rank(a) - rank(b) || b.nodes.length - a.nodes.length);
}
