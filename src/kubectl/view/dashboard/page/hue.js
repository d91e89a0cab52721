// Colours of namespaces.

const HUES = 12;
const given = new Map();
const taken = new Set();

/**
 * A hue in degrees. It is the same in every browser, unless two namespaces want the same one: then the later takes the
 * next that is free, as long as there is one.
 */
export function hueOf(namespace) {
  let hue = given.get(namespace);
  if (hue === undefined) {
    hue = wanted(namespace);
    for (let tries = 0; taken.has(hue) && tries < HUES; tries += 1) hue = (hue + 1) % HUES;
    given.set(namespace, hue);
    taken.add(hue);
  }
  return hue * (360 / HUES) + 15;
}

function wanted(namespace) {
  let hash = 0;
  for (const letter of namespace) hash = (hash * 31 + letter.codePointAt(0)) % 65_521;
  return hash % HUES;
}
