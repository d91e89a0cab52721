import assert from 'node:assert/strict';
import { test } from 'node:test';
import { groups } from '../answers.js';
import { nextSort, nodeFilter, nodeOrder, podFilter, troubles, waitingFilter, waitingOrder } from '../filter.js';
import { find } from '../find.js';
import { DEFAULTS } from '../route.js';
import { Selection } from '../selection.js';
import { Cluster } from '../state.js';
import { card, node, share } from './fixtures.mjs';

function cluster() {
  const one = new Cluster();
  one.apply('nodes', {
    set: [
      node('gpu-10', [card('GPU-aa', [share('train-1', 900)])]),
      node('gpu-2', [card('GPU-bb', [share('serve', 100, 0, { namespace: 'web' })], { model: 'NVIDIA H100' })], {
        problems: ['late'],
      }),
      node('gpu-1', [
        card('GPU-cc', [], { health: 'Unhealthy', reason: 'XID 79' }),
        card('GPU-dd', [], { cordoned: true }),
      ]),
    ],
  });
  return one;
}

const names = (settings, order = '') =>
  [...cluster().nodes.values()]
    .filter(nodeFilter({ ...DEFAULTS, ...settings }))
    .sort(nodeOrder(order))
    .map(entry => entry.name);

test('nodes are found by all that is on them', () => {
  assert.deepEqual(names({ q: 'TRAIN team' }), ['gpu-10']);
  assert.deepEqual(names({ q: 'gpu-bb' }), ['gpu-2']);
  assert.deepEqual(names({ q: 'h100' }), ['gpu-2']);
  assert.deepEqual(names({ q: 'train serve' }), []);
  assert.deepEqual(names({ namespace: 'web' }), ['gpu-2']);
  assert.deepEqual(names({ model: 'NVIDIA L40S' }), ['gpu-1', 'gpu-10']);
  assert.deepEqual(names({ state: 'problems' }), ['gpu-1', 'gpu-2']);
  assert.deepEqual(names({ state: 'constructor' }), ['gpu-1', 'gpu-2', 'gpu-10']);
});

test('nodes are sorted by number within their names, and by amounts', () => {
  assert.deepEqual(names({}), ['gpu-1', 'gpu-2', 'gpu-10']);
  assert.deepEqual(names({}, '-name'), ['gpu-10', 'gpu-2', 'gpu-1']);
  assert.deepEqual(names({}, 'memory'), ['gpu-10', 'gpu-2', 'gpu-1']);
  assert.deepEqual(names({}, '-memory'), ['gpu-1', 'gpu-2', 'gpu-10']);
  assert.equal(nextSort('', 'name'), '-name');
  assert.equal(nextSort('memory', 'memory'), '-memory');
  assert.equal(nextSort('-memory', 'memory'), 'memory');
});

test('waiting pods are filtered, and sorted by age', () => {
  const pod = (name, created, models = []) => ({
    namespace: 'team',
    name,
    createdAt: Date.parse(created),
    models,
    priority: 0,
    fitting: 0,
    order: name,
  });
  const pods = [pod('new', '2026-01-02T00:00:00Z', ['H100']), pod('old', '2026-01-01T00:00:00Z'), pod('odd', 'never')];
  assert.deepEqual(
    [...pods].sort(waitingOrder('age')).map(one => one.name),
    ['old', 'new', 'odd'],
  );
  const kept = settings => pods.filter(waitingFilter({ ...DEFAULTS, ...settings })).map(one => one.name);
  assert.deepEqual(kept({ model: 'NVIDIA L40S' }), ['old', 'odd']);
  assert.deepEqual(kept({ q: 'team/n' }), ['new']);
});

test('a selection that is brought up to date equals one made anew', () => {
  const one = cluster();
  const make = () =>
    new Selection(
      entry => entry.summary.pods,
      pod => pod.node,
    );
  const settings = [podFilter(DEFAULTS, one.nodes), nodeOrder('')];
  const kept = make();
  kept.reset(one.nodes, ...settings);
  one.apply('nodes', { set: [node('gpu-2', [card('GPU-bb', [share('a', 1), share('z', 1)])])], gone: ['gpu-10'] });
  kept.refresh(one.nodes, new Set(['gpu-2', 'gpu-10']));
  const anew = make();
  anew.reset(one.nodes, ...settings);
  assert.deepEqual(kept.items, anew.items);
  assert.deepEqual(
    kept.items.map(pod => pod.name),
    ['a', 'z'],
  );
});

test('troubles name unhealthy GPUs before cordoned ones', () => {
  const { gpus, nodes } = troubles(cluster().nodes.values());
  assert.deepEqual(
    gpus.map(({ gpu }) => gpu.uuid),
    ['GPU-cc', 'GPU-dd'],
  );
  assert.deepEqual(
    nodes.map(one => one.name),
    ['gpu-2'],
  );
});

test('a search finds objects of every kind', () => {
  const one = cluster();
  one.apply('pods', { set: [{ uid: 'w', namespace: 'team', name: 'train-9', phase: 'waiting' }] });
  const found = query => find(one, query).map(({ kind, found: items }) => [kind, items.map(item => item.name)]);
  assert.deepEqual(found('train'), [['Pods', ['team/train-9', 'team/train-1']]]);
  assert.deepEqual(found('gpu-1'), [['Nodes', ['gpu-10', 'gpu-1']]]);
  assert.deepEqual(found('web'), [
    ['Pods', ['web/serve']],
    ['Namespaces', ['web']],
  ]);
  assert.deepEqual(found('  '), []);
});

test('answers are grouped, the most helpful first', () => {
  const answer = (name, fits, reason) => ({ name, fits, reason });
  const found = groups([
    answer('a', 'never', 'x'),
    answer('b', 'later', 'y'),
    answer('c', 'later', 'y'),
    answer('d', 'odd'),
    answer('e', 'now'),
  ]);
  assert.deepEqual(
    found.map(({ fits, nodes }) => [fits, nodes.length]),
    [
      ['now', 1],
      ['later', 2],
      ['never', 1],
      ['odd', 1],
    ],
  );
});

test('answers that differ in figures alone are one group', () => {
  const reasons = [
    '2 short of memory, largest free 10Gi; 1 unhealthy',
    '1 short of memory, largest free 8Gi; 2 unhealthy',
  ];
  const nodes = reasons.map((reason, at) => ({
    name: `n${at}`,
    fits: 'later',
    reason: `Insufficient GPUs (${reason})`,
  }));
  const [group, ...more] = groups(nodes);
  assert.deepEqual([group.reason, group.nodes.length, more], ['Insufficient GPUs (short of memory; unhealthy)', 2, []]);
  assert.equal(groups(nodes.slice(0, 1))[0].reason, nodes[0].reason);
});
