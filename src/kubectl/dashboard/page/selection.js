// A filtered and sorted list over the nodes that is brought up to date node by node, rather than made anew.

export class Selection {
  items = [];
  #itemsOf;
  #nodeOf;
  #keeps = () => true;
  #compare = () => 0;

  /** `itemsOf(entry)`: what of a node is listed; `nodeOf(item)`: the name of an item's node. */
  constructor(itemsOf, nodeOf) {
    this.#itemsOf = itemsOf;
    this.#nodeOf = nodeOf;
  }

  /** Makes the list anew. */
  reset(nodes, keeps, compare) {
    this.#keeps = keeps;
    this.#compare = compare;
    this.items = [...nodes.values()].flatMap(entry => this.#kept(entry)).sort(compare);
  }

  /** Takes in the nodes of these names. */
  refresh(nodes, names) {
    if (names.size === 0) return;
    const rest = this.items.filter(item => !names.has(this.#nodeOf(item)));
    const added = [...names].flatMap(name => (nodes.has(name) ? this.#kept(nodes.get(name)) : []));
    this.items = merged(rest, added.sort(this.#compare), this.#compare);
  }

  #kept(entry) {
    return this.#itemsOf(entry).filter(this.#keeps);
  }
}

/** Two sorted lists as one. The second one is short, so its places in the first are searched for. */
function merged(rest, added, compare) {
  const items = [];
  let from = 0;
  for (const item of added) {
    let [low, high] = [from, rest.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(rest[middle], item) <= 0) low = middle + 1;
      else high = middle;
    }
    while (from < low) items.push(rest[from++]);
    items.push(item);
  }
  while (from < rest.length) items.push(rest[from++]);
  return items;
}
