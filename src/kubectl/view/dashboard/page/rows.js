// A table of thousands of rows, of which only those in sight are in the document.

import { h, render } from './dom.js';

/** Height of the rows beyond each edge of the window, for quick scrolling, in CSS pixels. */
const MORE = 288;

export class Rows {
  #parent;
  #columns;
  #key;
  #height;
  #sorted;
  #items = [];
  #active;
  #label = '';
  #settings = { sort: '' };
  #scheduled = 0;
  /** Descriptions of the rows in sight, by key: while scrolling nothing else changes in them. */
  #drawn = new Map();
  #onScroll = () => this.#schedule();

  /**
   * `columns`: `{key, title, sortable?, amount?, cell(item, isTabStop, settings)}`; the first one's cell has the row's
   * link, and amounts sort the largest first. `key(item)` names a row, `height` is a row's in CSS pixels, and
   * `sorted(column)` is called when a column is chosen to sort by.
   */
  constructor(parent, { columns, key, height, sorted }) {
    this.#parent = parent;
    this.#columns = columns;
    this.#key = key;
    this.#height = height;
    this.#sorted = sorted;
    window.addEventListener('scroll', this.#onScroll, { passive: true });
    window.addEventListener('resize', this.#onScroll, { passive: true });
  }

  close() {
    window.removeEventListener('scroll', this.#onScroll);
    window.removeEventListener('resize', this.#onScroll);
    cancelAnimationFrame(this.#scheduled);
  }

  show(items, label, settings) {
    [this.#items, this.#label, this.#settings] = [items, label, settings];
    this.#drawn.clear();
    // Which rows are in sight is known once the table has a place.
    if (!this.#body) this.#draw();
    this.#draw();
  }

  /** The items whose rows are in the window, and no more. */
  inSight() {
    const [first, last] = this.#placesInSight(0);
    return this.#items.slice(first, last);
  }

  /** Moves the focus by rows, or to the row in sight if none has it. */
  move(by) {
    const at = this.#items.findIndex(item => this.#key(item) === this.#active);
    const body = this.#body;
    const isFocused = at >= 0 && body.contains(document.activeElement);
    const to = isFocused ? at + by : at >= 0 ? at : this.#firstInSight();
    this.focus(Math.max(0, Math.min(this.#items.length - 1, to)));
  }

  focus(at) {
    const item = this.#items[at];
    if (!item) return;
    this.#active = this.#key(item);
    const top = this.#body.getBoundingClientRect().top + at * this.#height;
    const head = this.#parent.querySelector('.head').getBoundingClientRect().bottom;
    if (top < head) window.scrollBy(0, top - head - this.#height);
    else if (top + 2 * this.#height > window.innerHeight)
      window.scrollBy(0, top + 2 * this.#height - window.innerHeight);
    this.#draw();
    this.#body.querySelector('.active a')?.focus({ preventScroll: true });
  }

  /** Focuses the row of this key, if it is there. */
  focusKey(key) {
    const at = this.#items.findIndex(item => this.#key(item) === key);
    if (at >= 0) this.focus(at);
  }

  #onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(window.innerHeight / this.#height) - 4);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.move(step);
  }

  #firstInSight() {
    const head = this.#parent.querySelector('.head').getBoundingClientRect().bottom;
    return Math.max(0, Math.ceil((head - this.#body.getBoundingClientRect().top) / this.#height));
  }

  #placesInSight(more) {
    const top = this.#body ? this.#body.getBoundingClientRect().top : window.innerHeight;
    return rowsInSight(-top, window.innerHeight, this.#height, this.#items.length, more);
  }

  get #body() {
    return this.#parent.querySelector('.body');
  }

  #schedule() {
    this.#scheduled ||= requestAnimationFrame(() => {
      this.#scheduled = 0;
      this.#draw();
    });
  }

  #draw() {
    const more = Math.ceil(MORE / this.#height);
    const [first, last] = this.#placesInSight(more);
    const shown = new Set();
    for (let at = first; at < last; at += 1) shown.add(at);
    // The focused row stays, or the focus would be lost.
    if (this.#body?.contains(document.activeElement)) {
      const at = this.#items.findIndex(item => this.#key(item) === this.#active);
      if (at >= 0) shown.add(at);
    }
    // One row at a time can be reached by Tab, the others from there by arrow keys.
    const keys = [...shown].map(at => this.#key(this.#items[at]));
    const stop = keys.includes(this.#active) ? this.#active : keys[first > 0 ? Math.min(more, keys.length - 1) : 0];
    const rows = [...shown].sort((a, b) => a - b).map(at => this.#row(at, stop));
    this.#drawn = new Map(rows.map(row => [row.key, row]));
    const titles = this.#columns.map(one => this.#title(one));
    const body = {
      role: 'rowgroup',
      style: { height: `${this.#items.length * this.#height}px` },
      onkeydown: event => this.#onKey(event),
      onfocusin: event => (this.#active = event.target.closest('[data-row]')?.dataset.row ?? this.#active),
    };
    render(
      this.#parent,
      h(
        'div.rows',
        { role: 'table', 'aria-label': this.#label, 'aria-rowcount': this.#items.length + 1 },
        h('div.head', { role: 'rowgroup' }, h('div.row', { role: 'row', 'aria-rowindex': 1 }, titles)),
        h('div.body', body, rows),
      ),
    );
  }

  #row(at, stop) {
    const item = this.#items[at];
    const key = this.#key(item);
    const isActive = key === stop;
    const before = this.#drawn.get(key);
    if (before?.isActive === isActive) return before;
    const cells = this.#columns.map(({ key: name, cell }) =>
      h('div', { role: 'cell', class: `cell ${name}` }, cell(item, isActive, this.#settings)),
    );
    const properties = {
      key,
      role: 'row',
      'aria-rowindex': at + 2,
      'data-row': key,
      class: isActive ? 'row active' : 'row',
      style: { top: `${at * this.#height}px` },
    };
    return { ...h('div', properties, cells), isActive };
  }

  #title({ key, title, sortable, amount = false }) {
    const { sort } = this.#settings;
    const isSorted = sort.replace(/^-/, '') === key || (key === 'name' && !sort);
    const isDescending = sort.startsWith('-') !== amount;
    const direction = isDescending ? 'descending' : 'ascending';
    const properties = { role: 'columnheader', class: `cell ${key}`, 'aria-sort': isSorted ? direction : undefined };
    if (!sortable) return h('div', properties, title);
    const arrow = isSorted ? h('span', { 'aria-hidden': 'true' }, isDescending ? ' ▾' : ' ▴') : undefined;
    return h('div', properties, h('button', { type: 'button', onclick: () => this.#sorted(key) }, title, arrow));
  }
}

/** First and last row, exclusive, of a list of rows of one height that are in sight, with some more on each side. */
export function rowsInSight(above, viewport, height, count, more) {
  const first = Math.max(0, Math.floor(above / height) - more);
  const last = Math.min(count, Math.ceil((above + viewport) / height) + more);
  return [Math.min(first, count), Math.max(last, Math.min(first, count))];
}
