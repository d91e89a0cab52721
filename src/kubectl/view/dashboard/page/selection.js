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
    // What is nearly sorted is sorted quickly.
    this.items = [...rest, ...added].sort(this.#compare);
  }

  #kept(entry) {
    return this.#itemsOf(entry).filter(this.#keeps);
  }
}
