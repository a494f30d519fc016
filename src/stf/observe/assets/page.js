"use strict";
// The page: it reads the run, and shows a section when its tab is chosen.

const TABS = [
  ["failures", "Failures"],
  ["timeline", "Timeline"],
  ["graph", "Task graph"],
  ["time", "Time by function"],
  ["idle", "Idle time"],
  ["critical", "Critical path"],
  ["whatIf", "What if"],
  ["memory", "Memory"],
  ["copies", "Copies"],
  ["statistics", "Statistics"],
];

stf.Page = class {
  constructor(model) {
    this.model = model;
    this.panels = new Map();
    const tabs = TABS.filter(([key]) => key !== "failures" || model.failures.length);
    document.getElementById("cards").replaceChildren(...cardsOf(model));
    this.fillTabs(tabs);
    this.detail = new stf.Detail(model, document.getElementById("detail"), {
      select: (task) => this.select(task),
      showTask: (task) => this.showTask(task),
      showInGraph: (task) => this.showInGraph(task),
      enterGroup: (node) => this.graph.enter(node.lines[0], node.tasks),
    });
    document.getElementById("theme").addEventListener("click", () => this.switchTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolor());
    this.open(tabs[0][0]);
  }

  fillTabs(tabs) {
    const bar = document.getElementById("tabs");
    const stage = document.getElementById("stage");
    this.tabs = new Map();
    for (const [key, title] of tabs) {
      const tab = stf.element("button", {
        type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, "aria-selected": "false",
        tabindex: "-1", onclick: () => this.open(key),
      }, key === "failures" ? nameOfFailures(this.model) : title);
      const panel = stf.element("section", { role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}`, hidden: true });
      bar.append(tab);
      stage.append(panel);
      this.tabs.set(key, { tab, panel, filled: false });
    }
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const keys = [...this.tabs.keys()];
      this.open(keys[(keys.indexOf(this.current) + step + keys.length) % keys.length]);
      this.tabs.get(this.current).tab.focus();
    });
  }

  open(key) {
    this.current = key;
    stf.showTip(null);
    for (const [other, { tab, panel }] of this.tabs) {
      const isThis = other === key;
      panel.hidden = !isThis;
      tab.setAttribute("aria-selected", isThis);
      tab.tabIndex = isThis ? 0 : -1;
    }
    const entry = this.tabs.get(key);
    if (!entry.filled) {
      entry.filled = true;
      this.fill(key, entry.panel);
    }
    if (key === "graph") this.graph.open();
  }

  fill(key, panel) {
    const { model } = this;
    const select = (task, span) => this.select(task, span);
    if (key === "timeline") this.timeline = new stf.Timeline(model, panel, select);
    else if (key === "graph") this.graph = new stf.Graph(model, panel, select, (node) => this.selectGroup(node));
    else stf.views[key](model, panel, { select, showFound: (text) => this.showFound(text) });
  }

  select(task, span = -1) {
    this.selected = task;
    document.body.classList.toggle("has-detail", task >= 0 || span >= 0);
    this.timeline?.setSelected(task, span);
    this.graph?.setSelected(task);
    if (span >= 0 && this.model.span.kind[span] !== stf.TASK) this.detail.showSpan(span);
    else if (task >= 0) this.detail.showTask(task);
    else if (span >= 0) this.detail.showSpan(span);
    else this.detail.clear();
  }

  selectGroup(node) {
    this.select(-1);
    document.body.classList.add("has-detail");
    this.detail.showGroup(node);
  }

  showTask(task) {
    this.open("timeline");
    this.select(task);
    this.timeline.reveal(task);
  }

  showInGraph(task) {
    this.open("graph");
    this.select(task);
    return this.graph.reveal(task);
  }

  showFound(text) {
    this.open("timeline");
    this.timeline.search.value = text;
    this.timeline.find(text);
  }

  switchTheme() {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    this.recolor();
  }

  recolor() {
    this.timeline?.redraw();
    window.dispatchEvent(new Event("resize"));
    const memory = this.tabs.get("memory");
    if (memory.filled) {
      memory.panel.replaceChildren();
      stf.views.memory(this.model, memory.panel);
    }
  }
};

function nameOfFailures({ failedTasks, skippedTasks }) {
  return failedTasks.size ? `Failures (${stf.count(failedTasks.size)})` : `Skipped (${stf.count(skippedTasks.size)})`;
}

function cardsOf(model) {
  const { critical, statistics } = model;
  const run = model.finish - model.begin;
  const card = (label, value, detail, css, what) =>
    stf.element("div", { class: `card ${css ?? ""}`, title: what }, stf.element("span", {}, label), stf.element("b", {}, value), stf.element("small", {}, detail ?? ""));
  const cards = [card("tasks", stf.count(statistics.total))];
  if (model.numSpans) cards.push(card("run", stf.duration(run), "", "", "From the first submission, copy or task to the end of the last"));
  if (critical.length) {
    cards.push(
      card("work of all tasks", stf.duration(critical.work), "T₁", "", "The sum of all tasks' durations"),
      card("critical path", stf.duration(critical.length), "T∞", "", "The longest chain of dependent tasks"),
      card("parallelism", (critical.work / run).toFixed(critical.work < run ? 2 : 1), `of ${(critical.work / critical.length).toFixed(1)} possible`, "", "Work by run time; possible is work by critical path"),
    );
  }
  cards.push(card("copies", stf.count(statistics.copies), stf.bytes(statistics.copiedBytes)));
  if (statistics.peak) cards.push(card("memory peak", stf.bytes(statistics.peak[1]), statistics.peak[0]));
  const skipped = model.skippedTasks.size;
  cards.push(card("failures", stf.count(model.failedTasks.size), skipped ? `and ${stf.count(skipped)} skipped` : "", model.failures.length ? "bad" : ""));
  return cards;
}

/** What several sections need of a model. */
stf.complete = (model) => {
  model.critical = stf.criticalPath(model);
  const failures = (skipped) => new Map(model.failures.filter((one) => one.skipped === skipped).map((one, index) => [one.task < 0 ? -1 - index : one.task, one]));
  model.failedTasks = failures(false);
  model.skippedTasks = failures(true);
  model.timeOfFamily = new Float64Array(model.families.length);
  for (let i = 0; i < model.numSpans; i++) {
    if (model.span.kind[i] === stf.TASK) model.timeOfFamily[model.spanFamily(i)] += model.span.end[i] - model.span.start[i];
  }
  model.familiesByTime = model.families.map((_, family) => family).filter((family) => model.timeOfFamily[family] > 0);
  model.familiesByTime.sort((a, b) => model.timeOfFamily[b] - model.timeOfFamily[a]);
  model.rankOfFamily = new Uint32Array(model.families.length).fill(-1);
  model.familiesByTime.forEach((family, rank) => (model.rankOfFamily[family] = rank));
  const changes = [];
  for (let i = 0; i < model.numSpans; i++) if (model.takesWorker(i)) changes.push([model.span.start[i], 1], [model.span.end[i], -1]);
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let now = 0;
  model.mostAtOnce = changes.reduce((most, [, change]) => Math.max(most, (now += change)), 0);
  return model;
};

stf.start = async () => {
  try {
    stf.model = stf.complete(new stf.Model(JSON.parse(await stf.unpack("run"))));
    stf.page = new stf.Page(stf.model);
    document.body.classList.remove("loading");
    stf.readyAt = performance.now();
  } catch (error) {
    document.getElementById("stage").textContent = `This page could not be shown: ${error.message}`;
    throw error;
  }
};

stf.start();
