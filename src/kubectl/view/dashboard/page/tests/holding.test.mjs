import assert from 'node:assert/strict';
import { test } from 'node:test';
import { divided, holders, segments, trouble } from '../holding.js';
import { readNode } from '../report.js';
import { amounts, card, node, reservation, share } from './fixtures.mjs';

const gpu = (one, reservations = []) => readNode(node('n', [one], { reservations })).gpus[0];
const sizes = (one, of = 'memoryMi') =>
  segments(one, of).map(({ kind, size }) => [kind, Math.round(size * 1000) / 1000]);

test('init containers count by the largest of them', () => {
  const shares = [
    share('a', 300, 10, { kind: 'init' }),
    share('a', 200, 20, { kind: 'init' }),
    share('a', 100, 30),
    share('a', 50),
  ];
  const [pod] = holders(gpu(card('GPU-1', shares)));
  assert.equal(pod.memoryMi, 300);
  assert.equal(pod.cores, 30);
});

test('memory in the host is not on the GPU', () => {
  const [pod] = holders(gpu(card('GPU-1', [share('a', 300, 0, { hostMemoryMi: 100 })])));
  assert.equal(pod.memoryMi, 200);
});

test('a bar has the pods, the reservations and the rest', () => {
  const one = gpu(card('GPU-1', [share('a', 250), share('b', 250)]), [
    reservation('GPU-1', 'c', 100),
    reservation('GPU-2', 'd', 100),
  ]);
  assert.deepEqual(sizes(one), [
    ['held', 0.25],
    ['held', 0.25],
    ['reserved', 0.1],
    ['free', 0.4],
  ]);
  assert.deepEqual(divided(one, 'memoryMi'), { total: 1000, capacity: 1000, held: 500, reserved: 100, free: 400 });
});

test('an exclusive reservation takes the whole GPU', () => {
  const one = gpu(card('GPU-1'), [reservation('GPU-1', 'c', 0, 0, { exclusive: true })]);
  assert.deepEqual(sizes(one), [['reserved', 1]]);
});

test('what nobody gets is neither held nor free', () => {
  const one = gpu(card('GPU-1', [share('a', 250)], { memoryMi: amounts(1000, 250, 0) }));
  assert.deepEqual(sizes(one), [
    ['held', 0.25],
    ['unavailable', 0.75],
  ]);
});

test('held by shares that are not listed is shown', () => {
  const one = gpu(card('GPU-1', [share('a', 250)], { memoryMi: amounts(1000, 500) }));
  assert.deepEqual(sizes(one), [
    ['held', 0.25],
    ['held', 0.25],
    ['free', 0.5],
  ]);
});

test('a GPU that is not reported has the shares alone', () => {
  const one = gpu(card('GPU-1', [share('a', 250)], { health: 'Missing', memoryMi: amounts(0, 250, 0) }));
  assert.deepEqual(sizes(one), [['held', 1]]);
  assert.deepEqual(sizes(gpu({ uuid: 'GPU-2' })), [['unavailable', 1]]);
});

test('more held than there is stays within the bar', () => {
  const one = gpu(card('GPU-1', [share('a', 900), share('b', 900)], { memoryMi: amounts(1000, 1800, 0) }));
  assert.deepEqual(sizes(one), [
    ['held', 0.5],
    ['held', 0.5],
  ]);
});

test('trouble is the health, or a cordon', () => {
  assert.equal(trouble(gpu(card('GPU-1'))), undefined);
  assert.equal(trouble(gpu(card('GPU-1', [], { cordoned: true }))), 'Cordoned');
  assert.equal(trouble(gpu(card('GPU-1', [], { health: 'Degraded', cordoned: true }))), 'Degraded');
});

test('a GPU may have a tier and a number of containers of its own', () => {
  const read = readNode({ ...node('a', [card('GPU-1', [], { tier: 'shim', slots: 8 }), card('GPU-2')]), clique: 'c.1' });
  assert.deepEqual(
    read.gpus.map(({ tier, slots }) => [tier, slots]),
    [
      ['shim', 8],
      [undefined, undefined],
    ],
  );
  assert.equal(read.clique, 'c.1');
});
