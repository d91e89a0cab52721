// Lines over time.

import { h } from './dom.js';

/** Size of the drawing in its own units; it is stretched to its place. */
const WIDTH = 600;
const HEIGHT = 100;

/** Path of values that hold until the next one, as far as `to`. */
export function stepPath(points, from, to, most) {
  const span = Math.max(1, to - from);
  const x = seconds => round(((Math.min(seconds, to) - from) / span) * WIDTH);
  const y = value => round(HEIGHT - (Math.min(value, most) / most) * HEIGHT);
  const parts = points.map(([seconds, value], at) =>
    at === 0 ? `M${x(seconds)} ${y(value)}` : `H${x(seconds)}V${y(value)}`,
  );
  return parts.length === 0 ? '' : `${parts.join('')}H${x(to)}`;
}

const round = value => Math.round(value * 10) / 10;

/** A round number that is no smaller, for the upper end of a scale. */
export function roundUp(value) {
  if (value <= 4) return 4;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(factor => factor * step).find(end => end >= value);
}

/**
 * A chart: `series` of `{name, text, points}`, where `text` is the present value in words; values reach from 0 to
 * `most`, whose text is `mostText`. Times are in seconds since the page was opened, up to now.
 */
export function chart({ title, series, most, mostText, now, since }) {
  const present = series.map(({ name, text }) => `${name} ${text}`).join(', ');
  const lines = series.map(({ points }, at) =>
    h('path', {
      key: at,
      class: `line line-${at}`,
      d: stepPath(points, 0, Math.max(now, 1), most),
      'vector-effect': 'non-scaling-stroke',
    }),
  );
  const grid = [25, 50, 75].map(y =>
    h('path', { class: 'grid', d: `M0 ${y}H${WIDTH}`, 'vector-effect': 'non-scaling-stroke' }),
  );
  return h(
    'figure',
    { class: 'chart' },
    h(
      'figcaption',
      null,
      h('span', { class: 'chart-title' }, title),
      series.map(({ name, text }, at) =>
        h(
          'span',
          { class: 'legend' },
          h('span', { class: `mark line-${at}`, 'aria-hidden': 'true' }),
          `${name} `,
          h('b', null, text),
        ),
      ),
    ),
    h(
      'div',
      { class: 'plot' },
      h('span', { class: 'scale', 'aria-hidden': 'true' }, h('span', null, mostText), h('span', null, '0')),
      h(
        'svg',
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
          preserveAspectRatio: 'none',
          role: 'img',
          'aria-label': `${title}. Now: ${present}.`,
        },
        grid,
        lines,
      ),
    ),
    h('div', { class: 'times', 'aria-hidden': 'true' }, h('span', null, since), h('span', null, 'now')),
  );
}
