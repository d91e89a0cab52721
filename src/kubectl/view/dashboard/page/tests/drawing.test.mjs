import assert from 'node:assert/strict';
import { test } from 'node:test';
import { h } from '../dom.js';
import { rowsInSight } from '../rows.js';

test('an element is described by its tag, classes, properties and children', () => {
  const child = h('b', 'held');
  assert.deepEqual(h('p.quiet.note', { key: 'a', title: 't' }, child, [undefined, [' all']], false), {
    tag: 'p',
    key: 'a',
    properties: { title: 't', class: 'quiet note' },
    children: [child, ' all'],
  });
  assert.deepEqual(h('p', child).children, [child]);
  assert.deepEqual(h('p', [child]).children, [child]);
  assert.deepEqual(h('p', undefined, 'x').children, ['x']);
});

test('rows in sight are within the list', () => {
  assert.deepEqual(rowsInSight(-500, 800, 36, 1000, 8), [0, 17]);
  assert.deepEqual(rowsInSight(3600, 720, 36, 1000, 8), [92, 128]);
  assert.deepEqual(rowsInSight(99_999, 720, 36, 10, 8), [10, 10]);
  assert.deepEqual(rowsInSight(0, 720, 36, 0, 8), [0, 0]);
});
