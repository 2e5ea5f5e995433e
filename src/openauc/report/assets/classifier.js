"use strict";
// The report on a classifier. In a block of its own, as the report on predictions may stand on the same page.
{
  const model = data.classifier;
  const accent = color(0);
  const slider = $("acceptance");
  let position = model.start;
  const moving = []; // functions that move the marks of a chart to the position

  // --- what was compared ---------------------------------------------------------------------------------------

  if (model.tried.length) chart("tried", (width) => {
    const rows = model.tried;
    const room = Math.min(16 + 7.2 * d3.max(rows, (row) => row.name.length), 0.4 * width);
    const ticks = Math.max(3, Math.round(width / 160));
    const fill = (row) => (row.name === model.chosen ? accent : "var(--soft)");
    return Plot.plot({
      width, height: 50 + 24 * rows.length, marginLeft: room, marginRight: 60, marginTop: 4, marginBottom: 40, style: STYLE,
      ariaLabel: `${model.metric} of each score`, ariaDescription: rows.map((row) => `${row.name}: ${percent(row.value)}`).join("; "),
      x: { label: `${model.metric} (%)`, labelAnchor: "center", labelArrow: "none", tickSize: 0, ticks, nice: true, domain: [d3.min(rows, (row) => row.low), d3.max(rows, (row) => row.high)], tickFormat: (v) => `${+(100 * v).toFixed(2)}` },
      y: { domain: rows.map((row) => row.name), axis: null },
      marks: [
        Plot.gridX({ stroke: "var(--grid)", strokeOpacity: 1, ticks }),
        Plot.text(rows, { y: "name", text: (row) => short(row.name, Math.floor((room - 12) / 7)), frameAnchor: "left", textAnchor: "end", dx: -12, fill: (row) => (row.name === model.chosen ? accent : "var(--ink)"), fontWeight: (row) => (row.name === model.chosen ? 700 : 400), fontSize: 13 }),
        Plot.ruleY(rows, { y: "name", x1: "low", x2: "high", stroke: fill, strokeWidth: (row) => (row.name === model.chosen ? 2.5 : 1.5), strokeOpacity: (row) => (row.name === model.chosen ? 1 : 0.55) }),
        Plot.dot(rows, { y: "name", x: "value", r: (row) => (row.name === model.chosen ? 6 : 4), fill, title: (row) => `${row.name}: ${percent(row.value)} (${percent(row.low)} – ${percent(row.high)})` }),
        Plot.text(rows, { y: "name", text: (row) => percent(row.value), frameAnchor: "right", textAnchor: "start", dx: 10, fill: (row) => (row.name === model.chosen ? accent : "var(--soft)"), fontWeight: (row) => (row.name === model.chosen ? 700 : 400), fontSize: 12.5 }),
      ],
      color: { type: "identity" }, r: { type: "identity" }, opacity: { type: "identity" },
    });
  });

  if (model.evidence) {
    const { grid, scores } = model.evidence;
    const heights = scores.flatMap((score) => score.curve);
    const domain = [Math.min(0, d3.min(heights)), Math.max(0, d3.max(heights))];
    scores.forEach((score, k) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), name = document.createElement("b"), place = document.createElement("div");
      name.textContent = score.name;
      caption.append(name, ` ${score.far < 0 ? "−" : "+"}${Math.abs(score.far).toFixed(2)}`);
      place.className = "chart";
      place.id = `evidence-${k}`;
      figure.append(caption, place);
      $("evidence").append(figure);
      chart(place.id, (width) => Plot.plot({
        width, height: 130, marginLeft: 30, marginRight: 6, marginTop: 6, marginBottom: 22, style: STYLE,
        ariaLabel: `What ${score.name} adds to the open-set score`, ariaDescription: `${score.far.toFixed(2)} where it is far above its mean on known samples`,
        x: { label: null, tickSize: 0, ticks: 4, domain: [grid[0], grid.at(-1)] },
        y: { label: null, tickSize: 0, ticks: 3, domain },
        marks: [
          Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 3 }),
          Plot.ruleX([0], { stroke: "var(--line)" }),
          Plot.ruleY([0], { stroke: "var(--line)" }),
          Plot.line(grid, { x: grid, y: score.curve, stroke: accent, strokeWidth: 2 }),
        ],
      }));
    });
  }

  // --- what a threshold does -----------------------------------------------------------------------------------

  chart("calibration", (width) => {
    const { edges, known, held_out } = model.histogram;
    const below = held_out && { name: "held-out classes", heights: held_out, fill: "var(--unknown)" };
    const { figure, moveTo } = scoreBars(width, edges, [{ name: "known", heights: known, fill: "var(--right)" }], below, "open-set score", accent);
    moving[0] = () => moveTo(model.threshold[position]);
    moving[0]();
    return figure;
  });

  if (model.rejected) chart("trade", (width) => {
    const figure = Plot.plot({
      width, height: 330, marginLeft: 44, marginTop: 22, marginBottom: 40, marginRight: 12, style: STYLE,
      ariaLabel: "Samples of held-out classes rejected against known samples accepted",
      ariaDescription: Object.entries(model.presets).map(([key, at]) => `${key}: ${percent(model.accepted[at])} of known samples accepted, ${percent(model.rejected[at])} of held-out ones rejected`).join("; "),
      x: { ...share, domain: [d3.min(model.accepted), 1], label: "known samples accepted (%)", labelAnchor: "center", labelArrow: "none", tickSize: 0 },
      y: { ...share, label: "held-out classes rejected (%)", labelArrow: "none", tickSize: 0 },
      marks: [...gridlines, Plot.line(model.accepted, { x: model.accepted, y: model.rejected, stroke: accent, strokeWidth: 2.2, strokeLinejoin: "round" })],
    });
    const mark = cursor(figure, accent);
    moving[1] = () => mark(model.accepted[position], model.rejected[position]);
    moving[1]();
    return figure;
  });

  const { classes } = model;
  const never = classes.size.filter((size) => !size).length;
  const told = never ? ` ${count(never)} ${never === 1 ? "class is" : "classes are"} never predicted for them.` : "";
  $("accepted_note").textContent = `All ${count(classes.name.length)} classes, those that are accepted least first. Calibration samples by the class that is predicted for them; of few samples, shares are rough.${told}`;
  const updates = classes.name.map((name, i) => {
    const row = $("accepted").tBodies[0].insertRow(), size = classes.size[i];
    cell(row, name, "name");
    cell(row, count(size));
    const set = size ? bar(row) : null;
    if (!size) cell(row, "never predicted");
    cell(row, size ? percent(classes.in_use[i]) : "–");
    if (model.per_class) cell(row, readable(classes.threshold[i]));
    return () => set?.(classes.accepted[i][position] / size);
  });

  // --- moving ----------------------------------------------------------------------------------------------------

  function code(asked, threshold) {
    const choice = asked === null ? threshold : `acceptance=${asked}${model.per_class ? ", per_class=False" : ""}`;
    return `from openauc.features import OpenSetClassifier\n\nclassifier = OpenSetClassifier.load(${JSON.stringify(model.name)})\nclassifier.set_threshold(${choice})\nclassifier.save(${JSON.stringify(model.name)})`;
  }

  function move() {
    const asked = model.asked[position], threshold = model.threshold[position];
    $("asked").textContent = asked === null ? "as in use" : percent(asked);
    $("share_accepted").textContent = percent(model.accepted[position]);
    if (model.rejected) $("share_rejected").textContent = percent(model.rejected[position]);
    $("score_threshold").textContent = readable(threshold);
    $("score_rule").textContent = `unknown when score > ${exact(threshold)}`;
    $("score_code").textContent = code(asked, threshold);
    slider.value = position;
    slider.setAttribute("aria-valuetext", `${percent(model.accepted[position])} of known samples accepted${model.rejected ? `, ${percent(model.rejected[position])} of samples of held-out classes rejected` : ""}`);
    pressed($("shares"), model.presets, position);
    for (const moveMarks of moving) moveMarks?.();
    for (const update of updates) update();
  }

  slider.max = model.threshold.length - 1;
  slider.addEventListener("input", () => { position = Number(slider.value); move(); });
  jumps($("shares"), model.presets, (at) => { position = at; move(); });
  copies($("score_copy"), $("score_code"));
  move();
}
