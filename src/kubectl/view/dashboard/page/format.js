// Amounts, times and names as people read them.

const DIGITS = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const SHORT_DIGITS = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const DAY_AND_CLOCK = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });

export const number = value => DIGITS.format(value);

/** `1 pod`, `2 pods`. */
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? '' : 's'}`;

/** Memory of a sum, rounded: `512Mi`, `79.6Gi`, `140Gi`, `31.2Ti`. */
export function memory(mi) {
  if (mi === 0) return '0';
  if (mi < 1024) return `${number(mi)}Mi`;
  const [amount, unit] = mi < 10 * 1024 ** 2 ? [mi / 1024, 'Gi'] : [mi / 1024 ** 2, 'Ti'];
  return (amount < 100 ? SHORT_DIGITS : DIGITS).format(amount) + unit;
}

/** Memory as somebody requested it, exactly: `8Gi`, `3000Mi`. */
export const exactMemory = mi => (mi > 0 && mi % 1024 === 0 ? `${mi / 1024}Gi` : `${mi}Mi`);

export const mebibytes = bytes => Math.round(bytes / 1024 ** 2);

/** Part of a whole in whole percent; neither 0 nor 100 while it isn't quite that. */
export function percent(part, whole) {
  if (!(whole > 0) || !(part > 0)) return 0;
  const exact = (100 * part) / whole;
  if (exact >= 100) return Math.round(exact);
  return Math.min(99, Math.max(1, Math.round(exact)));
}

/** How long, as kubectl rounds ages: `45s`, `12m`, `3h`, `2d`. */
export function age(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Age of an RFC 3339 time; empty if it can't be read. */
export function ageSince(time, now) {
  const since = Date.parse(time ?? '');
  return Number.isNaN(since) ? '' : age(now - since);
}

export function dayAndClock(time) {
  const since = Date.parse(time ?? '');
  return Number.isNaN(since) ? '' : DAY_AND_CLOCK.format(since);
}

/** Shortest beginnings of 12 characters and more that tell UUIDs apart: `GPU-1d97b7c2`. */
export function shortIds(uuids) {
  for (let length = 12; ; length += 4) {
    const short = uuids.map(uuid => uuid.slice(0, length));
    if (new Set(short).size === new Set(uuids).size) return short;
  }
}

export const shortId = uuid => uuid.slice(0, 12);

/** A model without the vendor's name, which all have. */
export const shortModel = model => model.replace(/^NVIDIA /, '');

/** A key that sorts `gpu-2` before `gpu-10`. */
export const orderOf = name => name.replace(/\d+/g, digits => digits.padStart(10, '0'));

/** A name as one word of a shell command. */
export const quoted = name => (/^[\w./:=@%+-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);
