"use strict";
// The task graph. Graphviz (viz-global.js) lays out boxes without names; the picture is made here.

const LIMITS = { most: 500, mostGroups: 200 }; // nodes that can be read
const SMALL_GRAPH = 150; // nodes: it is laid out again, from left to right, if it is tall
const READABLE = 0.6; // as large as Graphviz has it, or more
const MOST_MARKED = 0.9; // of the nodes: to mark more says nothing
const LONGEST_LABEL = 34;
const LINE_HEIGHT = 15;
const POINTS = 72; // an inch of Graphviz's

stf.Graph = class {
  /** `select(task)` and `selectGroup(group)` are called for clicks on nodes. */
  constructor(model, panel, select, selectGroup) {
    this.model = model;
    this.select = select;
    this.selectGroup = selectGroup;
    this.selected = -1;
    this.nodes = [];
    this.trail = [{ title: "all tasks", tasks: Array.from({ length: model.numTasks }, (_, task) => task) }];
    this.build(panel);
  }

  build(panel) {
    const { model } = this;
    this.search = stf.element("input", {
      type: "search", placeholder: "Find a name, data or line", "aria-label": "Find tasks in the graph",
      oninput: () => this.find(), onkeydown: (event) => event.key === "Enter" && this.nextFound(),
    });
    this.foundText = stf.element("span", { class: "note", "aria-live": "polite" });
    this.trailBox = stf.element("span", { class: "trail" });
    const option = (value, text) => stf.element("option", { value }, text);
    this.by = stf.element(
      "select", { hidden: true, "aria-label": "What is one node", onchange: () => this.show() },
      option("", "a node is a section"), option("function", "a node is a function and level"),
    );
    this.criticalBox = stf.element("input", { type: "checkbox", checked: true, onchange: () => this.mark() });
    const tools = stf.element(
      "div", { class: "tools" },
      stf.button("Whole graph", () => this.fit(), { title: "Key 0" }),
      stf.button("−", () => this.zoomBy(1 / 1.4), { "aria-label": "Zoom out" }),
      stf.button("+", () => this.zoomBy(1.4), { "aria-label": "Zoom in" }),
      this.search, this.foundText,
      stf.element("label", { title: stf.sizeOfPath(model) }, this.criticalBox, " critical path"), this.by, this.trailBox,
    );
    this.note = stf.element("p", { class: "note" });
    this.picture = stf.svg("svg", { tabindex: "0", role: "group", "aria-label": "Task graph" });
    this.frame = stf.element("div", { class: "frame" }, this.picture);
    panel.append(tools, this.note, this.frame);
    this.listen();
  }

  listen() {
    const { picture } = this;
    picture.addEventListener("wheel", (event) => {
      event.preventDefault();
      const amount = event.deltaMode ? event.deltaY * 30 : event.deltaY;
      this.zoomBy(Math.exp(-Math.max(-300, Math.min(300, amount)) * 0.002), event.offsetX, event.offsetY);
    }, { passive: false });
    picture.addEventListener("pointerdown", (event) => {
      if (event.button === 0) this.drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, id: event.pointerId };
    });
    picture.addEventListener("pointermove", (event) => {
      if (!this.drag || !event.buttons) return;
      const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
      if (Math.hypot(dx, dy) > 3 && !picture.hasPointerCapture(this.drag.id)) picture.setPointerCapture(this.drag.id);
      this.setView({ ...this.view, x: this.drag.view.x + dx, y: this.drag.view.y + dy });
    });
    picture.addEventListener("pointerup", () => (this.drag = null));
    picture.addEventListener("pointerleave", () => stf.showTip(null));
    picture.addEventListener("keydown", (event) => {
      const step = 60;
      const { x, y, scale } = this.view ?? {};
      const actions = {
        "+": () => this.zoomBy(1.4), "=": () => this.zoomBy(1.4), "-": () => this.zoomBy(1 / 1.4), 0: () => this.fit(),
        ArrowLeft: () => this.setView({ x: x + step, y, scale }), ArrowRight: () => this.setView({ x: x - step, y, scale }),
        ArrowUp: () => this.setView({ x, y: y + step, scale }), ArrowDown: () => this.setView({ x, y: y - step, scale }),
        Escape: () => this.select(-1),
      };
      if (event.target !== picture || !actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
  }

  /** Lay the graph out, when it is shown for the first time. */
  open() {
    if (!this.shown) this.show();
    else if (this.unseen) this.showBeginning();
  }

  /** Show other tasks; the trail leads back. */
  enter(title, tasks) {
    this.trail.push({ title, tasks });
    return this.show();
  }

  /** Show a task: where it is a node of its own, or else with what is near it. */
  async reveal(task) {
    if (!this.shown) await this.show();
    if (!this.nodes.some((node) => node.tasks.length === 1 && node.tasks[0] === task)) {
      await this.enter(`around ${this.model.nameOf(task)}`, this.near(task));
    }
    this.setSelected(task);
    this.centre(this.nodes.find((node) => node.tasks[0] === task));
  }

  /** A task and what is at most three edges away, no more than can be read. */
  near(task) {
    const found = new Set([task]);
    let border = [task];
    for (let step = 0; step < 3; step++) {
      const next = [];
      for (const one of border) {
        for (const other of [...this.model.beforeOf(one), ...this.model.afterOf(one)]) {
          if (found.size < 120 && !found.has(other)) {
            found.add(other);
            next.push(other);
          }
        }
      }
      border = next;
    }
    return [...found].sort((a, b) => a - b);
  }

  async show() {
    this.shown = true;
    const { tasks } = this.trail.at(-1);
    this.fillTrail();
    if (!tasks.length) {
      this.note.textContent = "No tasks.";
      return;
    }
    const { groups, note, by } = stf.groups(this.model, tasks, LIMITS, this.by.value);
    this.by.hidden = by !== "section" && !(by && this.by.value);
    const drill = groups.some((group) => group.tasks.length > 1) ? " A click on one says more, and opens it." : "";
    this.note.textContent = `Laying out ${stf.count(groups.length)} nodes …`;
    this.nodes = groups.map((group) => this.nodeOf(group));
    const edges = stf.edgesOf(this.model, groups);
    const begun = performance.now();
    try {
      const clusters = this.clusters(groups);
      this.layout = await stf.layOutGraph(this.nodes, edges, clusters, "TB");
      if (groups.length <= SMALL_GRAPH && this.layout.height > 4 * this.layout.width) this.layout = await stf.layOutGraph(this.nodes, edges, clusters, "LR");
    } catch (error) {
      this.note.textContent = `The graph could not be laid out: ${error.message}`;
      return;
    }
    this.layoutTime = performance.now() - begun;
    this.text = note + (note && drill) || `${stf.count(groups.length)} nodes, ${stf.count(edges.length)} edges; those that others imply are left out.`;
    this.draw();
    this.find();
  }

  fillTrail() {
    const parts = this.trail.map((part, index) => {
      const isLast = index === this.trail.length - 1;
      const back = () => {
        this.trail.length = index + 1;
        this.show();
      };
      return isLast ? stf.element("b", {}, part.title) : stf.button(part.title, back, { class: "link" });
    });
    this.trailBox.replaceChildren(...(parts.length > 1 ? parts.flatMap((part, i) => (i ? [" › ", part] : [part])) : []));
  }

  nodeOf(group) {
    const { model } = this;
    const [task] = group.tasks;
    const work = group.tasks.reduce((sum, one) => sum + model.task.work[one], 0);
    const lines = [];
    if (group.tasks.length > 1) {
      const title = group.key[0] === "s" ? model.sections[Number(group.key.slice(1))].name : model.families[model.familyOf(task)];
      const { critical } = model;
      const share = group.tasks.reduce((sum, one) => sum + (critical.on.has(one) ? model.task.work[one] : 0), 0) / Math.max(critical.length, 1);
      lines.push(clipped(title), `${stf.count(group.tasks.length)} tasks, ${stf.duration(work)}`);
      if (share > 0) lines.push(`${stf.percent(share)} of the critical path`);
    } else {
      lines.push(clipped(model.nameOf(task)));
      const data = model.accessesOf(task).map((a) => `${model.data.name[a.data]} (${stf.MODES[a.mode] ?? "rw"})`);
      for (let i = 0; i < Math.min(data.length, 4); i += 2) lines.push(clipped(data.slice(i, i + 2).join(", ") + (i + 2 >= 4 && data.length > 4 ? " …" : "")));
      if (model.task.runs[task]) lines.push(stf.duration(work));
    }
    return { ...group, lines, work, width: textWidth(lines) + 26, height: lines.length * LINE_HEIGHT + 12 };
  }

  /** The sections around the nodes, as a tree: { section, nodes, children }; no more than can be read. */
  clusters(groups) {
    const top = { section: -1, nodes: [], children: new Map() };
    groups.forEach((group, index) => {
      const path = [];
      const own = group.key[0] === "s" ? this.model.sections[Number(group.key.slice(1))].parent : this.model.task.section[group.tasks[0]];
      if (group.key[0] !== "f") for (let section = own; section >= 0; section = this.model.sections[section].parent) path.unshift(section);
      let cluster = top;
      for (const section of path) {
        if (!cluster.children.has(section)) cluster.children.set(section, { section, nodes: [], children: new Map() });
        cluster = cluster.children.get(section);
      }
      cluster.nodes.push(index);
    });
    return top;
  }

  // -- the picture

  draw() {
    const { layout, model } = this;
    const { height } = layout;
    const flip = ([x, y]) => [x, height - y];
    this.content = stf.svg("g");
    const arrow = stf.svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto" }, stf.svg("path", { d: "M0,0 L8,4 L0,8 z" }));
    for (const cluster of layout.clusters) {
      const [left, bottom, right, top] = cluster.box;
      const label = stf.svg("text", { x: left + 8, y: height - top + 15, class: "cluster-name" }, clipped(model.sections[cluster.section].name));
      this.content.append(stf.svg("rect", { class: "cluster", x: left, y: height - top, width: right - left, height: top - bottom, rx: 8 }), label);
    }
    this.edges = layout.edges.map(({ from, to, points }) => {
      const [first, ...others] = points.map(flip);
      const d = `M${first} C${others.map((point) => point.join(",")).join(" ")}`;
      const path = stf.svg("path", { class: "edge", d, "marker-end": "url(#arrow)" });
      this.content.append(path);
      return { from, to, path };
    });
    this.nodes.forEach((node, index) => {
      [node.x, node.y] = flip(layout.nodes[index]);
      node.element = this.drawNode(node);
      this.content.append(node.element);
    });
    this.picture.replaceChildren(stf.svg("defs", {}, arrow), this.content);
    this.mark();
    this.showBeginning();
  }

  drawNode(node) {
    const { model } = this;
    const isGroup = node.tasks.length > 1;
    const left = node.x - node.width / 2;
    const top = node.y - node.height / 2;
    const texts = node.lines.map((line, index) =>
      stf.svg("text", { x: left + 14, y: top + 6 + (index + 0.75) * LINE_HEIGHT, class: index ? "detail" : "name" }, line),
    );
    const color = node.key[0] === "s" ? OTHER_COLOR : stf.familyColor(model, model.familyOf(node.tasks[0]));
    const has = (tasks) => node.tasks.some((task) => tasks.has(task));
    const choose = () => (isGroup ? this.selectGroup(node) : this.select(node.tasks[0]));
    return stf.svg(
      "g",
      {
        class: `node${isGroup ? " group" : ""}${has(model.failedTasks) ? " failed" : has(model.skippedTasks) ? " skipped" : ""}`,
        tabindex: "0", role: "button", "aria-label": node.lines.join(", "),
        onclick: choose,
        onkeydown: (event) => event.key === "Enter" && choose(),
        onpointermove: (event) => stf.showTip(this.tipOf(node), event),
        onpointerleave: () => stf.showTip(null),
      },
      stf.svg("rect", { x: left, y: top, width: node.width, height: node.height, rx: 6 }),
      stf.svg("rect", { class: "stripe", x: left, y: top, width: 5, height: node.height, rx: 2.5, style: `fill: ${color}` }),
      ...texts,
    );
  }

  tipOf(node) {
    const { model } = this;
    const [task] = node.tasks;
    if (node.tasks.length > 1) return [node.lines[0], node.lines[1], model.siteOf(task)];
    const lines = [model.nameOf(task), `${model.siteOf(task)} at ${model.places[model.task.place[task]]}`];
    lines.push(...model.accessesOf(task).slice(0, 8).map((a) => `${stf.MODES[a.mode] ?? "rw"} ${model.describeData(a.data)}`));
    if (model.task.runs[task]) lines.push(`ran for ${stf.duration(model.task.work[task])}`);
    if (model.failedTasks.has(task)) lines.push(`failed: ${model.failedTasks.get(task).why}`);
    else if (model.skippedTasks.has(task)) lines.push(`skipped: ${model.skippedTasks.get(task).why}`);
    return lines;
  }

  /** Show what is found, selected and critical. */
  mark() {
    const { critical } = this.model;
    const onPath = this.criticalBox.checked ? this.nodes.filter((node) => node.tasks.some((task) => critical.on.has(task))) : [];
    const tooMany = this.nodes.length > 1 && onPath.length > MOST_MARKED * this.nodes.length;
    const marked = new Set(tooMany ? [] : onPath);
    const hint = tooMany ? ` The critical path goes through ${stf.count(onPath.length)} of ${stf.count(this.nodes.length)} nodes, and is not marked.` : "";
    if (this.text) this.note.textContent = this.text + hint;
    const steps = new Set(critical.tasks.slice(1).map((task, index) => `${critical.tasks[index]} ${task}`));
    this.nodes.forEach((node) => {
      if (!node.element) return;
      node.element.classList.toggle("critical", marked.has(node));
      node.element.classList.toggle("selected", node.tasks.includes(this.selected));
      node.element.classList.toggle("dimmed", Boolean(this.found) && !node.tasks.some((task) => this.found.has(task)));
    });
    const groupOf = new Map();
    this.nodes.forEach((node, index) => node.tasks.forEach((task) => groupOf.set(task, index)));
    const pairs = new Set([...steps].map((step) => step.split(" ").map((task) => groupOf.get(Number(task))).join(" ")));
    const selectedNode = groupOf.get(this.selected);
    for (const { from, to, path } of this.edges ?? []) {
      path.classList.toggle("critical", marked.size > 0 && pairs.has(`${from} ${to}`));
      path.classList.toggle("near", selectedNode !== undefined && (from === selectedNode || to === selectedNode));
    }
  }

  find() {
    this.found = stf.search(this.model, this.search.value);
    const matches = this.found ? this.nodes.filter((node) => node.tasks.some((task) => this.found.has(task))) : [];
    this.matches = matches;
    this.match = -1;
    this.foundText.textContent = this.found ? `${stf.count(this.found.size)} tasks found; Enter goes to the next` : "";
    this.mark();
  }

  nextFound() {
    if (!this.matches?.length) return;
    this.match = (this.match + 1) % this.matches.length;
    const node = this.matches[this.match];
    this.centre(node);
    if (node.tasks.length === 1) this.select(node.tasks[0]);
    else this.selectGroup(node);
  }

  setSelected(task) {
    this.selected = task;
    this.mark();
  }

  // -- the view

  setView(view) {
    this.view = view;
    this.content?.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  }

  fit() {
    if (!this.layout) return;
    const [width, height] = [this.frame.clientWidth, this.frame.clientHeight];
    const scale = Math.min((width - 30) / this.layout.width, (height - 30) / this.layout.height, 1.25);
    this.setView({ scale, x: (width - this.layout.width * scale) / 2, y: (height - this.layout.height * scale) / 2 });
  }

  /** Show the whole graph, or as much of its beginning as can be read. */
  showBeginning() {
    this.unseen = !this.frame.clientWidth; // another section is shown meanwhile
    if (this.unseen) return;
    this.fit();
    const [first] = this.nodes;
    if (this.view.scale >= READABLE || !first) return;
    const isTall = this.layout.direction === "TB";
    const [x, y] = isTall ? [this.frame.clientWidth / 2, 50] : [first.width, this.frame.clientHeight / 2];
    this.setView({ scale: READABLE, x: x - first.x * READABLE, y: y - first.y * READABLE });
  }

  zoomBy(factor, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2) {
    if (!this.view) return;
    const scale = Math.min(Math.max(this.view.scale * factor, 0.005), 6);
    const ratio = scale / this.view.scale;
    this.setView({ scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio });
  }

  centre(node) {
    if (!node || node.x === undefined) return;
    const scale = Math.max(this.view.scale, 0.9);
    this.setView({ scale, x: this.frame.clientWidth / 2 - node.x * scale, y: this.frame.clientHeight / 2 - node.y * scale });
  }
};

function clipped(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > LONGEST_LABEL ? `${line.slice(0, LONGEST_LABEL - 1)}…` : line;
}

function textWidth(lines) {
  const context = (textWidth.context ??= document.createElement("canvas").getContext("2d"));
  return Math.max(
    ...lines.map((line, index) => {
      context.font = index ? "11px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
      return context.measureText(line).width;
    }),
  );
}

// -- Graphviz

/** The layout of boxes: places of nodes, splines of edges and boxes of clusters, in points, y upwards. */
stf.layOutGraph = async (nodes, edges, clusters, direction) => {
  const text = dotOf(nodes, edges, clusters, direction);
  const result = JSON.parse(await stf.graphviz(text));
  const [, , width, height] = result.bb.split(",").map(Number);
  const places = [];
  const boxes = [];
  for (const object of result.objects ?? []) {
    if (object.pos) places[Number(object.name.slice(1))] = object.pos.split(",").map(Number);
    else if (object.bb && object.name.startsWith("cluster_")) {
      boxes.push({ section: Number(object.name.slice(8)), box: object.bb.split(",").map(Number) });
    }
  }
  const splines = (result.edges ?? []).map((edge) => {
    const index = (gvid) => Number(result.objects[gvid].name.slice(1));
    return { from: index(edge.tail), to: index(edge.head), points: pointsOf(edge.pos) };
  });
  return { direction, width, height, nodes: places, edges: splines, clusters: boxes.sort((a, b) => a.section - b.section) };
};

/** The points of a spline; one that begins with "e" is the tip of the arrow, and comes last. */
function pointsOf(position) {
  const parts = position.split(" ");
  const tip = parts.find((part) => part.startsWith("e,"));
  const points = parts.filter((part) => !/^[es],/.test(part)).map((part) => part.split(",").map(Number));
  if (tip) points[points.length - 1] = tip.slice(2).split(",").map(Number);
  return points;
}

function dotOf(nodes, edges, clusters, direction) {
  const lines = ["digraph {", `graph [rankdir=${direction}, ranksep=0.35, nodesep=0.2, margin=0, pad=0];`, 'node [shape=box, fixedsize=true, label=""];'];
  const write = (cluster) => {
    for (const index of cluster.nodes) {
      const { width, height } = nodes[index];
      lines.push(`n${index} [width=${(width / POINTS).toFixed(3)}, height=${(height / POINTS).toFixed(3)}];`);
    }
    for (const child of cluster.children.values()) {
      lines.push(`subgraph cluster_${child.section} {`, 'margin=14; label=" "; fontsize=14;');
      write(child);
      lines.push("}");
    }
  };
  write(clusters);
  for (const [from, to] of edges) lines.push(`n${from} -> n${to};`);
  lines.push("}");
  return lines.join("\n");
}

/** Graphviz's answer as text, from a worker, so that the page goes on; or from the page where there are no workers. */
stf.graphviz = async (text) => {
  const code = await (stf.graphvizCode ??= stf.unpack("graphviz"));
  const answer = "const answer = async (text) => (await Viz.instance()).renderString(text, { format: 'json0' });";
  const listen = "onmessage = ({ data }) => answer(data).then((text) => postMessage({ text }), (e) => postMessage({ error: String(e) }));";
  let worker;
  try {
    worker = new Worker(URL.createObjectURL(new Blob([code, answer, listen], { type: "text/javascript" })));
  } catch {
    if (!window.Viz) document.head.append(Object.assign(document.createElement("script"), { textContent: code }));
    return (await window.Viz.instance()).renderString(text, { format: "json0" });
  }
  try {
    return await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.text));
      worker.onerror = (event) => reject(new Error(event.message ?? "no worker"));
      worker.postMessage(text);
    });
  } finally {
    worker.terminate();
  }
};
