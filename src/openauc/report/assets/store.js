"use strict";
// The report on a store of trials.

const { rows, same, histories, sensitivity } = data;
const rowColor = (label) => color(rows.indexOf(label));
const sharing = (label) => same.find((labels) => labels.includes(label))?.join(", ") ?? label; // all rows of its training

// A figure with a title and a place for a chart, at the end of the element.
function place(parent, title, id) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption"), strong = document.createElement("b"), spot = document.createElement("div");
  strong.textContent = title;
  caption.append(strong);
  spot.className = "chart";
  spot.id = id;
  figure.append(caption, spot);
  $(parent).append(figure);
}

sensitivity.forEach(({ title, points }, k) => {
  place("sensitivity", title, `sensitivity-${k}`);
  const band = points.filter((point) => point.interval);
  const best = d3.greatest(points, (point) => point.mean);
  chart(`sensitivity-${k}`, (width) => Plot.plot({
    width, height: 260, marginLeft: 48, marginBottom: 40, marginTop: 20, style: STYLE,
    ariaLabel: `${data.metric} against lambda, ${title}`, ariaDescription: points.map((p) => `lambda ${p.lam}: ${percent(p.mean)}`).join("; "),
    x: { type: "point", domain: points.map((p) => p.lam), label: "λ", labelAnchor: "center", labelArrow: "none", tickSize: 0 },
    y: { label: `${data.metric} (%)`, labelArrow: "none", tickSize: 0, ticks: 5, nice: true, insetTop: 16, tickFormat: (v) => `${+(100 * v).toFixed(2)}` },
    marks: [
      Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 }),
      Plot.areaY(band, { x: "lam", y1: (p) => Math.max(0, p.interval[0]), y2: (p) => Math.min(1, p.interval[1]), fill: color(0), fillOpacity: 0.14 }),
      Plot.line(points, { x: "lam", y: "mean", stroke: color(0), strokeWidth: 2 }),
      Plot.dot(points, { x: "lam", y: "mean", r: 4.5, fill: color(0), stroke: "var(--paper)", strokeWidth: 1.5 }),
      Plot.text([best], { x: "lam", y: "mean", text: (p) => percent(p.mean), dy: -13, fill: color(0), fontWeight: 600, fontSize: 13, stroke: "var(--paper)", strokeWidth: 4 }),
    ],
  }));
});

if (histories.length) {
  const select = $("quantity");
  for (const name of new Set(histories.flatMap((history) => Object.keys(history.curves)))) select.add(new Option(name.replaceAll("_", " "), name));
  const draws = [...new Set(histories.map((history) => history.protocol))].map((protocol, k) => {
    place("histories", protocol, `history-${k}`);
    // One small chart for each row, all with the same axes.
    return chart(`history-${k}`, (width) => {
      const shown = histories.filter((history) => history.protocol === protocol && history.curves[select.value]);
      const labels = [...new Set(shown.map((history) => history.row))];
      const across = Math.max(1, Math.min(labels.length, Math.floor(width / 165)));
      const facet = { fx: (d) => labels.indexOf(d.row) % across, fy: (d) => Math.floor(labels.indexOf(d.row) / across) };
      const points = shown.flatMap(({ row, curves }, trial) => curves[select.value].x.map((x, i) => ({ row, trial, x, y: curves[select.value].y[i] })));
      const names = labels.map((row) => ({ row }));
      return Plot.plot({
        width, height: 54 + 150 * Math.ceil(labels.length / across), marginLeft: 44, marginBottom: 40, marginTop: 4, style: STYLE,
        ariaLabel: `${select.value} during training on ${protocol}`, ariaDescription: `${shown.length} trainings of ${labels.map(sharing).join(", ")}`,
        x: { label: "epoch", labelAnchor: "center", labelArrow: "none", tickSize: 0, ticks: 4 },
        y: { label: null, tickSize: 0, ticks: 4, nice: true, insetTop: d3.max(labels, (row) => sharing(row).length) > width / across / 8 ? 34 : 18 },
        fx: { axis: null, paddingInner: 0.12 }, fy: { axis: null, paddingInner: 0.14 },
        marks: [
          Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 4 }),
          Plot.line(points, { ...facet, x: "x", y: "y", z: "trial", stroke: (d) => rowColor(d.row), strokeOpacity: 0.6, strokeWidth: 1.3 }),
          Plot.text(names, { ...facet, frameAnchor: "top-left", text: (d) => short(sharing(d.row), Math.floor(width / across / 4)), lineWidth: width / across / 18, fill: (d) => rowColor(d.row), fontSize: width < 500 ? 11 : 12, fontWeight: 600, stroke: "var(--paper)", strokeWidth: 4 }),
        ],
        color: { type: "identity" },
      });
    });
  });
  select.addEventListener("change", () => draws.forEach((draw) => draw()));
}
