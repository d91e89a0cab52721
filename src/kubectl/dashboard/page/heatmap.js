// The map of all GPUs, on a canvas. The table beside it has the same in text.

import { cellAt, layout, offset } from './grid.js';
import { fullness } from './holding.js';
import { fullnessStep } from './filter.js';

/** Height that the map keeps to if its cells then aren't too small, in CSS pixels. */
const MOST_HEIGHT = 440;
/** Cells of this size have marks drawn on them, in CSS pixels. */
const MARKED = 6;

export class HeatMap {
  #canvas;
  #context;
  #entries = [];
  #counts = [];
  #places = new Map();
  #grid;
  #colours;
  #of = 'memoryMi';
  #model = '';
  /** The picture and its pixels: tens of thousands of cells take too long as drawing commands. */
  #image;
  #pixels;
  #ratio = 1;

  /** `pointed(entry, gpu)` is called as the pointer moves, without arguments off the cells; `chosen` on a click. */
  constructor(canvas, pointed, chosen) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d', { alpha: false });
    canvas.onpointermove = event => pointed(...this.#at(event));
    canvas.onpointerleave = () => pointed();
    canvas.onclick = event => {
      const found = this.#at(event);
      if (found.length > 0) chosen(...found);
    };
  }

  /** Draws these nodes. */
  show(entries, of, model) {
    [this.#entries, this.#of, this.#model] = [entries, of, model];
    this.#counts = entries.map(entry => entry.node.gpus.length);
    this.#places = new Map(entries.map((entry, at) => [entry.name, at]));
    this.#colours = coloursOf(this.#canvas, this.#context);
    const width = this.#canvas.parentElement.clientWidth;
    this.#grid = layout(this.#counts, width, MOST_HEIGHT);
    const height = this.#grid.height + 2;
    this.#ratio = window.devicePixelRatio || 1;
    this.#canvas.width = Math.max(1, Math.round(width * this.#ratio));
    this.#canvas.height = Math.round(height * this.#ratio);
    this.#canvas.style.setProperty('height', `${height}px`);
    this.#image = this.#context.createImageData(this.#canvas.width, this.#canvas.height);
    this.#pixels = new Uint32Array(this.#image.data.buffer).fill(this.#colours.ground);
    entries.forEach((_, at) => this.#draw(at));
    this.#context.putImageData(this.#image, 0, 0);
  }

  /** Draws the changed ones of the same nodes anew; false if they aren't the same, or have other GPUs. */
  refresh(entries, names) {
    if (entries.length !== this.#entries.length) return false;
    const changed = [...names].map(name => this.#places.get(name)).filter(at => at !== undefined);
    const isSame = at =>
      entries[at].name === this.#entries[at].name && entries[at].node.gpus.length === this.#counts[at];
    if (!changed.every(isSame)) return false;
    this.#entries = entries;
    for (const at of changed) {
      const [left, top, wide, high] = this.#draw(at);
      this.#context.putImageData(this.#image, 0, 0, left, top, wide, high);
    }
    return true;
  }

  /** Draws a node, and returns where. */
  #draw(at) {
    const { node } = this.#entries[at];
    const { size, pitch, x, y } = this.#grid;
    const { bad, cordoned, mark, closed, ground } = this.#colours;
    const [right, down] = offset(Math.max(0, node.gpus.length - 1), pitch);
    const wide = node.gpus.length > 8 ? 8 * pitch : right + size;
    this.#fill(x[at] - 1, y[at], wide + 2, down + size + 1, ground);
    // A line below a node that takes no pods.
    if (!node.takesPods) this.#fill(x[at], y[at] + down + size, wide, 1, closed);
    node.gpus.forEach((gpu, number) => {
      const [right, down] = offset(number, pitch);
      const [left, top] = [x[at] + right, y[at] + down];
      const isSick = gpu.health !== 'Healthy';
      this.#fill(left, top, size, size, isSick ? bad : gpu.cordoned ? cordoned : this.#colourOf(gpu));
    });
    // After the others: on small cells a mark reaches over its neighbours'.
    node.gpus.forEach((gpu, number) => {
      const isSick = gpu.health !== 'Healthy';
      if (!isSick && !gpu.cordoned) return;
      const [right, down] = offset(number, pitch);
      const [left, top] = [x[at] + right, y[at] + down];
      if (size < MARKED) {
        if (isSick) this.#fill(left - 1, top, size + 2, size + 1, bad);
        return;
      }
      for (let step = 1; step < size - 1; step += 0.5) {
        this.#fill(left + step, top + size - 1 - step, 1, 1, mark);
        if (isSick) this.#fill(left + step, top + step, 1, 1, mark);
      }
    });
    return [x[at] - 1, y[at], wide + 2, down + size + 1].map(side => Math.ceil(side * this.#ratio));
  }

  #colourOf(gpu) {
    const { heat, dim } = this.#colours;
    return this.#model && gpu.model !== this.#model ? dim : heat[fullnessStep(fullness(gpu, this.#of))];
  }

  #fill(left, top, wide, high, colour) {
    const { width } = this.#image;
    const scaled = side => Math.round(side * this.#ratio);
    const [first, last] = [Math.max(0, scaled(left)), Math.min(width, scaled(left + wide))];
    for (let row = scaled(top); row < scaled(top + high); row += 1) {
      this.#pixels.fill(colour, row * width + first, row * width + last);
    }
  }

  #at(event) {
    const box = this.#canvas.getBoundingClientRect();
    const cell = this.#grid && cellAt(this.#grid, this.#counts, event.clientX - box.left, event.clientY - box.top);
    if (!cell) return [];
    const entry = this.#entries[cell[0]];
    return [entry, entry.node.gpus[cell[1]]];
  }
}

/** The style's colours as pixels. */
function coloursOf(element, context) {
  const style = getComputedStyle(element);
  const pixel = new Uint32Array(1);
  const colour = name => {
    context.fillStyle = style.getPropertyValue(name).trim();
    const rgb = Number.parseInt(context.fillStyle.slice(1), 16);
    new Uint8Array(pixel.buffer).set([rgb >> 16, (rgb >> 8) & 255, rgb & 255, 255]);
    return pixel[0];
  };
  return {
    heat: [0, 1, 2, 3, 4, 5].map(step => colour(`--heat-${step}`)),
    ground: colour('--surface'),
    bad: colour('--bad'),
    cordoned: colour('--cordoned'),
    mark: colour('--surface'),
    closed: colour('--text'),
    dim: colour('--line'),
  };
}
