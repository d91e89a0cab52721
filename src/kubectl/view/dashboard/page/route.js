// The address after `#`: which view, of which object, with which filters. Each view can be shared as a link.

const VIEWS = { '': 'overview', pods: 'pods', waiting: 'waiting', node: 'node', pod: 'pod', gpu: 'gpu' };
/** Names that follow the view in its path. */
const NAMES = { overview: [], pods: [], waiting: [], node: ['node'], pod: ['namespace', 'name'], gpu: ['uuid'] };
export const LISTS = ['overview', 'pods', 'waiting'];
/** Settings of a list, and their values where the address doesn't say. */
export const DEFAULTS = { q: '', namespace: '', model: '', state: '', sort: '' };

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `{view, names, settings}` of an address; `view` is `unknown` for one that isn't a view's. */
export function parse(hash) {
  const [path, query = ''] = hash.replace(/^#?\/?/, '').split(/\?(.*)/s);
  const [first, ...rest] = path.split('/').map(decoded);
  const view = Object.hasOwn(VIEWS, first) ? VIEWS[first] : 'unknown';
  const names = {};
  const wanted = NAMES[view] ?? [];
  wanted.forEach((name, at) => (names[name] = rest[at] ?? ''));
  const isWhole = rest.length === wanted.length && rest.every(part => part !== '');
  const settings = { ...DEFAULTS };
  for (const [key, value] of new URLSearchParams(query)) {
    if (Object.hasOwn(DEFAULTS, key)) settings[key] = value;
  }
  return { view: isWhole || LISTS.includes(view) ? view : 'unknown', names, settings };
}

/** The address of a view. */
export function format(view, names = {}, settings = {}) {
  const first = Object.keys(VIEWS).find(key => VIEWS[key] === view);
  const path = [first, ...NAMES[view].map(name => names[name])].map(encodeURIComponent).join('/');
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(settings)) {
    if (value && Object.hasOwn(DEFAULTS, key)) query.set(key, value);
  }
  const text = query.toString();
  return `#/${path}${text && `?${text}`}`;
}

export const nodeLink = node => format('node', { node });
export const podLink = (namespace, name) => format('pod', { namespace, name });
export const gpuLink = uuid => format('gpu', { uuid });
export const namespaceLink = namespace => format('pods', {}, { namespace });
export const modelLink = model => format('overview', {}, { model });
