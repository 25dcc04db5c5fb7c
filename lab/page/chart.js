// The pages draw with this: charts of lines and dots, boxes of facts, tables, the button for light and dark.

// The inside of a chart of W by H. Values keep away from its edges by the shares padX and padY of its size, labels from
// its axes by `gap`. across() and up() place shares of the width and the height.
function frameOf({ W, H, left, right, top, bottom, above = 0, gap = 7, padX = 0, padY = 0 }) {
  const width = W - left - right, height = H - top - bottom, floor = H - bottom;
  const across = share => left + (padX + (1 - 2 * padX) * share) * width;
  const up = share => floor - (padY + (1 - 2 * padY) * share) * height;
  return { W, H, left, right: W - right, ceiling: top - above, floor, width, gap, across, up };
}
// A frame with a scale for each axis; px() and py() place values.
const planeOf = (frame, x, y) => ({ ...frame, x, y, px: v => frame.across(x.at(v)), py: v => frame.up(y.at(v)) });
const chartOf = ({ W, H }, label, attributes) =>
  node('svg', { ...attributes, viewBox: '0 0 ' + W + ' ' + H, role: 'img', 'aria-label': label });
const acrossLine = ({ left, right }, y, name) => node('line', { x1: left, x2: right, y1: y, y2: y, class: name });
const uprightLine = ({ ceiling, floor }, x, rest) => node('line', { x1: x, x2: x, y1: ceiling, y2: floor, ...rest });
function drawAxes(svg, plane) {
  const { left, floor, gap, across, up } = plane;
  for (const [p, label] of plane.y.ticks) {
    const text = node('text', { x: left - gap, y: up(p) + 4, 'text-anchor': 'end' }, label);
    svg.append(acrossLine(plane, up(p), 'grid'), text);
  }
  for (const [p, label] of plane.x.ticks)
    svg.append(node('text', { x: across(p), y: floor + gap + 10, 'text-anchor': 'middle' }, label));
  svg.append(acrossLine(plane, floor, 'axis'));
}
// A group that shows nothing outside the frame.
function clippedLayer(svg, { left, width, ceiling, floor }, id) {
  const clip = node('clipPath', { id }, node('rect', { x: left, y: ceiling, width, height: floor - ceiling }));
  const layer = node('g', { 'clip-path': 'url(#' + id + ')' });
  svg.append(clip, layer);
  return layer;
}
// A path through the points in the frame, with a gap where a value has no place. It goes through the lowest and highest
// of each column of pixels where there are more points than pixels.
function pathOf(xs, ys, { left, right, width, y, px, py }) {
  let begin = 0, end = xs.length;
  while (begin < end - 1 && px(xs[begin + 1]) < left) ++begin;
  while (end > begin + 1 && px(xs[end - 2]) > right) --end;
  const dense = end - begin > 2 * width;
  let path = '', pen = 'M', column = null, low = null, high = null;
  const put = i => { path += pen + px(xs[i]).toFixed(1) + ' ' + py(ys[i]).toFixed(1); pen = 'L'; };
  const flush = () => {
    if (low === null) return;
    for (const i of low < high ? [low, high] : low > high ? [high, low] : [low]) put(i);
    low = high = null;
  };
  for (let i = begin; i < end; ++i) {
    if (!y.has(ys[i])) { flush(); pen = 'M'; continue; }
    if (!dense) { put(i); continue; }
    const now = Math.floor(px(xs[i]));
    if (now !== column) { flush(); column = now; }
    if (low === null || ys[i] < ys[low]) low = i;
    if (high === null || ys[i] > ys[high]) high = i;
  }
  flush();
  return path;
}

// ---- scales
const extent = values =>
  [[Math.min, Infinity], [Math.max, -Infinity]].map(([pick, start]) => values.reduce((a, b) => pick(a, b), start));
const hasPlace = log => value => isNumber(value) && (!log || value > 0);
// Positions for values: {at(value) in [0, 1], has(value): whether it has one, ticks: [[position, label]]}.
function scaleOf(values, log, label = format) {
  const at = log ? Math.log10 : v => v;
  let [low, high] = extent(values.map(at));
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const place = v => (at(v) - low) / (high - low), ticks = [];
  if (log && high - low >= 1) {
    const every = Math.ceil((high - low) / 6), marks = high - low < 2 ? [1, 2, 5] : [1];
    for (let e = Math.floor(low); e <= high; e += every)
      for (const m of marks) {
        const v = m * 10 ** e;
        if (place(v) > -1e-6 && place(v) < 1 + 1e-6) ticks.push([place(v), label(v)]);
      }
  } else {
    const back = log ? v => 10 ** v : v => v, span = back(high) - back(low), raw = span / 5;
    const unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= raw);
    for (let v = Math.ceil(back(low) / step - 1e-9) * step; v <= back(high) + span * 1e-6; v += step)
      ticks.push([place(v), label(+v.toPrecision(12))]);
  }
  return { at: place, has: hasPlace(log), ticks };
}
// A logarithmic scale suits values that lie more evenly on it than on a linear one, as their median tells.
function isLog(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted[sorted.length >> 1], [low, high] = extent(values);
  if (!(low > 0) || high / low < 20) return false;
  const linear = (middle - low) / (high - low), logarithmic = Math.log(middle / low) / Math.log(high / low);
  return Math.abs(logarithmic - 0.5) < Math.abs(linear - 0.5);
}
function smoothed(values, weight) {
  let kept = null, share = 0;
  return values.map(v => {
    if (v === null || !weight) return v;
    kept = (kept === null ? 0 : kept) * weight + v * (1 - weight);
    share = share * weight + 1 - weight;
    return kept / share; // as an average over what there was so far, not pulled to zero at the start
  });
}

// ---- the pointer
function pointerIn(svg, { W, H }, event) {
  const box = svg.getBoundingClientRect();
  return [(event.clientX - box.left) * W / box.width, (event.clientY - box.top) * H / box.height];
}
// The index of the lower end of the interval between sorted numbers that a value is in.
function intervalOf(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle; else high = middle;
  }
  return low;
}
function nearest(sorted, value) {
  const low = intervalOf(sorted, value), high = Math.min(low + 1, sorted.length - 1);
  return value - sorted[low] < sorted[high] - value ? low : high;
}

// ---- beside the charts
const addFact = (value, label) => $('facts').append(element('div', '', element('b', '', value), label));
function swatch(color) {
  const dot = element('span', 'swatch');
  dot.style.background = color;
  return dot;
}
const withSwatch = (color, text) => element('span', '', swatch(color), text);
// Columns are [name, class]. A cell is what it shows, text or an element, or [that, class]. Returns the rows.
function fillTable(table, columns, rows) {
  const line = (tag, cells) => element('tr', '', ...cells.map(([content, kind]) => element(tag, kind, content ?? '')));
  const withClass = (cell, i) => Array.isArray(cell) ? cell : [cell, columns[i][1]];
  const lines = rows.map(cells => line('td', cells.map(withClass)));
  table.tHead.replaceChildren(line('th', columns));
  table.tBodies[0].replaceChildren(...lines);
  return lines;
}
// Light or dark, as asked for or else as the system is.
function startTheme(asked = null) {
  setTheme(asked === null ? matchMedia('(prefers-color-scheme: dark)').matches : asked === 'dark');
  $('theme').onclick = () => setTheme(!document.documentElement.classList.contains('dark'));
}
