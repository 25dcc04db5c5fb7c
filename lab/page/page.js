// The pages share this: elements, colors, numbers as text, the tip at the pointer, light and dark. chart.js uses it.
const $ = id => document.getElementById(id);
// Best to worst, and hues for categories: both keep apart for the color blind, on light and on dark.
const ramp = ['#1f9e89', '#2f7fb8', '#7a5cb5', '#c2558f', '#e08a3c'];
const hues = ['#2f7fb8', '#e08a3c', '#1f9e89', '#c2558f', '#7a5cb5', '#a08a2c', '#6b7785', '#b3402e'];
function setAll(made, attributes) {
  for (const key in attributes) made.setAttribute(key, attributes[key]);
}
function node(tag, attributes, ...content) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAll(made, attributes);
  made.append(...content);
  return made;
}
function element(tag, name, ...content) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...content);
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
function showTip(event, text) {
  const tip = $('tip');
  tip.style.display = 'block';
  tip.textContent = text;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
}
const hideTip = () => { $('tip').style.display = 'none'; };
function setTheme(dark) {
  document.documentElement.classList.toggle('dark', dark);
  $('theme').textContent = dark ? 'Light' : 'Dark';
}
