// The overview: sums, packing over time, what needs attention, and the nodes.

import { chart, roundUp } from './chart.js';
import { h, render } from './dom.js';
import { waitingOrder } from './filter.js';
import { ageSince, clock, count, memory, number, percent } from './format.js';
import { NodeList } from './nodes.js';
import { attention, foundPanel, waitingPanel } from './panels.js';
import { link, sumBar } from './parts.js';
import { format } from './route.js';

function tile(title, figure, ...rest) {
  return h('div', { class: 'tile' }, h('h2', null, title), h('p', { class: 'figure' }, figure), rest);
}

function tiles(cluster, now) {
  const { totals } = cluster;
  const pods = cluster.waiting().sort(waitingOrder('age'));
  const waiting = pods.length;
  const oldest = waiting > 0 && ageSince(pods[0].created, now);
  const wrong = [];
  if (totals.unhealthy > 0) wrong.push(`${number(totals.unhealthy)} not healthy`);
  if (totals.cordoned > 0) wrong.push(`${number(totals.cordoned)} cordoned`);
  const amounts = (title, sum, text) =>
    tile(
      title,
      [`${percent(sum.held, sum.capacity)} %`, h('small', null, ` of ${text(sum.capacity)}`)],
      sumBar(sum),
      h(
        'p',
        { class: 'quiet' },
        [`${text(sum.held)} held`, sum.reserved > 0 && `${text(sum.reserved)} reserved`, `${text(sum.free)} free`]
          .filter(Boolean)
          .join(' · '),
      ),
    );
  return h(
    'div',
    { class: 'tiles' },
    tile(
      'GPUs healthy',
      [number(totals.healthy), h('small', null, ` of ${number(totals.gpus)}`)],
      h('p', { class: wrong.length > 0 ? 'alarm' : 'quiet' }, wrong.join(' · ') || 'none cordoned'),
    ),
    amounts('Memory held', totals.memory, memory),
    amounts('Cores held', totals.cores, number),
    tile(
      'Nodes',
      number(totals.nodes),
      h(
        'p',
        { class: totals.closed > 0 ? 'alarm' : 'quiet' },
        totals.closed > 0
          ? `${number(totals.closed)} ${totals.closed === 1 ? 'takes' : 'take'} no pods`
          : 'all take pods',
      ),
    ),
    tile(
      'Pods with GPUs',
      link(format('pods'), number(totals.pods)),
      h('p', { class: 'quiet' }, `in ${count(totals.namespaces.size, 'namespace')}`),
    ),
    tile(
      'Waiting pods',
      link(format('waiting'), number(waiting)),
      h('p', { class: 'quiet' }, oldest ? `the oldest for ${oldest}` : 'none'),
    ),
  );
}

function charts({ cluster, recorder, opened, now }) {
  const at = recorder.seconds(now());
  const { totals } = cluster;
  const held = (sum, value) => ({
    text: `${percent(sum.held, sum.capacity)} %`,
    points: recorder.cluster.points(value),
  });
  const waiting = recorder.cluster.points(2);
  const most = roundUp(1 + Math.max(0, ...waiting.map(([, pods]) => pods)));
  const since = clock(opened);
  return h(
    'div',
    { class: 'charts wide' },
    chart({
      title: 'Packing since the page was opened',
      most: 1000,
      mostText: '100 %',
      now: at,
      since,
      series: [
        { name: 'Memory held', ...held(totals.memory, 0) },
        { name: 'Cores held', ...held(totals.cores, 1) },
      ],
    }),
    chart({
      title: 'Waiting pods',
      most,
      mostText: number(most),
      now: at,
      since,
      series: [{ name: 'Now', text: number(waiting.at(-1)?.[1] ?? 0), points: waiting }],
    }),
  );
}

export function overview(app) {
  let list;
  let top;
  let settings;

  function draw() {
    const { cluster } = app;
    render(
      top,
      h('h1', { tabindex: '-1', class: 'visually-hidden' }, 'Overview'),
      foundPanel(cluster, settings.q),
      // A search is for nodes and what is on them: nothing else is in the way.
      !settings.q.trim() && [
        tiles(cluster, app.now()),
        charts(app),
        h('div', { class: 'columns' }, attention(cluster), waitingPanel(cluster, app.now())),
      ],
    );
  }

  return {
    title: 'Overview',
    filters: ['namespace', 'model', 'state'],
    show(parent, names, shown) {
      settings = shown;
      top = document.createElement('div');
      const nodes = document.createElement('section');
      nodes.setAttribute('aria-label', 'Nodes');
      parent.replaceChildren(top, nodes);
      draw();
      list = new NodeList(app, nodes);
      list.change(settings);
    },
    change(shown) {
      settings = shown;
      draw();
      list.change(settings);
    },
    update(changed) {
      draw();
      list.update(changed.nodes);
    },
    move: by => list.move(by),
    focus: name => list.focus(name),
    close: () => list.close(),
  };
}
