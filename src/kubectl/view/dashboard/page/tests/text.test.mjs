import assert from 'node:assert/strict';
import { test } from 'node:test';
import { age, exactMemory, memory, orderOf, percent, quoted, shortIds } from '../format.js';
import { hueOf } from '../hue.js';
import { format, nodeLink, parse, podLink } from '../route.js';
import { Usage, UsagePoller } from '../usage.js';

test('amounts are written as Kubernetes does', () => {
  assert.deepEqual([0, 512, 3000, 81559, 143771, 20 * 1024 ** 2].map(memory), [
    '0',
    '512Mi',
    '2.9Gi',
    '79.6Gi',
    '140Gi',
    '20Ti',
  ]);
  assert.deepEqual([0, 3000, 8192].map(exactMemory), ['0Mi', '3000Mi', '8Gi']);
  assert.deepEqual(
    [
      [0, 0],
      [1, 1000],
      [999, 1000],
      [5, 5],
      [3, 2],
    ].map(([part, whole]) => percent(part, whole)),
    [0, 1, 99, 100, 150],
  );
  assert.deepEqual([5_000, 600_000, 8_000_000, 200_000_000].map(age), ['5s', '10m', '2h', '2d']);
});

test('names are shortened, sorted and quoted', () => {
  assert.deepEqual(shortIds(['GPU-aaaaaaaa-1', 'GPU-bbbbbbbb-1']), ['GPU-aaaaaaaa', 'GPU-bbbbbbbb']);
  assert.deepEqual(shortIds(['GPU-aaaaaaaa-1', 'GPU-aaaaaaaa-2']), ['GPU-aaaaaaaa-1', 'GPU-aaaaaaaa-2']);
  assert.ok(orderOf('gpu-2') < orderOf('gpu-10'));
  assert.equal(quoted('gpu-7.example'), 'gpu-7.example');
  assert.equal(quoted("a'; rm -rf /"), "'a'\\''; rm -rf /'");
});

test('a dozen namespaces have a dozen hues, and each keeps its own', () => {
  const names = Array.from({ length: 12 }, (_, at) => `team-${at}`);
  const hues = names.map(hueOf);
  assert.equal(new Set(hues).size, 12);
  assert.ok(Number.isFinite(hueOf('one-more')));
  assert.deepEqual(names.map(hueOf), hues);
});

test('addresses survive any name', () => {
  for (const name of ['gpu-1', '<img src=x>', 'a/b?c#d&e=%zz', 'مرحبا', '']) {
    const { view, names } = parse(podLink('team', name));
    assert.deepEqual([view, names], [name ? 'pod' : 'unknown', { namespace: 'team', name }]);
  }
  assert.equal(parse(nodeLink('constructor')).names.node, 'constructor');
});

test('settings are part of the address', () => {
  const link = format('pods', {}, { q: 'a b&c', namespace: 'team', sort: '', odd: 'x' });
  assert.equal(link, '#/pods?q=a+b%26c&namespace=team');
  assert.equal(parse(link).settings.q, 'a b&c');
  assert.equal(parse('').view, 'overview');
  for (const hash of ['#/node', '#/node/a/b', '#/odd', '#/constructor', '#/%E0%A4%A'])
    assert.equal(parse(hash).view, 'unknown', hash);
});

test('usage is by the library where it is there, otherwise by the driver', () => {
  const entry = more => ({ podUid: 'p', namespace: 'team', pod: 'x', container: 'main', card: 'GPU-1', ...more });
  const books = { usedBytes: 1 << 30, busyPercent: 29, processes: 2 };
  const usage = new Usage({
    containers: [
      entry({ books, overheadBytes: 1 << 29 }),
      entry({ container: 'other', driverBytes: 1 << 30 }),
      entry({ container: 'none' }),
    ],
  });
  const of = container => usage.ofShare('GPU-1', { podUid: 'p', container });
  assert.deepEqual(of('main'), { memoryMi: 1536, cores: 29, processes: 2 });
  assert.equal(of('other').memoryMi, 1024);
  assert.equal(of('none').memoryMi, undefined);
  assert.deepEqual(usage.ofPod('GPU-1', 'p'), { memoryMi: 2560, cores: 29 });
  assert.deepEqual(new Usage({}).findings, []);
});

test('eight nodes at most are asked, each again once it has answered', async () => {
  const asked = [];
  const waiting = [];
  const poller = new UsagePoller(
    name => (asked.push(name), new Promise(done => waiting.push(() => done({ containers: [] })))),
    () => {},
  );
  poller.watch(Array.from({ length: 20 }, (_, at) => `n${at}`));
  poller.tick(0);
  poller.tick(60_000);
  assert.equal(asked.length, 8);
  for (const done of waiting.splice(0)) done();
  await new Promise(setImmediate);
  assert.ok(poller.of('n0').usage);
  poller.tick(5_000);
  assert.equal(asked.length, 16);
  poller.watch(['n1']);
  assert.ok(poller.of('n2').usage, 'it may come back into sight');
  for (const done of waiting.splice(0)) done();
  await new Promise(setImmediate);
  poller.tick(60_000);
  assert.equal(poller.of('n2').usage, undefined);
});
