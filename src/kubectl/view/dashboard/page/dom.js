// Elements from descriptions. All text is set as text, so nothing that comes from the cluster can become markup.

/**
 * Describes an element: its tag with its classes, as in `p.quiet`, its properties if it has any, and its children. Of
 * the properties, `key` finds it again among its siblings, `style` is an object of CSS properties, `on…` are handlers,
 * and the others are attributes. Children are descriptions, texts, or lists of them.
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split('.');
  const { key, ...properties } = isProperties(rest[0]) ? rest.shift() : {};
  if (classes.length > 0) properties.class = classes.join(' ');
  return { tag, key, properties, children: flat(rest) };
}

const isProperties = value => typeof value === 'object' && value && !Array.isArray(value) && !('children' in value);

function flat(children) {
  return children
    .flat(Infinity)
    .filter(child => child !== undefined && child !== null && child !== false && child !== '');
}

/** Makes the children of an element those described, and keeps elements that are there already. */
export function render(parent, ...children) {
  update(parent, flat(children));
}

const rendered = new WeakMap();
const keyOf = child => (typeof child === 'object' ? child.key : undefined);
const tagOf = child => (typeof child === 'object' ? child.tag : '#text');

function update(parent, children) {
  const keys = new Set(children.map(keyOf));
  const keyed = new Map();
  for (const node of [...parent.childNodes]) {
    const key = keyOf(rendered.get(node));
    if (key === undefined) continue;
    if (keys.has(key)) keyed.set(key, node);
    else node.remove();
  }
  let next = parent.firstChild;
  for (const child of children) {
    const key = keyOf(child);
    let node = key === undefined ? next : keyed.get(key);
    const fits = node && tagOf(rendered.get(node)) === tagOf(child) && keyOf(rendered.get(node)) === key;
    if (fits) {
      change(node, child);
    } else {
      node = create(child);
    }
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

function create(child) {
  if (typeof child !== 'object') {
    const text = document.createTextNode(child);
    rendered.set(text, child);
    return text;
  }
  const node = document.createElement(child.tag);
  setAll(node, {}, child.properties);
  update(node, child.children);
  // A select takes its value only once it has its options.
  if ('value' in child.properties) node.value = child.properties.value;
  rendered.set(node, child);
  return node;
}

function change(node, child) {
  const before = rendered.get(node);
  if (before === child) return;
  rendered.set(node, child);
  if (typeof child !== 'object') {
    if (before !== child) node.data = child;
    return;
  }
  setAll(node, before.properties, child.properties);
  update(node, child.children);
  if ('value' in child.properties && document.activeElement !== node) node.value = child.properties.value;
}

function setAll(node, before, after) {
  for (const name of Object.keys(before)) {
    if (!(name in after)) set(node, name, before[name], undefined);
  }
  for (const [name, value] of Object.entries(after)) {
    if (before[name] !== value) set(node, name, before[name], value);
  }
}

function set(node, name, before, value) {
  if (name === 'style') {
    // Through the CSSOM: the page's policy forbids style attributes.
    for (const property of Object.keys(before ?? {})) {
      if (value?.[property] === undefined) node.style.removeProperty(property);
    }
    for (const [property, text] of Object.entries(value ?? {})) {
      if (before?.[property] !== text) node.style.setProperty(property, text);
    }
  } else if (name.startsWith('on')) {
    node[name] = value ?? null;
  } else if (name !== 'value') {
    if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? '' : value);
  }
}
