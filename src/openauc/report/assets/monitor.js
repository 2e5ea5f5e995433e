"use strict";
// The report on a stream that was watched.
{
  const accent = color(0);
  const last = data.end.at(-1);
  const since = data.alarms.length ? data.alarms[0].since : null;
  const windows = data.end.map((end, i) => ({ first: end - data.n[i] + 1, end, middle: end - data.n[i] / 2, i }));

  // Times as they are written: the hour below the axis, and the day below it where a new one begins.
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const stamp = (time) => /^(\d{4})-(0[1-9]|1[0-2])-(\d\d)(?: (\d\d:\d\d))?/.exec(time);
  const hours = data.times && data.times.flat().some((time) => (stamp(time)?.[4] ?? "00:00") !== "00:00");
  const times = data.times && new Map([...windows.map((w) => [w.first - 1, data.times[w.i][0]]), [last, data.times.at(-1)[1]]]);
  function when(sample, i, samples) {
    const found = stamp(times.get(sample)), before = i ? stamp(times.get(samples[i - 1])) : null;
    if (!found) return short(times.get(sample), 16);
    const [, year, month, day, hour] = found;
    const date = `${+day} ${MONTHS[month - 1]}${before?.[1] === year ? "" : ` ${year}`}`;
    if (!hours) return date;
    return before?.[0].slice(0, 10) === found[0].slice(0, 10) ? hour : `${hour}\n${date}`;
  }
  const about = (w) => `samples ${count(w.first)} to ${count(w.end)}${data.times ? `, ${data.times[w.i][0]} to ${data.times[w.i][1]}` : ""}`;

  function x(width) {
    const axis = { labelAnchor: "center", labelArrow: "none", tickSize: 0, domain: [0, last] };
    if (!data.times) return { ...axis, label: "sample", ticks: Math.max(2, Math.round(width / 120)), tickFormat: count };
    const stops = [...times.keys()], step = Math.ceil((stops.length - 1) / Math.max(1, Math.floor(width / 110)));
    // The last one is the end of a window that may be short.
    return { ...axis, label: null, ticks: stops.filter((_, i) => i % step === 0 && (i < 2 || i < stops.length - 1)), tickFormat: when };
  }
  const alarms = () => [
    ...(since === null ? [] : [Plot.rectX([since], { x1: since, x2: last, fill: "var(--unknown)", fillOpacity: 0.09 })]),
    Plot.ruleX(data.alarms, { x: "sample", stroke: "var(--m7)", strokeWidth: 1.5, title: (alarm) => `alarm at sample ${count(alarm.sample)}` }),
  ];
  const frame = { marginLeft: 52, marginRight: 16, marginTop: 14, marginBottom: data.times ? 42 : 36, style: STYLE };

  chart("rejected", (width) => {
    const top = Math.min(1, 1.1 * Math.max(d3.max(data.rejected), d3.max(data.high)));
    const edges = windows.flatMap((w) => [{ at: w.first - 1, low: data.low[w.i], high: data.high[w.i] }, { at: w.end, low: data.low[w.i], high: data.high[w.i] }]);
    const many = windows.length > 60;
    return Plot.plot({
      width, height: 240, ...frame, x: x(width),
      y: { label: null, tickSize: 0, ticks: 5, domain: [0, top], tickFormat: (v) => `${+(100 * v).toFixed(1)} %` },
      ariaLabel: "Share of samples rejected over time", ariaDescription: `${percent(data.usual)} in the reference, ${percent(data.rejected.at(-1))} in the last window`,
      marks: [
        Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 }),
        Plot.areaY(edges, { x: "at", y1: "low", y2: "high", fill: "var(--soft)", fillOpacity: 0.16 }),
        Plot.ruleY([data.usual], { stroke: "var(--soft)", strokeDasharray: "4 3" }),
        ...alarms(),
        Plot.line(windows, { x: "middle", y: (w) => data.rejected[w.i], stroke: accent, strokeWidth: many ? 1.6 : 1, strokeOpacity: many ? 1 : 0.45 }),
        Plot.dot(windows, { x: "middle", y: (w) => data.rejected[w.i], r: many ? 1.8 : 4, fill: accent, title: (w) => `${percent(data.rejected[w.i])} rejected, ${about(w)}` }),
      ],
    });
  });

  if (data.evidence.length) chart("evidence", (width) => {
    const most = 3 * data.line; // what is far beyond the line needs no more height
    const rows = data.evidence.flatMap(({ name, color: k, powers }) => windows.map((w) => ({ name, k, w, at: w.middle, value: Math.max(-1.5, Math.min(most, powers[w.i])) })));
    const top = Math.max(data.line * 1.25, d3.max(rows, (row) => row.value));
    return Plot.plot({
      width, height: 240, ...frame, x: x(width),
      y: { label: null, tickSize: 0, ticks: 5, domain: [-1.5, top], tickFormat: (v) => (Number.isInteger(v) ? `10${String(v).replace("-", "−").replace(/./g, (c) => "−0123456789".includes(c) ? "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["−0123456789".indexOf(c)] : c)}` : "") },
      ariaLabel: "Evidence for a change over time", ariaDescription: data.evidence.map(({ name, powers }) => `${name}: up to ten to the power of ${d3.max(powers).toFixed(1)}`).join("; "),
      marks: [
        Plot.gridY({ stroke: "var(--grid)", strokeOpacity: 1, ticks: 5 }),
        ...alarms(),
        Plot.ruleY([data.line], { stroke: "var(--m7)", strokeDasharray: "4 3" }),
        Plot.text(["alarm"], { x: 0, y: data.line, text: (d) => d, textAnchor: "start", dx: 4, dy: -8, fill: "var(--m7)", fontWeight: 600 }),
        Plot.line(rows, { x: "at", y: "value", z: "name", stroke: (row) => color(row.k), strokeWidth: 2, strokeLinejoin: "round" }),
        Plot.dot(windows.length < 3 ? rows : [], { x: "at", y: "value", fill: (row) => color(row.k), r: 3 }),
      ],
      color: { type: "identity" },
    });
  });

  chart("tenths", (width) => {
    const cells = windows.flatMap((w) => data.tenths[w.i].map((value, tenth) => ({ w, tenth, value, change: value - data.usual_tenths[tenth] })));
    const largest = Math.max(0.1, d3.max(cells, (cell) => Math.abs(cell.change)));
    return Plot.plot({
      width, height: 230, ...frame, x: x(width),
      y: { label: null, tickSize: 0, ticks: [0, 5, 10], domain: [0, 10], tickFormat: (v) => (v === 0 ? "usual" : v === 10 ? "unusual" : "") },
      ariaLabel: "Scores over time", ariaDescription: `In the last window ${percent(data.tenths.at(-1).at(-1))} are in the highest tenth of the reference`,
      marks: [
        Plot.rect(cells, { x1: (cell) => cell.w.first - 1, x2: (cell) => cell.w.end, y1: "tenth", y2: (cell) => cell.tenth + 1, inset: windows.length > 60 ? 0 : 0.5, fill: (cell) => (cell.change > 0 ? "var(--unknown)" : "var(--right)"), fillOpacity: (cell) => 0.04 + 0.96 * Math.min(1, Math.abs(cell.change) / largest), title: (cell) => `${percent(cell.value)} in tenth ${cell.tenth + 1} of the reference, ${about(cell.w)}` }),
        Plot.ruleX(data.alarms, { x: "sample", stroke: "var(--m7)", strokeWidth: 1.5 }),
      ],
      color: { type: "identity" }, opacity: { type: "identity" },
    });
  });

  const chance = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));
  for (const one of data.classes) {
    const row = $("classes").tBodies[0].insertRow();
    if (one.since !== null) row.className = "active";
    cell(row, one.name, "name");
    cell(row, count(one.usual_n));
    cell(row, one.usual_n ? percent(one.usual) : "–");
    cell(row, count(one.n));
    if (one.n) bar(row)(one.rejected);
    else cell(row, "–");
    if (!data.classes.some(({ p }) => p < 1)) continue;
    cell(row, one.p < 1 ? chance(one.p) : "–");
    cell(row, one.since === null ? "–" : count(one.since));
  }
}
