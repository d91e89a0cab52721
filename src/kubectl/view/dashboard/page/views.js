// The two kinds of views: of one object, and of a list of them.

import { render } from './dom.js';
import { nextSort } from './filter.js';
import { Rows } from './rows.js';
import { Selection } from './selection.js';

/** The view of one object: `describe()` describes it, at first and whenever something has changed. */
export function objectView(title, describe, close) {
  let parent;
  const update = () => render(parent, describe());
  return {
    title,
    show(element) {
      parent = element;
      update();
    },
    update,
    close,
  };
}

/**
 * The view of a `list`, one long table that follows the cluster, the search and the filters:
 * - `title`, `filters`: of the view; `label`, `kind`, `columns`, `height`, `key`: of the table, see Rows
 * - `itemsOf(entry)`, `nodeOf(item)`: what is listed of a node, and its name; without `nodeOf`, of a pod on its way
 * - `keeps(settings)`, `order(sort)`: a test and a comparison for what is listed
 * - `heading(items, settings)`: what stands above the table
 * - `watched(item)`: the node whose usage is shown of a row in sight, if it is
 */
export function listView(app, list) {
  const selection = new Selection(list.itemsOf, list.nodeOf);
  let heading;
  let table;
  let rows;
  let settings;

  function select() {
    const { nodes, pods } = app.cluster;
    selection.reset(list.nodeOf ? nodes : pods, list.keeps(settings), list.order(settings.sort));
  }

  function draw() {
    render(heading, list.heading(selection.items, settings));
    table.hidden = selection.items.length === 0;
    rows.show(selection.items, list.label, settings);
    app.usage.watch(list.watched ? rows.inSight().map(list.watched) : []);
  }

  return {
    title: list.title,
    filters: list.filters,
    show(parent, names, shown) {
      heading = document.createElement('div');
      table = document.createElement('div');
      table.className = `list ${list.kind}-list`;
      parent.replaceChildren(heading, table);
      rows = new Rows(table, {
        columns: list.columns,
        height: list.height,
        key: list.key,
        sorted: key => app.change({ sort: nextSort(settings.sort, key) }),
      });
      settings = shown;
      select();
      draw();
    },
    change(shown) {
      settings = shown;
      select();
      draw();
    },
    update(names) {
      if (list.nodeOf) selection.refresh(app.cluster.nodes, names);
      else select();
      draw();
    },
    move: by => rows.move(by),
    focus: key => rows.focusKey(key),
    close: () => rows.close(),
  };
}
