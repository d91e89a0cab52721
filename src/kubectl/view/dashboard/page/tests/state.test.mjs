import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster } from '../state.js';
import { card, node, reservation, share } from './fixtures.mjs';

const pod = (uid, more = {}) => ({ uid, namespace: 'team', name: `pod-${uid}`, phase: 'waiting', ...more });

function loaded(nodes, pods = []) {
  const cluster = new Cluster();
  cluster.apply('hello', { version: 'v1' });
  cluster.apply('nodes', { set: nodes, gone: [] });
  cluster.apply('pods', { set: pods, gone: [] });
  cluster.apply('status', { synced: true, problems: [] });
  return cluster;
}

test('sums follow what a node adds and takes away', () => {
  const cluster = loaded([
    node('a', [card('GPU-1', [share('x', 400, 30)]), card('GPU-2', [], { health: 'Unhealthy' })]),
    node('b', [card('GPU-3', [], { cordoned: true })], { takesPods: false }),
  ]);
  const { totals } = cluster;
  assert.deepEqual(
    [totals.nodes, totals.closed, totals.gpus, totals.healthy, totals.unhealthy, totals.cordoned],
    [2, 1, 3, 2, 1, 1],
  );
  assert.deepEqual([totals.memory.held, totals.cores.held, totals.pods], [400, 30, 1]);
  assert.deepEqual(totals.namespaces.get('team'), { pods: 1, memoryMi: 400, cores: 30 });

  const changed = cluster.apply('nodes', { set: [node('a', [card('GPU-1')])], gone: ['b', 'unknown'] });
  assert.deepEqual(changed, ['a', 'b']);
  assert.deepEqual(
    [totals.nodes, totals.gpus, totals.memory.held, totals.pods, totals.namespaces.size],
    [1, 1, 0, 0, 0],
  );
  assert.deepEqual([...totals.models], [['NVIDIA L40S', 1]]);
});

test('a reservation is no pod that holds, and lessens what is free', () => {
  const { totals } = loaded([node('a', [card('GPU-1')], { reservations: [reservation('GPU-1', 'x', 300, 10)] })]);
  assert.deepEqual([totals.pods, totals.memory.reserved, totals.memory.free], [0, 300, 700]);
});

test('after a reconnection, what is not sent again is gone', () => {
  const cluster = loaded([node('a', []), node('b', [])], [pod('1'), pod('2')]);
  cluster.apply('hello', { version: 'v1' });
  assert.equal(cluster.synced, false);
  assert.equal(cluster.nodes.size, 2, 'the old state stays until the new one is complete');
  cluster.apply('nodes', { set: [node('b', [])], gone: [] });
  cluster.apply('pods', { set: [pod('2')], gone: [] });
  assert.deepEqual(cluster.apply('status', { synced: true, problems: ['late'] }), ['a']);
  assert.deepEqual([[...cluster.nodes.keys()], [...cluster.pods.keys()], cluster.problems], [['b'], ['2'], ['late']]);
  assert.equal(cluster.totals.nodes, 1);
});

test('objects are found by their names', () => {
  const cluster = loaded(
    [node('a', [card('GPU-1', [share('x', 1)])]), node('b', [])],
    [pod('1'), pod('2', { phase: 'bound' })],
  );
  assert.equal(cluster.nodeOfGpu('GPU-1').name, 'a');
  assert.equal(cluster.nodeOfGpu('GPU-2'), undefined);
  assert.deepEqual(
    cluster.nodesOfPod('team', 'x').map(entry => entry.name),
    ['a'],
  );
  assert.equal(cluster.pod('team', 'pod-2').uid, '2');
  assert.deepEqual(
    cluster.waiting().map(one => one.uid),
    ['1'],
  );
});

test('absent fields and unknown words are taken', () => {
  const cluster = loaded(
    [{ name: 'bare' }, { name: 'odd', cards: [{ uuid: 'GPU-1', health: 'Sleepy', shares: [{}] }], reservations: null }],
    [{ uid: '1' }],
  );
  const [gpu] = cluster.nodes.get('odd').node.gpus;
  assert.equal(gpu.health, 'Sleepy');
  assert.deepEqual([cluster.totals.gpus, cluster.totals.healthy, cluster.totals.closed], [1, 0, 2]);
  assert.ok(Number.isFinite(cluster.totals.memory.held));
  assert.deepEqual(cluster.apply('later', {}), []);
});
