import assert from 'node:assert/strict';
import { test } from 'node:test';
import { roundUp, stepPath } from '../chart.js';
import { fullnessStep } from '../filter.js';
import { cellAt, layout, offset, rowsInSight } from '../grid.js';
import { History, Recorder } from '../history.js';

test('history is bounded and keeps the first and the last sample', () => {
  const history = new History(1, 50, 2);
  for (let second = 0; second < 36_000; second += 1) history.add(second, [second % 7]);
  const points = history.points(0);
  assert.ok(points.length <= 50 && points.length > 12, `${points.length} samples`);
  assert.deepEqual(points[0], [0, 0]);
  assert.equal(points.at(-1)[0], 35_999);
  assert.ok(
    points.every(([time], at) => at === 0 || time > points[at - 1][0]),
    'in order',
  );
});

test("samples within an interval take each other's place", () => {
  const history = new History(2, 10, 5);
  for (const second of [0, 1, 4, 5, 9]) history.add(second, [second, 0]);
  assert.deepEqual(history.points(0), [
    [0, 0],
    [4, 4],
    [9, 9],
  ]);
});

test('changes are kept by node, and bounded', () => {
  const recorder = new Recorder(0);
  for (let at = 0; at < 30_000; at += 1) recorder.takeChanges(at % 2 ? 'a' : 'b', [`${at}`], at);
  assert.ok(recorder.changesOf('a').length <= 10_000);
  assert.equal(recorder.changesOf('a')[0].text, '29999');
});

test('lines hold a value until the next, and on to now', () => {
  assert.equal(
    stepPath(
      [
        [0, 0],
        [50, 100],
      ],
      0,
      100,
      100,
    ),
    'M0 100H300V0H600',
  );
  assert.equal(stepPath([], 0, 100, 100), '');
  assert.deepEqual([0, 4, 5, 12, 300, 501].map(roundUp), [4, 4, 5, 20, 500, 1000]);
});

test('every cell of the map is found where it is drawn', () => {
  for (const [nodes, width] of [
    [8, 1200],
    [100, 1200],
    [5000, 1200],
    [100, 300],
  ]) {
    const counts = Array.from({ length: nodes }, (_, at) => [8, 8, 4, 0, 16, 1][at % 6]);
    const grid = layout(counts, width, 440);
    counts.forEach((count, node) => {
      for (let gpu = 0; gpu < count; gpu += 1) {
        const [right, down] = offset(gpu, grid.pitch);
        const [left, top] = [grid.x[node] + right, grid.y[node] + down];
        assert.ok(left + grid.size <= Math.max(width, 8 * grid.pitch) && top + grid.size <= grid.height);
        assert.deepEqual(cellAt(grid, counts, left + 1, top + 1), [node, gpu]);
      }
    });
    assert.equal(cellAt(grid, counts, width + 500, 1), undefined);
  }
});

test('the map of 5 000 nodes has cells of 3 pixels and a bounded height', () => {
  const { size, height } = layout(Array(5000).fill(8), 1200, 440);
  assert.equal(size, 3);
  assert.ok(height < 600, `${height}`);
  assert.equal(layout(Array(8).fill(8), 1200, 440).size, 16);
});

test('rows in sight are within the list', () => {
  assert.deepEqual(rowsInSight(-500, 800, 36, 1000, 8), [0, 17]);
  assert.deepEqual(rowsInSight(3600, 720, 36, 1000, 8), [92, 128]);
  assert.deepEqual(rowsInSight(99_999, 720, 36, 10, 8), [10, 10]);
  assert.deepEqual(rowsInSight(0, 720, 36, 0, 8), [0, 0]);
});

test('full and empty have a step of their own', () => {
  assert.deepEqual([0, 0.01, 0.25, 0.74, 0.99, 1].map(fullnessStep), [0, 1, 2, 3, 4, 5]);
});
