"use strict";
// What is known of one task, one copy or one group of tasks, beside the other sections.

stf.Detail = class {
  constructor(model, box, actions) {
    this.model = model;
    this.box = box;
    this.actions = actions; // select(task), showTask(task), showInGraph(task), enterGroup(node), close()
    this.clear();
  }

  clear() {
    this.box.replaceChildren(stf.element("p", { class: "note hint" }, "Click a bar, a node or a row: what it was, which line asked for it, and what it waited for."));
  }

  showTask(task) {
    const { model } = this;
    const { task: column } = model;
    const { site } = model.sources[column.source[task]];
    this.fill(
      model.nameOf(task),
      model.familyOf(task),
      this.failure(task),
      this.pairs([
        ["function", model.families[model.familyOf(task)]],
        ["task", `#${column.id[task]}, ${column.kind[task]}`],
        ["submitted at", site],
        ["place", model.places[column.place[task]]],
        ["section", this.sectionOf(task)],
      ]),
      this.source(column.source[task]),
      this.times(task),
      this.data(task),
      this.operations(task),
      this.links("Waited for", model.beforeOf(task)),
      this.links("Waited for it", model.afterOf(task)),
      stf.element(
        "p", { class: "tools" },
        column.span[task] >= 0 ? stf.button("In the timeline", () => this.actions.showTask(task)) : null,
        stf.button("In the graph", () => this.actions.showInGraph(task)),
      ),
    );
  }

  showSpan(span) {
    const { model } = this;
    const { start, end, operation, kind } = model.span;
    const index = operation[span];
    const pairs = [
      ["place", model.rows[model.span.row[span]].place],
      ["started", stf.duration(start[span])],
      ["took", stf.duration(end[span] - start[span])],
    ];
    if (index >= 0) {
      const { source, target, bytes, data } = model.operation;
      pairs.push(
        ["data", data[index] < 0 ? "" : model.describeData(data[index])],
        ["from", model.places[source[index]]], ["to", model.places[target[index]]],
        ["bytes", stf.bytes(bytes[index])], ["bandwidth", `${(bytes[index] / Math.max(end[span] - start[span], 1)).toFixed(2)} GB/s`],
      );
    }
    const task = model.span.task[span];
    this.fill(model.spanName(span), model.spanFamily(span), this.pairs(pairs), task >= 0 ? this.links(kind[span] === stf.COPY ? "Made for" : "Submitted by", [task]) : null);
  }

  showGroup(node) {
    const { model } = this;
    const starts = node.tasks.map((task) => model.task.start[task]).filter((time) => time >= 0);
    const sites = [...new Set(node.tasks.map((task) => model.task.source[task]))];
    this.fill(
      node.lines[0],
      node.key[0] === "s" ? -1 : model.familyOf(node.tasks[0]),
      this.pairs([
        ["tasks", stf.count(node.tasks.length)],
        ["work", stf.duration(node.work)],
        ["started", starts.length ? stf.duration(starts.reduce((a, b) => Math.min(a, b))) : ""],
        ["submitted at", sites.slice(0, 4).map((source) => model.sources[source].site).join(", ") + (sites.length > 4 ? " …" : "")],
      ]),
      sites.length === 1 ? this.source(sites[0]) : null,
      stf.element("p", { class: "tools" }, stf.button("Show its tasks", () => this.actions.enterGroup(node))),
      this.links("Tasks", node.tasks),
    );
  }

  fill(title, family, ...parts) {
    const dot = family < 0 ? null : stf.element("i", { style: `background: ${stf.familyColor(this.model, family)}` });
    const close = stf.button("×", () => this.actions.select(-1), { class: "close", "aria-label": "Close" });
    this.box.replaceChildren(stf.element("h2", { class: "named" }, dot, stf.element("span", {}, title), close), ...parts.filter(Boolean));
    this.box.scrollTop = 0;
  }

  pairs(rows) {
    const shown = rows.filter(([, value]) => value !== "" && value !== null);
    return stf.element("dl", {}, ...shown.flatMap(([name, value]) => [stf.element("dt", {}, name), stf.element("dd", {}, value)]));
  }

  failure(task) {
    const [failed, skipped] = [this.model.failedTasks.get(task), this.model.skippedTasks.get(task)];
    if (skipped) return stf.element("p", { class: "failure" }, `Skipped: ${skipped.why}`);
    return failed ? stf.element("p", { class: "failure" }, failed.why, failed.raised ? stf.element("small", {}, ` raised at ${failed.raised}`) : null) : null;
  }

  sectionOf(task) {
    const path = [];
    for (let section = this.model.task.section[task]; section >= 0; section = this.model.sections[section].parent) path.unshift(this.model.sections[section].name);
    return path.join(" › ");
  }

  source(index) {
    const { site, path, lines, first, line } = this.model.sources[index];
    if (!site) return null;
    if (!lines.length) return stf.note("The text of that line cannot be read.");
    const rows = lines.map((text, offset) =>
      stf.element("span", { class: offset === line ? "here" : undefined }, stf.element("i", {}, String(first + offset)), text || " "),
    );
    return stf.element("pre", { class: "source", title: path, "aria-label": `Source of ${site}` }, ...rows);
  }

  times(task) {
    const { model } = this;
    const { submitted, inputs, copied, start, end, work, runs, lastInput, kernels, kernelTime } = model.task;
    if (!runs[task]) return this.pairs([["submitted", submitted[task] < 0 ? "" : stf.duration(submitted[task])], ["ran", "no time was recorded"]]);
    const from = Math.min(model.begin, start[task]);
    const ready = Math.max(inputs[task], submitted[task], copied[task], from);
    const parts = [inputs[task], submitted[task], copied[task]];
    const last = parts.indexOf(Math.max(...parts));
    const reasons = [
      () => `its inputs: the last was ${model.nameOf(lastInput[task])}`,
      () => "the program, which had not submitted it yet",
      () => "a copy of its data",
    ];
    const waited = Math.max(...parts) <= from ? "nothing" : reasons[last]();
    const delay = Math.max(0, start[task] - ready);
    return this.pairs([
      ["submitted", submitted[task] < 0 ? "" : stf.duration(submitted[task])],
      ["inputs ready", inputs[task] < 0 ? "at once" : stf.duration(inputs[task])],
      ["copies done", copied[task] < 0 ? "none were needed" : stf.duration(copied[task])],
      ["started", stf.duration(start[task])],
      ["ended", stf.duration(end[task])],
      ["ran for", stf.duration(work[task]) + (runs[task] > 1 ? `, in ${stf.count(runs[task])} parts or launches` : "")],
      ["on the GPU", kernels[task] ? `${stf.count(kernels[task])} kernels and copies, ${stf.duration(kernelTime[task])}` : ""],
      ["waited last for", `${waited}; then ${stf.duration(delay)} until it started`],
    ]);
  }

  data(task) {
    const accesses = this.model.accessesOf(task);
    if (!accesses.length) return null;
    const items = accesses.map(({ data, mode }) => stf.element("li", {}, stf.element("b", {}, stf.MODES[mode] ?? "rw"), ` ${this.model.describeData(data)}`));
    return stf.element("section", {}, stf.element("h3", {}, "Data"), stf.element("ul", {}, ...items));
  }

  operations(task) {
    const { model } = this;
    const all = model.operationsOf.get(task) ?? [];
    if (!all.length) return null;
    const { kind, data, source, target, bytes } = model.operation;
    const moved = all.filter((index) => kind[index] === "copy").reduce((sum, index) => sum + bytes[index], 0);
    const items = all.slice(0, 20).map((index) => {
      const route = kind[index] === "copy" ? `${model.places[source[index]]} → ${model.places[target[index]]}` : `at ${model.places[target[index]]}`;
      const name = data[index] < 0 ? "" : model.data.name[data[index]];
      return stf.element("li", {}, stf.element("b", {}, kind[index].replace("_", " ")), ` ${name} ${route}, ${stf.bytes(bytes[index])}`);
    });
    return stf.element("section", {}, stf.element("h3", {}, `Done for it: ${stf.bytes(moved)} moved`), stf.element("ul", {}, ...items, all.length > 20 ? stf.element("li", {}, `and ${all.length - 20} more`) : null));
  }

  links(title, tasks) {
    if (!tasks.length) return null;
    const { model } = this;
    const shown = [...tasks.slice(0, 30)].map((task) => {
      const link = stf.button(model.nameOf(task), () => this.actions.select(task), { class: "link" });
      return stf.element("li", {}, link, stf.element("small", {}, ` ${model.siteOf(task)}`));
    });
    if (tasks.length > 30) shown.push(stf.element("li", {}, `and ${stf.count(tasks.length - 30)} more`));
    return stf.element("section", {}, stf.element("h3", {}, `${title} (${stf.count(tasks.length)})`), stf.element("ul", { class: "links" }, ...shown));
  }
};
