"use strict";
// What both kinds of report share: data, theme, number formats, and charts that follow the width of their place.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const colors = Number(document.documentElement.dataset.colors);
const color = (index) => `var(--m${index % colors})`;
const percent = (value, digits = 1) => `${(100 * value).toFixed(digits).replace(/^-(?=0(\.0+)?$)/, "").replace("-", "−")}\u00a0%`;
const short = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
const count = (value) => value.toLocaleString("en-US");

// Thresholds: JSON has no infinities, so they are text there.
const finite = (t) => (typeof t === "string" ? (t === "inf" ? Infinity : -Infinity) : t);
const written = (t) => (typeof t === "string" ? `float("${t}")` : String(t));
const exact = (t) => (typeof t === "string" ? readable(t) : String(t).replace("-", "−"));
const readable = (t) => (typeof t === "string" ? (t === "inf" ? "∞" : "−∞") : String(Number(t.toPrecision(6))).replace("-", "−"));

const theme = $("theme");
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

const STYLE = { fontSize: "12px", color: "var(--soft)", background: "none", fontFamily: "var(--sans)" };
const share = { domain: [0, 1], ticks: 5, tickFormat: (v) => `${Math.round(100 * v)}`, percent: false };
const gridlines = [Plot.gridX({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 }), Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 })];

const drawn = new Map();

// Draw build(width) into the element, again whenever its width changes; returns a function that draws again.
function chart(id, build) {
  const place = $(id);
  let width = 0;
  const draw = () => {
    if (width) place.replaceChildren(build(width));
  };
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found !== width) {
      width = found;
      draw();
    }
  }).observe(place);
  drawn.set(id, draw);
  return draw;
}

// A mark that moves without drawing the chart again: a dot at (x, y), or a line where y is null.
function cursor(figure, stroke) {
  const x = figure.scale("x"), y = figure.scale("y");
  const svg = d3.select(figure);
  const top = y.range[1], bottom = y.range[0];
  const line = svg.append("line").attr("y1", top).attr("y2", bottom).attr("stroke", stroke).attr("stroke-width", 1.5);
  const dot = svg.append("circle").attr("r", 5.5).attr("fill", stroke).attr("stroke", "var(--paper)").attr("stroke-width", 2);
  return (at, height) => {
    const left = x.apply(Math.min(Math.max(at, x.domain[0]), x.domain[1]));
    line.attr("visibility", height === null ? "visible" : "hidden").attr("x1", left).attr("x2", left);
    dot.attr("visibility", height === null ? "hidden" : "visible").attr("cx", left).attr("cy", height === null ? 0 : y.apply(height));
  };
}

// Histogram of scores: known samples above the axis, one group on the other, and unknown ones, if any, below it.
// Groups have a name, heights and a fill; returns the figure, and what moves its threshold.
function scoreBars(width, edges, above, below, label, stroke) {
  const options = (fill) => ({ x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill, insetLeft: 0.5, insetRight: 0.5 });
  const bars = (heights, base, sign) => heights.map((h, i) => ({ x1: edges[i], x2: edges[i + 1], y1: sign * base[i], y2: sign * (base[i] + h) }));
  const base = above[0].heights.map(() => 0);
  const stacked = above.map(({ heights, fill }) => {
    const mark = Plot.rect(bars(heights, base, 1), options(fill));
    heights.forEach((h, i) => { base[i] += h; });
    return mark;
  });
  const top = 1.12 * d3.max(base), bottom = below ? 1.12 * d3.max(below.heights) : 0;
  const emptier = (heights) => (d3.sum(heights.slice(0, 20)) <= d3.sum(heights.slice(-20)) ? "start" : "end");
  const named = ({ name, fill }, y, dy, anchor) => Plot.text([name], { x: anchor === "end" ? edges.at(-1) : edges[0], y, text: (d) => d, fill, dy, textAnchor: anchor, fontSize: 13, fontWeight: 600, stroke: "var(--paper)", strokeWidth: 4 });
  const figure = Plot.plot({
    width, height: below ? 330 : 240, marginLeft: 44, marginTop: 22, marginBottom: 40, style: STYLE,
    ariaLabel: "Histogram of open-set scores", ariaDescription: `Known samples above the axis${below ? `, ${below.name} samples below it` : ""}; a line marks the threshold.`,
    x: { label, labelAnchor: "center", labelArrow: "none", tickSize: 0, domain: [edges[0], edges.at(-1)] },
    y: { label: null, tickSize: 0, tickFormat: (v) => `${Math.abs(Math.round(1000 * v) / 10)} %`, domain: [-bottom, top], ticks: 6 },
    marks: [
      Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 6 }),
      ...stacked,
      ...(below ? [Plot.rect(bars(below.heights, below.heights.map(() => 0), -1), options(below.fill))] : []),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
      ...above.map((group, i) => named(group, top, 8 + 18 * i, emptier(base))),
      ...(below ? [named(below, -bottom, -8, emptier(below.heights))] : []),
    ],
  });
  const move = cursor(figure, stroke), x = figure.scale("x");
  const side = (text, anchor) => d3.select(figure).append("text").text(text).attr("y", 12).attr("text-anchor", anchor).attr("fill", "var(--soft)").attr("font-size", 12);
  const accepted = side("← accepted", "end"), rejected = side("rejected →", "start");
  const moveTo = (at) => {
    move(at, null);
    const left = x.apply(Math.min(Math.max(at, edges[0]), edges.at(-1)));
    accepted.attr("x", left - 6).attr("visibility", left > 112 ? "visible" : "hidden");
    rejected.attr("x", left + 6).attr("visibility", left < width - 90 ? "visible" : "hidden");
  };
  return { figure, moveTo };
}

function cell(row, text, kind = "n") {
  const td = row.insertCell();
  td.className = kind;
  if (kind === "name") td.append(...breakable(text));
  else td.textContent = text;
  return td;
}

// The pieces of a name, which may go on in another line after a mark.
function breakable(name) {
  return name.split(/(?<=[_/.:@-])(?=\w)/).flatMap((piece, i) => (i ? [document.createElement("wbr"), piece] : [piece]));
}

// A share as a bar and a number; returns a function that sets it.
function bar(row) {
  const td = cell(row, "");
  const fill = document.createElement("i"), track = document.createElement("span"), number = document.createElement("span");
  track.className = "bar";
  track.append(fill);
  td.append(track, number);
  return (value) => {
    fill.style.width = `${100 * value}%`;
    number.textContent = percent(value);
  };
}

// Buttons that jump to positions of a slider, by name; and which of them are pressed.
function jumps(place, positions, jump) {
  place.replaceChildren(...Object.entries(positions).map(([key, at]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.key = key;
    button.textContent = key;
    button.addEventListener("click", () => jump(at));
    return button;
  }));
}
function pressed(place, positions, position) {
  for (const button of place.children) button.setAttribute("aria-pressed", positions[button.dataset.key] === position);
}

// A button that copies the text of an element.
function copies(button, source) {
  button.addEventListener("click", async () => {
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected: press Ctrl+C"; // a page from disk may not be allowed to
    }
  });
}
