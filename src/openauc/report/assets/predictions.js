"use strict";
// The report on predictions. Every number shown is looked up in the data, never computed from others, save sums of counts.

const { models, stories, flipped } = data;
const METRICS = { macro_f_score: "macro F-score", youden_index: "Youden's index", normalized_accuracy: "normalized accuracy" };
// As in the legend of the page.
const DASHES = { macro_f_score: null, youden_index: "7 3", normalized_accuracy: "2 3" };
const slider = $("threshold");
let active = 0;
let position = models[0].start;
const moving = {}; // chart -> function that moves its marks to the position

// --- curves of all models ----------------------------------------------------------------------------------

function curves(id, key, area, xLabel, yLabel) {
  const best = d3.sort(d3.range(models.length), (i) => -models[i][area]);
  chart(id, (width) => {
    const size = Math.min(width, 520);
    const marks = [...gridlines];
    if (key === "roc") marks.push(Plot.line([[0, 0], [1, 1]], { stroke: "var(--line)", strokeDasharray: "3 3" }));
    models.forEach((model, i) => {
      const { x, y } = model.curves[key];
      if (key === "oscr") marks.push(Plot.areaY(model.band.x, { x: model.band.x, y1: model.band.low, y2: model.band.high, fill: color(i), fillOpacity: 0.16 }));
      marks.push(Plot.line(x, { x, y, stroke: color(i), strokeWidth: i === active ? 2.4 : 1.7, strokeLinejoin: "round" }));
    });
    const figure = Plot.plot({
      width: size, height: Math.min(size, 460), marginLeft: 44, marginBottom: 40, style: STYLE,
      ariaLabel: `${yLabel} against ${xLabel}`, ariaDescription: best.map((i) => `${models[i].name}: area ${percent(models[i][area])}`).join("; "),
      x: { ...share, label: `${xLabel} (%)`, labelAnchor: "center", labelArrow: "none", line: false, tickSize: 0 },
      y: { ...share, label: `${yLabel} (%)`, labelArrow: "none", tickSize: 0 },
      marks,
    });
    const move = cursor(figure, color(active));
    moving[id] = () => move(models[active].sweep[`${key}_x`][position], models[active].sweep[`${key}_y`][position]);
    moving[id]();
    return figure;
  });
}
curves("oscr", "oscr", "openauc", "unknown samples accepted", "known samples accepted and right");
curves("roc", "roc", "auroc", "known samples rejected", "unknown samples rejected");

// --- panels of the chosen model ------------------------------------------------------------------------------

chart("scores", (width) => {
  const { edges, right, wrong, unknown } = models[active].histogram;
  const { figure, moveTo } = scoreBars(width, edges, [
    { name: "known, class right", heights: right, fill: "var(--right)" },
    { name: "known, class wrong", heights: wrong, fill: "var(--wrong)" },
  ], { name: "unknown", heights: unknown, fill: "var(--unknown)" }, flipped ? "open-set score, minus the confidence" : "open-set score", color(active));
  moving.scores = () => moveTo(finite(models[active].sweep.threshold[position]));
  moving.scores();
  return figure;
});

const drawFate = chart("fate", (width) => {
  const { n_known, n_unknown, sweep } = models[active];
  const [right, wrong, unknown] = [sweep.right[position], sweep.wrong[position], sweep.unknown[position]];
  const parts = [
    ["known", "accepted, right", right / n_known, "var(--right)"],
    ["known", "accepted, wrong", wrong / n_known, "var(--wrong)"],
    ["known", "rejected", (n_known - right - wrong) / n_known, "var(--line)"],
    ["unknown", "accepted", unknown / n_unknown, "var(--unknown)"],
    ["unknown", "rejected", (n_unknown - unknown) / n_unknown, "var(--line)"],
  ].map(([side, fate, part, fill]) => ({ side, fate, part, fill }));
  return Plot.plot({
    width, height: 110, marginLeft: 64, marginBottom: 30, marginTop: 4, style: STYLE,
    ariaLabel: "Accepted and rejected samples", ariaDescription: parts.map((p) => `${p.side} ${p.fate} ${percent(p.part)}`).join(", "),
    x: { ...share, label: null, tickSize: 0, tickFormat: (v) => `${Math.round(100 * v)} %` },
    y: { label: null, tickSize: 0, domain: ["known", "unknown"] },
    marks: [Plot.barX(parts, Plot.stackX({ x: "part", y: "side", fill: "fill", order: null, insetRight: 1, title: (p) => `${p.side}, ${p.fate}: ${percent(p.part)}` }))],
    color: { type: "identity" },
  });
});

chart("figure1", (width) => {
  const model = models[active];
  const keys = Object.keys(METRICS);
  const heights = keys.flatMap((key) => model.curves[key].y);
  const figure = Plot.plot({
    width, height: 340, marginLeft: 44, marginBottom: 40, marginRight: 12, style: STYLE,
    ariaLabel: "Each metric against the share of unknown samples rejected",
    ariaDescription: keys.map((key) => `${METRICS[key]} is best, ${percent(model.best[key][1])}, where ${percent(model.best[key][0])} of unknown samples are rejected`).join("; "),
    x: { ...share, label: "unknown samples rejected (%)", labelAnchor: "center", labelArrow: "none", tickSize: 0 },
    y: { ...share, domain: [Math.min(0, ...heights), 1], label: "metric at the threshold (%)", labelArrow: "none", tickSize: 0 },
    marks: [
      ...gridlines,
      Plot.ruleY([model.openauc], { stroke: "var(--soft)", strokeDasharray: "1 4", strokeLinecap: "round", strokeWidth: 2 }),
      ...keys.map((key) => Plot.line(model.curves[key].x, { x: model.curves[key].x, y: model.curves[key].y, stroke: color(active), strokeWidth: 2, strokeDasharray: DASHES[key] })),
      Plot.dot(keys, { x: (key) => model.best[key][0], y: (key) => model.best[key][1], r: 6, stroke: color(active), strokeWidth: 2, fill: "var(--paper)" }),
    ],
  });
  const moves = keys.map(() => cursor(figure, color(active)));
  moving.figure1 = () => keys.forEach((key, i) => moves[i](model.sweep.unknown_rejected[position], model.sweep[key][position]));
  moving.figure1();
  return figure;
});

stories.forEach((ofModel, i) => ofModel.forEach((changes, j) => chart(`story-${i}-${j}`, (width) => {
  const rows = changes.map(([metric, before, after]) => ({ metric, before, after, moved: Math.abs(after - before) > 1e-9 }));
  // As many digits as tell the two apart, as in the text.
  const digits = ({ before, after }) => [1, 2, 3].find((d) => percent(before, d) !== percent(after, d)) ?? 4;
  const figure = (row, value, anchor, dx) => Plot.text([row], { x: value, y: "metric", text: () => (100 * value).toFixed(row.moved ? digits(row) : 1), dx, textAnchor: anchor, fill: "var(--ink)", fontSize: 12, stroke: "var(--card)", strokeWidth: 4 });
  return Plot.plot({
    width, height: 26 + 44 * rows.length, marginLeft: 34, marginRight: 44, marginTop: 8, marginBottom: 24, style: STYLE,
    ariaLabel: "Metrics before and after the exchange", ariaDescription: rows.map((r) => `${r.metric}: ${percent(r.before)} before, ${percent(r.after)} after`).join("; "),
    x: { ...share, domain: [0, Math.max(1, d3.max(rows, (r) => Math.max(r.before, r.after)))], label: null, tickSize: 0, tickFormat: (v) => `${Math.round(100 * v)}` },
    y: { axis: null, domain: rows.map((r) => r.metric) },
    marks: [
      Plot.gridX({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 }),
      Plot.text(rows, { x: 0, y: "metric", text: "metric", textAnchor: "start", dx: -32, dy: -15, fill: "var(--soft)", fontSize: 12.5, stroke: "var(--card)", strokeWidth: 4 }),
      Plot.link(rows.filter((r) => r.moved), { x1: "before", x2: "after", y: "metric", stroke: color(i), strokeWidth: 2, markerEnd: "arrow" }),
      Plot.dot(rows, { x: "before", y: "metric", r: 4.5, fill: (r) => (r.moved ? "var(--card)" : "var(--soft)"), stroke: (r) => (r.moved ? color(i) : "var(--soft)"), strokeWidth: 2 }),
      ...rows.map((r) => figure(r, r.before, r.after < r.before ? "start" : "end", r.after < r.before ? 9 : -9)),
      ...rows.filter((r) => r.moved).map((r) => figure(r, r.after, r.after < r.before ? "end" : "start", r.after < r.before ? -9 : 9)),
    ],
    color: { type: "identity" },
  });
})));

// --- tables ----------------------------------------------------------------------------------------------------

const totals = (steps) => steps.map((row) => d3.cumsum(row));
let tables = () => {};

// Which classes a table shows, and how many it leaves out.
function those(kind, { name, n_classes }, order) {
  const left = n_classes - name.length;
  return left ? `${count(name.length)} of ${count(n_classes)} ${kind}, ${order}; ${count(left)} are left out.` : `All ${count(n_classes)} ${kind}, ${order}.`;
}

function fillTables() {
  const { classes, origins } = models[active];
  $("classes_note").textContent = `${those("known classes", classes, "the lowest accuracy first")} At the threshold chosen above, of ${models[active].name}.`;
  const body = $("classes").tBodies[0];
  body.replaceChildren();
  const [accepted, right, taken] = [classes.accepted, classes.right, classes.taken].map(totals);
  const updates = classes.name.map((name, i) => {
    const row = body.insertRow();
    cell(row, name, "name");
    cell(row, count(classes.size[i]));
    cell(row, percent(classes.accuracy[i]));
    const setAccepted = bar(row), setRight = bar(row), other = cell(row, "");
    return () => {
      setAccepted(accepted[i][position] / classes.size[i]);
      setRight(right[i][position] / classes.size[i]);
      other.textContent = count(taken[i][position]);
    };
  });
  $("origins_part").hidden = !origins;
  if (origins) {
    $("origins_note").textContent = those("unknown classes", origins, "the largest first");
    const rows = $("origins").tBodies[0];
    rows.replaceChildren();
    const kept = totals(origins.accepted);
    origins.name.forEach((name, i) => {
      const row = rows.insertRow();
      cell(row, name, "name");
      cell(row, count(origins.size[i]));
      const setRejected = bar(row);
      const taken = cell(row, "", "name");
      origins.taken_for[i].forEach(([known, part], j) => {
        const name = document.createElement("bdi"); // a name written from right to left turns nothing else around
        name.textContent = known;
        taken.append(j ? ", " : "", name, ` ${percent(part, 0)}`);
      });
      updates.push(() => setRejected(1 - kept[i][position] / origins.size[i]));
    });
  }
  tables = () => updates.forEach((update) => update());
}

function fillOthers() {
  const table = $("others");
  if (!table) return;
  const body = table.tBodies[0];
  body.replaceChildren();
  const wanted = models[active].sweep.known_accepted[position];
  models.forEach((model, i) => {
    // Shares accepted rise along the slider: the first that is at least as large.
    const at = i === active ? position : Math.min(d3.bisectLeft(model.sweep.known_accepted, wanted - 1e-9), model.sweep.threshold.length - 1);
    const row = body.insertRow();
    row.className = i === active ? "active" : "";
    row.style.setProperty("--accent", color(i));
    cell(row, model.name, "name");
    for (const key of ["known_accepted", "unknown_rejected", "macro_f_score"]) cell(row, percent(model.sweep[key][at]));
  });
}

// --- moving ------------------------------------------------------------------------------------------------------

function rule(t) {
  const [name, scores, value] = flipped ? ["confidence <", "-confidence", opposite(t)] : ["score >", "open_score", t];
  const code = `threshold = ${written(t)}\nlabels = decide(y_pred, ${scores}, threshold=threshold)`;
  return [`unknown when ${name} ${exact(value)}`, code];
}
const opposite = (t) => (typeof t === "string" ? (t === "inf" ? "-inf" : "inf") : -t);

function move() {
  const { sweep, n_known, n_unknown, presets } = models[active];
  const t = sweep.threshold[position];
  for (const key of ["known_accepted", "unknown_rejected", ...Object.keys(METRICS)]) $(key).textContent = percent(sweep[key][position]);
  const [right, wrong, unknown] = [sweep.right[position], sweep.wrong[position], sweep.unknown[position]];
  const allRight = sweep.right.at(-1);
  for (const [key, accepted, all] of [["right", right, allRight], ["wrong", wrong, n_known - allRight], ["unknown", unknown, n_unknown]]) {
    $(`${key}_accepted`).textContent = count(accepted);
    $(`${key}_refused`).textContent = count(all - accepted);
  }
  $("value").textContent = readable(t);
  slider.value = position;
  slider.setAttribute("aria-valuetext", `${readable(t)}: ${percent(sweep.known_accepted[position])} of known samples accepted, ${percent(sweep.unknown_rejected[position])} of unknown samples rejected`);
  const [sentence, code] = rule(t);
  $("rule").textContent = sentence;
  $("code").textContent = `from openauc import decide\n\n${code}`;
  pressed($("presets"), presets, position);
  for (const moveMarks of Object.values(moving)) moveMarks();
  drawFate();
  tables();
  fillOthers();
}

function choose(index) {
  active = index;
  const model = models[index];
  document.documentElement.style.setProperty("--accent", color(index));
  slider.max = model.sweep.threshold.length - 1;
  position = model.start;
  jumps($("presets"), model.presets, (at) => { position = at; move(); });
  for (const part of document.querySelectorAll(".audit")) part.hidden = Number(part.dataset.model) !== index;
  fillTables();
  for (const draw of drawn.values()) draw();
  move();
}

slider.addEventListener("input", () => { position = Number(slider.value); move(); });
for (const radio of document.querySelectorAll("input[name=model]")) radio.addEventListener("change", () => choose(Number(radio.value)));
copies($("copy"), $("code"));
choose(0);
