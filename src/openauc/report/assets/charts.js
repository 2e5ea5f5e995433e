"use strict";
// What both kinds of report share: data, theme, number formats, and charts that follow the width of their place.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const colors = Number(document.documentElement.dataset.colors);
const color = (index) => `var(--m${index % colors})`;
const percent = (value, digits = 1) => `${(100 * value).toFixed(digits).replace(/^-(?=0(\.0+)?$)/, "").replace("-", "−")}\u00a0%`;
const short = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
const count = (value) => value.toLocaleString("en-US");

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
