"use strict";
// The other sections: tables and charts, each made when it is shown for the first time.

stf.views = {};

stf.views.failures = (model, panel, { select }) => {
  const column = (title, key) => ({ title, value: (row) => row[key] });
  const [task, site, place] = [column("task", "name"), column("submitted at", "site"), column("place", "place")];
  const onclick = (row) => row.task >= 0 && select(row.task);
  const failed = model.failures.filter((row) => !row.skipped);
  const skipped = model.failures.filter((row) => row.skipped);
  const show = (title, note, columns, rows) => panel.append(stf.element("h2", {}, title), stf.note(note), stf.table(columns, rows, { onclick }));
  if (failed.length) show("Failed tasks", "Their bodies raised.", [task, column("error", "why"), column("raised at", "raised"), site, place], failed);
  if (skipped.length) show("Skipped tasks", "They did not run: what they were to read was never written, or they were cancelled.", [task, column("because", "why"), site, place], skipped);
};

stf.views.time = (model, panel, { showFound }) => {
  const groupBy = { value: "function" };
  const box = stf.element("div");
  const draw = () => {
    const groups = groupsOfTime(model, groupBy.value);
    const all = Math.max(1, groups.reduce((sum, group) => sum + group.total, 0));
    const byLine = groupBy.value === "line";
    const columns = [
      { title: byLine ? "line" : "function", value: (row) => row.name, show: (row) => nameWithDot(model, row) },
      { title: byLine ? "source" : "lines", value: (row) => row.detail, show: (row) => stf.element("code", {}, row.detail) },
      { title: "runs", value: (row) => row.runs, show: (row) => stf.count(row.runs), number: true },
      { title: "total", value: (row) => row.total, show: (row) => stf.duration(row.total), number: true },
      { title: "share", value: (row) => row.total, show: (row) => stf.bar(row.total / all), number: true, what: "Of the time of all tasks" },
      { title: "mean", value: (row) => row.total / row.runs, show: (row) => stf.duration(row.total / row.runs), number: true },
      { title: "longest", value: (row) => row.longest, show: (row) => stf.duration(row.longest), number: true },
      { title: "on critical path", value: (row) => row.critical, show: (row) => (row.critical ? stf.duration(row.critical) : ""), number: true },
      { title: "copies for them", value: (row) => row.copies, show: (row) => (row.copies ? stf.duration(row.copies) : ""), number: true, what: "The time of all copies that were made for these tasks" },
      { title: "places", value: (row) => listed([...row.places].map((place) => model.places[place])) },
    ];
    box.replaceChildren(
      groups.length ? stf.table(columns, groups, { sort: [3, true], onclick: (row) => showFound(row.search) }) : stf.note("No task has run."),
    );
  };
  const choice = (value, text) => {
    const input = stf.element("input", { type: "radio", name: "group-by", checked: value === "function", onchange: () => ((groupBy.value = value), draw()) });
    return stf.element("label", {}, input, ` ${text}`);
  };
  panel.append(
    stf.element("h2", {}, "Where the time went"),
    stf.element("div", { class: "tools" }, choice("function", "by function"), choice("line", "by line"), stf.note("A click on a row shows it in the timeline.")),
    box,
  );
  draw();
};

function groupsOfTime(model, by) {
  const groups = new Map();
  for (let task = 0; task < model.numTasks; task++) {
    if (!model.task.runs[task]) continue;
    const family = model.familyOf(task);
    const source = model.task.source[task];
    const key = by === "line" ? source : family;
    if (!groups.has(key)) {
      groups.set(key, { family, runs: 0, total: 0, longest: 0, critical: 0, copies: 0, places: new Set(), sites: new Set(), source });
    }
    const group = groups.get(key);
    group.runs += model.task.runs[task];
    group.total += model.task.work[task];
    group.longest = Math.max(group.longest, model.task.work[task]);
    group.critical += model.critical.on.has(task) ? model.task.work[task] : 0;
    group.copies += model.task.copyTime[task];
    group.places.add(model.task.place[task]);
    group.sites.add(model.sources[source].site);
  }
  return [...groups.values()].map((group) => {
    const { site, lines, line } = model.sources[group.source];
    const byLine = by === "line";
    const name = byLine ? site || "(no line)" : model.families[group.family];
    return { ...group, name, detail: byLine ? (lines[line] ?? "").trim() : listed([...group.sites]), search: byLine ? site : model.families[group.family] };
  });
}

function nameWithDot(model, { family, name }) {
  return stf.element("span", { class: "named" }, stf.element("i", { style: `background: ${stf.familyColor(model, family)}` }), name);
}

function listed(items) {
  const sorted = items.filter(Boolean).sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  return sorted.length <= 3 ? sorted.join(", ") : `${sorted.slice(0, 2).join(", ")} and ${sorted.length - 2} more`;
}

// -- idle time

const CAUSE_CLASSES = ["no-work", "host", "data", "start"];

stf.views.idle = (model, panel) => {
  const units = stf.idleTimes(model);
  const run = model.finish - model.begin;
  const legend = stf.element(
    "div", { class: "legend" },
    stf.element("span", { class: "chip" }, stf.element("i", { class: "busy" }), stf.explained("busy", "A task runs here. For a worker, copies that it makes count too.")),
    ...stf.CAUSES.map(({ label, what }, index) => stf.element("span", { class: "chip" }, stf.element("i", { class: CAUSE_CLASSES[index] }), stf.explained(label, what))),
  );
  const stack = (unit) => {
    const part = (time, css, name) => stf.element("i", { class: css, style: `width: ${((100 * time) / run).toFixed(3)}%`, title: `${name}: ${stf.duration(time)}, ${stf.percent(time / run)}` });
    return stf.element("div", { class: "stack" }, part(unit.busy, "busy", "busy"), ...unit.idle.map((time, index) => part(time, CAUSE_CLASSES[index], stf.CAUSES[index].name)));
  };
  const sum = (unit) => unit.idle.reduce((a, b) => a + b, 0);
  const time = (title, value, what) => ({ title, value, show: (unit) => stf.duration(value(unit)), number: true, what });
  const columns = [
    { title: "place or worker", value: (unit) => unit.label, show: (unit) => stf.explained(unit.label, unit.title) },
    { title: "the whole run", value: (unit) => unit.busy, show: stack },
    time("busy", (unit) => unit.busy),
    time("idle", sum, "The sum of the causes to the right"),
    ...stf.CAUSES.map(({ name, what }, index) => time(name, (unit) => unit.idle[index], what)),
  ];
  panel.append(
    stf.element("h2", {}, "Idle time by cause"),
    stf.note(`The run took ${stf.duration(run)}, from the first submission, copy or task to the end of the last. Each gap is told by the task that ended it; the causes add up to the idle time.`),
    legend,
    units.length ? stf.table(columns, units) : stf.note("Nothing has run."),
  );
};

// -- memory and copies

stf.views.memory = (model, panel) => {
  panel.append(stf.element("h2", {}, "Memory"), stf.note("Bytes of replicas that are allocated at each place, when the program asked for them. Your own arrays are not counted."));
  const series = memorySeries(model);
  for (const one of series) {
    const canvas = stf.element("canvas", { role: "img", "aria-label": `Memory of ${one.place} over time` });
    const frame = stf.element("div", { class: "chart" }, canvas);
    const chart = { ...one, canvas, frame };
    panel.append(stf.element("h3", {}, one.place, stf.element("small", {}, ` peak ${stf.bytes(one.peak)}, at the end ${stf.bytes(one.values.at(-1))}`)), frame);
    canvas.addEventListener("pointermove", (event) => drawChart(model, chart, event));
    canvas.addEventListener("pointerleave", () => {
      stf.showTip(null);
      drawChart(model, chart);
    });
    new ResizeObserver(() => drawChart(model, chart)).observe(frame);
  }
  if (!series.length) panel.append(stf.note("Nothing was allocated."));
  const columns = ["place", "peak", "allocations", "allocated", "frees", "evictions", "write-backs"].map((title, index) => ({
    title, value: (row) => row[index], number: index > 0,
    show: (row) => (index === 1 || index === 3 ? stf.bytes(row[index]) : index ? stf.count(row[index]) : row[0]),
  }));
  panel.append(stf.element("h3", {}, "Counts"), stf.table(columns, model.statistics.memory));
};

function memorySeries(model) {
  const series = new Map();
  const { kind, time, target, bytes } = model.operation;
  kind.forEach((name, index) => {
    const sign = name === "alloc" ? 1 : name === "free" ? -1 : 0;
    if (!sign) return;
    const place = model.places[target[index]];
    if (!series.has(place)) series.set(place, { place, times: [], values: [], peak: 0 });
    const one = series.get(place);
    one.times.push(time[index]);
    one.values.push((one.values.at(-1) ?? 0) + sign * bytes[index]);
    one.peak = Math.max(one.peak, one.values.at(-1));
  });
  return [...series.values()].sort((a, b) => a.place.localeCompare(b.place, undefined, { numeric: true }));
}

function drawChart(model, { canvas, frame, times, values, peak }, event) {
  const [width, height] = [frame.clientWidth, frame.clientHeight];
  if (!width) return;
  const context = stf.fitCanvas(canvas, width, height);
  const [left, bottom] = [84, height - 22];
  const x = (time) => left + ((time - model.begin) / (model.finish - model.begin)) * (width - left - 14);
  const y = (value) => bottom - (value / Math.max(peak, 1)) * (bottom - 12);
  const [soft, line, accent] = ["soft", "line", "accent"].map(stf.color);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.strokeStyle = line;
  context.fillStyle = soft;
  for (const share of [0, 0.5, 1]) {
    context.beginPath();
    context.moveTo(left, Math.round(y(share * peak)) + 0.5);
    context.lineTo(width - 14, Math.round(y(share * peak)) + 0.5);
    context.stroke();
    context.textAlign = "right";
    context.fillText(stf.bytes(share * peak), left - 8, y(share * peak));
  }
  context.textAlign = "center";
  for (const [time, text] of stf.ticks(model.begin, model.finish, (width - left) / 120)) {
    if (x(time) < width - 40) context.fillText(text, x(time), height - 9);
  }
  context.textAlign = "left";
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left - 12, height);
  context.clip();
  context.beginPath();
  context.moveTo(left, y(0));
  let last = y(0);
  times.forEach((time, index) => {
    context.lineTo(x(time), last);
    last = y(values[index]);
    context.lineTo(x(time), last);
  });
  context.lineTo(Math.max(x(model.finish), x(times.at(-1))), last);
  context.strokeStyle = accent;
  context.lineWidth = 1.5;
  context.stroke();
  context.lineTo(Math.max(x(model.finish), x(times.at(-1))), y(0));
  context.globalAlpha = 0.2;
  context.fillStyle = accent;
  context.fill();
  context.restore();
  if (!event || event.offsetX < left) return stf.showTip(null);
  const at = model.begin + ((event.offsetX - left) / (width - left - 14)) * (model.finish - model.begin);
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1;
    else high = middle;
  }
  context.fillStyle = soft;
  context.fillRect(Math.round(event.offsetX), 8, 1, bottom - 8);
  stf.showTip([stf.bytes(low ? values[low - 1] : 0), `at ${stf.duration(at)}`], event);
}

stf.views.copies = (model, panel) => {
  const { span, operation } = model;
  const byRoute = new Map();
  const byData = new Map();
  const add = (map, key, name, nbytes, time) => {
    if (!map.has(key)) map.set(key, { name, count: 0, bytes: 0, time: 0, timed: 0 });
    const one = map.get(key);
    one.count++;
    one.bytes += nbytes;
    if (time >= 0) {
      one.time += time;
      one.timed += nbytes;
    }
  };
  const timeOf = new Map();
  let unknown = 0;
  for (let i = 0; i < model.numSpans; i++) {
    if (span.kind[i] !== stf.COPY) continue;
    if (span.operation[i] >= 0) timeOf.set(span.operation[i], span.end[i] - span.start[i]);
    else unknown++;
  }
  operation.kind.forEach((kind, index) => {
    if (kind !== "copy") return;
    const route = `${model.places[operation.source[index]]} → ${model.places[operation.target[index]]}`;
    const data = operation.data[index];
    add(byRoute, route, route, operation.bytes[index], timeOf.get(index) ?? -1);
    add(byData, data, data < 0 ? "(not recorded)" : model.describeData(data), operation.bytes[index], timeOf.get(index) ?? -1);
  });
  const columns = (title) => [
    { title, value: (row) => row.name },
    { title: "copies", value: (row) => row.count, show: (row) => stf.count(row.count), number: true },
    { title: "bytes", value: (row) => row.bytes, show: (row) => stf.bytes(row.bytes), number: true },
    { title: "mean size", value: (row) => row.bytes / row.count, show: (row) => stf.bytes(row.bytes / row.count), number: true },
    { title: "time", value: (row) => row.time, show: (row) => (row.time ? stf.duration(row.time) : ""), number: true },
    { title: "bandwidth", value: (row) => row.timed / Math.max(row.time, 1), show: (row) => (row.time ? `${(row.timed / row.time).toFixed(2)} GB/s` : ""), number: true, what: "Bytes by the time of the copies that were timed; 1 GB is 10⁹ bytes" },
  ];
  panel.append(stf.element("h2", {}, "Copies"));
  if (!byRoute.size) {
    panel.append(stf.note("No copies."));
    return;
  }
  if (unknown) panel.append(stf.note(`Of ${stf.count(unknown)} copies that ran, the data cannot be told; they are in the timeline, and not in the times here.`));
  panel.append(
    stf.element("h3", {}, "By pair of places"), stf.table(columns("route"), [...byRoute.values()], { sort: [2, true] }),
    stf.element("h3", {}, "By data"), stf.table(columns("data"), [...byData.values()], { sort: [2, true] }),
  );
};

// -- the critical path and what if

stf.views.critical = (model, panel, { select }) => {
  const { critical } = model;
  const run = model.finish - model.begin;
  panel.append(stf.element("h2", {}, "Critical path"));
  if (!critical.length) {
    panel.append(stf.note("No task has run."));
    return;
  }
  panel.append(
    stf.note(
      `The chain of dependent tasks with the longest measured time: ${stf.count(critical.tasks.length)} tasks, ${stf.duration(critical.length)}, ` +
        `${stf.percent(critical.length / run)} of the run. No number of workers makes the run shorter than that. ` +
        "The box “critical path” marks it in the timeline and in the graph.",
    ),
  );
  const byFamily = new Map();
  for (const task of critical.tasks) {
    const family = model.familyOf(task);
    const one = byFamily.get(family) ?? { family, name: model.families[family], count: 0, time: 0 };
    one.count++;
    one.time += model.task.work[task];
    byFamily.set(family, one);
  }
  const functions = [
    { title: "function", value: (row) => row.name, show: (row) => nameWithDot(model, row) },
    { title: "tasks", value: (row) => row.count, show: (row) => stf.count(row.count), number: true },
    { title: "time", value: (row) => row.time, show: (row) => stf.duration(row.time), number: true },
    { title: "share of the path", value: (row) => row.time, show: (row) => stf.bar(row.time / critical.length), number: true },
  ];
  const steps = critical.tasks.map((task, index) => {
    const before = index ? critical.tasks[index - 1] : -1;
    const from = before < 0 ? model.begin : Math.min(model.task.end[before], model.task.start[task]);
    return { task, number: index + 1, delay: model.task.start[task] - from, parts: model.partsOfWait(task, from) };
  });
  const reasons = ["other inputs", "the host", "a copy", "busy workers"]; // in the order of the parts
  const causeOf = ({ parts, delay }) => (delay > 0 ? reasons[parts.indexOf(Math.max(...parts))] : "");
  const columns = [
    { title: "#", value: (row) => row.number, number: true },
    { title: "task", value: (row) => model.nameOf(row.task), show: (row) => nameWithDot(model, { family: model.familyOf(row.task), name: model.nameOf(row.task) }) },
    { title: "submitted at", value: (row) => model.siteOf(row.task) },
    { title: "place", value: (row) => model.places[model.task.place[row.task]] },
    { title: "started", value: (row) => model.task.start[row.task], show: (row) => stf.duration(model.task.start[row.task]), number: true },
    { title: "ran for", value: (row) => model.task.work[row.task], show: (row) => stf.duration(model.task.work[row.task]), number: true },
    { title: "after the one before", value: (row) => row.delay, show: (row) => stf.duration(row.delay), number: true, what: "From the end of the task before it on the path" },
    { title: "mostly because of", value: causeOf, what: "What took the longest part of that: other tasks that it waited for; the program, which had not submitted it; a copy of its data; or all workers were busy, or one was woken up" },
  ];
  panel.append(
    stf.element("h3", {}, "By function"), stf.table(functions, [...byFamily.values()], { sort: [2, true] }),
    stf.element("h3", {}, "Tasks"), stf.table(columns, steps, { onclick: (row) => select(row.task) }),
  );
};

const ASSUMPTIONS =
  "The recorded tasks, copies and dependencies are played again with their measured durations. A worker runs one task or " +
  "one copy at a time, at any place; a GPU makes its copies beside its tasks. Of what is ready, that with the longest " +
  "path to the end goes first. More workers share memory bandwidth and caches, which is not counted. The program submits " +
  "all tasks at once, unless you choose otherwise.";

stf.views.whatIf = (model, panel) => {
  panel.append(stf.element("h2", {}, "What if"), stf.note(ASSUMPTIONS));
  if (!model.critical.length) {
    panel.append(stf.note("No task has run."));
    return;
  }
  const families = model.familiesByTime.map((family) => stf.element("option", { value: family }, model.families[family]));
  const redraw = () => draw();
  const family = stf.element("select", { onchange: redraw, "aria-label": "Function" }, ...families);
  const faster = stf.element("input", { type: "number", min: "0.1", step: "any", value: "1", oninput: redraw, "aria-label": "Times faster" });
  const freeCopies = stf.element("input", { type: "checkbox", onchange: redraw });
  const hostAsRecorded = stf.element("input", { type: "checkbox", onchange: redraw });
  const box = stf.element("div");
  const draw = () => {
    const factor = Number(faster.value);
    if (!(factor > 0)) return;
    const jobs = stf.jobs(model, { freeCopies: freeCopies.checked, hostAsRecorded: hostAsRecorded.checked, family: Number(family.value), faster: factor });
    const most = model.mostAtOnce;
    const numbers = [1, 2, 4, 8, 16, 32, 64].filter((number, index) => index < 4 || number <= 2 * model.numTasks);
    const shown = [...new Set([...numbers, most])].sort((a, b) => a - b);
    const rows = [...shown, Infinity].map((number) => ({ number, time: stf.simulate(jobs, number) }));
    const [{ time: alone }] = rows;
    const run = model.finish - model.begin;
    const columns = [
      { title: "workers", value: (row) => row.number, show: (row) => (row.number === Infinity ? "any number" : `${row.number === most ? "as in this run: " : ""}${row.number}`), number: true },
      { title: "run time", value: (row) => row.time, show: (row) => stf.duration(row.time), number: true },
      { title: "faster than one worker", value: (row) => alone / row.time, show: (row) => stf.bar(row.time / alone, `${(alone / row.time).toFixed(2)} ×`), number: true, what: "How many times shorter; the bar is the run time" },
      { title: "faster than this run", value: (row) => run / row.time, show: (row) => `${(run / row.time).toFixed(2)} ×`, number: true, what: `This run took ${stf.duration(run)}` },
    ];
    box.replaceChildren(stf.table(columns, rows));
  };
  panel.append(
    stf.element(
      "div", { class: "tools" },
      stf.element("label", {}, family, " is "), stf.element("label", {}, faster, " times faster"),
      stf.element("label", {}, freeCopies, " copies take no time"),
      stf.element("label", {}, hostAsRecorded, " tasks are submitted when they were"),
    ),
    box,
    stf.note(`Measured: ${stf.duration(model.finish - model.begin)} with at most ${model.mostAtOnce} ${model.mostAtOnce === 1 ? "worker" : "workers"} busy at once.`),
  );
  draw();
};

stf.views.statistics = (model, panel) => {
  const { statistics } = model;
  const counts = (title, rows) => stf.table([{ title, value: (row) => row[0] }, { title: "tasks", value: (row) => row[1], show: (row) => stf.count(row[1]), number: true }], rows);
  panel.append(
    stf.element("h2", {}, "Statistics"),
    stf.element("div", { class: "side" }, counts("kind", statistics.tasks), counts("place", statistics.places)),
  );
  if (statistics.graphs) panel.append(stf.note(`CUDA graphs: ${statistics.graphs}.`));
};
