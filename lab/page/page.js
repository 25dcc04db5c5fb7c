// What the pages share: SVG, numbers, scales, the tip at the pointer, light and dark.
const $ = id => document.getElementById(id);
// Best to worst, and hues for categories: both keep apart for the color blind, on light and on dark.
const ramp = ['#1f9e89', '#2f7fb8', '#7a5cb5', '#c2558f', '#e08a3c'];
const hues = ['#2f7fb8', '#e08a3c', '#1f9e89', '#c2558f', '#7a5cb5', '#a08a2c', '#6b7785', '#b3402e'];
function node(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}
function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}
function format(value) {
  if (typeof value !== 'number') return value === null || value === undefined ? '' : String(value);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2).replace(/\.?0+e/, 'e') : String(+value.toPrecision(4));
}
function mixRamp(t) {
  const at = Math.max(0, Math.min(1, t)) * (ramp.length - 1), i = Math.min(Math.floor(at), ramp.length - 2), f = at - i;
  const part = (color, n) => parseInt(color.slice(1 + 2 * n, 3 + 2 * n), 16);
  return 'rgb(' + [0, 1, 2].map(n => Math.round(part(ramp[i], n) * (1 - f) + part(ramp[i + 1], n) * f)).join(',') + ')';
}
const isNumber = value => typeof value === 'number' && isFinite(value);
// A position for values: {at(value) in [0, 1], ticks: [[position, label]]}.
function scaleOf(values, log) {
  const at = log ? Math.log10 : v => v;
  let low = Math.min(...values.map(at)), high = Math.max(...values.map(at));
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const place = v => (at(v) - low) / (high - low), ticks = [];
  if (log && high - low >= 1) {
    const every = Math.ceil((high - low) / 6), marks = high - low < 2 ? [1, 2, 5] : [1];
    for (let e = Math.floor(low); e <= high; e += every)
      for (const m of marks) {
        const v = m * 10 ** e;
        if (place(v) > -1e-6 && place(v) < 1 + 1e-6) ticks.push([place(v), format(v)]);
      }
  } else {
    const back = log ? v => 10 ** v : v => v, span = back(high) - back(low), raw = span / 5;
    const unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= raw);
    for (let v = Math.ceil(back(low) / step - 1e-9) * step; v <= back(high) + span * 1e-6; v += step)
      ticks.push([place(v), format(+v.toPrecision(12))]);
  }
  return { at: place, ticks };
}
function showTip(event, text) {
  const tip = $('tip');
  tip.style.display = 'block';
  tip.textContent = text;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
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
function setTheme(dark) {
  document.documentElement.classList.toggle('dark', dark);
  $('theme').textContent = dark ? 'Light' : 'Dark';
}
