"use strict";
// The timeline: a row per worker, stream or copy engine, grouped by place; time goes to the right.

const LABELS = 172; // pixels of the rows' names
const LANE = 18; // at least; as high as fits, up to TALLEST
const TALLEST = 64;
const LINE = 16; // of text in a bar
const ROW_GAP = 4;
const PLACE_HEAD = 22;
const RULER = 24;
const OVERVIEW = 44;
const SMALL = 1.6; // pixels: narrower spans are drawn together, as how much of each column of pixels was busy

stf.Timeline = class {
  /** `select(task)` is called for a click on a bar, with -1 for one beside it. */
  constructor(model, panel, select) {
    this.model = model;
    this.select = select;
    this.selected = -1;
    this.family = -1; // the only one that is not dimmed
    this.found = null; // a set of tasks that are not dimmed
    this.critical = null; // the set of the tasks on the critical path, while it is shown
    this.hovered = -1;
    this.scroll = 0;
    this.layOut();
    this.place();
    this.whole();
    this.build(panel);
    this.showWork();
  }

  // -- rows

  layOut() {
    const { model } = this;
    const spansOf = model.rows.map(() => []);
    for (let i = 0; i < model.numSpans; i++) spansOf[model.span.row[i]].push(i);
    this.lane = new Uint16Array(model.numSpans);
    this.rows = [];
    let place = null;
    model.rows.forEach((row, index) => {
      const numLanes = Math.max(1, this.putInLanes(spansOf[index]));
      if (row.place !== place) {
        this.rows.push({ head: row.place });
        place = row.place;
      }
      this.rows.push({ index, name: row.name, lanes: this.byLane(spansOf[index], numLanes) });
    });
    this.rowOfIndex = new Map(this.rows.filter((row) => row.lanes).map((row) => [row.index, row]));
  }

  /** Give each row its place; few lanes are as high as fits into the box. */
  place() {
    const lanes = this.rows.reduce((sum, row) => sum + (row.lanes?.length ?? 0), 0);
    const fixed = this.rows.reduce((sum, row) => sum + (row.lanes ? ROW_GAP : PLACE_HEAD + 8), 8);
    this.laneHeight = Math.min(Math.max(Math.floor((this.viewHeight - fixed) / Math.max(lanes, 1)), LANE), TALLEST);
    let top = -4;
    for (const row of this.rows) {
      top += row.lanes ? 0 : 8;
      row.top = top;
      row.height = row.lanes ? row.lanes.length * this.laneHeight + ROW_GAP : PLACE_HEAD;
      top += row.height;
    }
    this.height = top + 8;
  }

  /** Spans of a row that overlap get lanes of their own; those inside others come below them. */
  putInLanes(spans) {
    const { start, end } = this.model.span;
    const until = [];
    for (const span of spans) {
      let lane = until.findIndex((time) => time <= start[span]);
      if (lane < 0) lane = until.length;
      until[lane] = end[span];
      this.lane[span] = lane;
    }
    return until.length;
  }

  byLane(spans, numLanes) {
    const lanes = Array.from({ length: numLanes }, () => []);
    for (const span of spans) lanes[this.lane[span]].push(span);
    return lanes.map((lane) => Int32Array.from(lane));
  }

  // -- what is visible

  whole() {
    const margin = (this.model.finish - this.model.begin) * 0.01;
    this.from = this.model.begin - margin;
    this.to = this.model.finish + margin;
    this.redraw();
  }

  /** Leave out a long time before the first bar, and of bars that are very far apart show those that are most. */
  showWork() {
    const { start, end } = this.model.span;
    let [low, high, from] = [0, start.length, this.model.begin];
    for (;;) {
      let [until, longest, at] = [from, 0, low];
      for (let i = low; i < high; i++) {
        if (start[i] - until > longest) [longest, at] = [start[i] - until, i];
        until = Math.max(until, end[i]);
      }
      const isLead = at === low && from < start[low];
      if (longest <= (until - from) * (isLead ? 0.5 : 0.8)) {
        if (from > this.model.begin) this.show(from - (until - from) * 0.02, until + (until - from) * 0.02);
        break;
      }
      if (!isLead && at - low > high - at) high = at;
      else low = at;
      from = start[low];
    }
    const outside = start.length - (high - low);
    if (outside) this.foundText.textContent = `${stf.count(outside)} bars are earlier or later: “Whole run” shows them.`;
  }

  /** Show the times from `from` to `to`, within the run. */
  show(from, to) {
    const margin = (this.model.finish - this.model.begin) * 0.01;
    const [first, last] = [this.model.begin - margin, this.model.finish + margin];
    const length = Math.min(Math.max(to - from, 50), last - first);
    this.from = Math.min(Math.max(from, first), last - length);
    this.to = this.from + length;
    this.redraw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    const step = (this.to - this.from) * share;
    this.show(this.from + step, this.to + step);
  }

  /** Bring a task's bar into view. */
  reveal(task) {
    const { model } = this;
    const span = model.task.span[task];
    if (span < 0) return;
    const [start, end] = [model.span.start[span], model.span.end[span]];
    const length = Math.min(this.to - this.from, Math.max((end - start) * 40, 1000));
    const isVisible = start >= this.from && end <= this.to;
    const isWide = ((end - start) / (this.to - this.from)) * (this.width ?? 1000) > 6;
    if (!isVisible || !isWide) this.show((start + end) / 2 - length / 2, (start + end) / 2 + length / 2);
    const row = this.rowOfIndex.get(model.span.row[span]);
    if (row.top < this.scroll || row.top + row.height > this.scroll + this.viewHeight) {
      this.scrollTo(row.top - this.viewHeight / 2);
    }
  }

  scrollTo(top) {
    this.scroll = Math.max(0, Math.min(top, this.height - this.viewHeight));
    this.redraw();
  }

  get viewHeight() {
    return Math.max(60, (this.frame?.clientHeight ?? 400) - RULER - OVERVIEW);
  }

  x(time) {
    return LABELS + ((time - this.from) / (this.to - this.from)) * this.width;
  }

  timeAt(x) {
    return this.from + ((x - LABELS) / this.width) * (this.to - this.from);
  }

  // -- elements and events

  build(panel) {
    const keys = "Wheel: zoom. Shift and wheel: rows. Drag: pan. Shift and drag: zoom into a part. Double click: zoom to a bar. Keys: W S + - zoom, A D ← → pan, ↑ ↓ rows, 0 whole run, F selected task, Esc nothing selected.";
    this.search = stf.element("input", {
      type: "search", placeholder: "Find a name, data or line", "aria-label": "Find tasks in the timeline",
      oninput: () => this.find(this.search.value),
    });
    this.foundText = stf.element("span", { class: "note", "aria-live": "polite" });
    this.criticalBox = stf.element("input", { type: "checkbox", onchange: () => this.toggleCritical() });
    const tools = stf.element(
      "div", { class: "tools" },
      stf.button("Whole run", () => (this.whole(), this.find(this.search.value)), { title: "Key 0" }),
      stf.button("−", () => this.zoom(1.6), { "aria-label": "Zoom out", title: "Key S" }),
      stf.button("+", () => this.zoom(1 / 1.6), { "aria-label": "Zoom in", title: "Key W" }),
      this.search, this.foundText,
      stf.element("label", { title: stf.sizeOfPath(this.model) }, this.criticalBox, " critical path"),
      stf.explained("keys", keys),
    );
    this.legend = stf.element("div", { class: "legend" });
    this.canvas = stf.element("canvas", {
      tabindex: "0", role: "img",
      "aria-label": "Timeline of what ran on each worker; the tables have the same times as text",
    });
    this.frame = stf.element("div", { class: "frame" }, this.canvas);
    panel.append(tools, this.legend, this.frame);
    this.fillLegend();
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(this.frame);
  }

  fillLegend() {
    const { model } = this;
    const entries = model.familiesByTime.slice(0, 12).map((family) => [family, model.families[family]]);
    const others = model.familiesByTime.length - entries.length;
    const chips = entries.map(([family, name]) => {
      const toggle = () => {
        this.family = this.family === family ? -1 : family;
        for (const chip of this.legend.children) chip.setAttribute("aria-pressed", chip === button && this.family >= 0);
        this.redraw();
      };
      const dot = stf.element("i", { style: `background: ${stf.familyColor(model, family)}` });
      const button = stf.element(
        "button", { type: "button", class: "chip", onclick: toggle, "aria-pressed": "false" },
        dot, name, stf.element("small", {}, stf.duration(model.timeOfFamily[family])),
      );
      return button;
    });
    const plain = (color, text) => stf.element("span", { class: "chip" }, stf.element("i", { style: `background: ${color}` }), text);
    if (others > 0) chips.push(plain(OTHER_COLOR, others > 1 ? `${others} other functions` : "1 other function"));
    if (model.span.kind.includes(stf.COPY)) chips.push(plain(COPY_COLOR, "copies"));
    this.legend.replaceChildren(...chips);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => {
      this.hovered = -1;
      stf.showTip(null);
      this.redraw();
    });
    canvas.addEventListener("dblclick", (event) => {
      const span = this.spanAt(event.offsetX, event.offsetY);
      if (span < 0) return;
      const { start, end } = this.model.span;
      const margin = (end[span] - start[span]) * 0.5 + 100;
      this.show(start[span] - margin, end[span] + margin);
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  onWheel(event) {
    event.preventDefault();
    const amount = event.deltaMode ? event.deltaY * 30 : event.deltaY;
    if (event.shiftKey) this.scrollTo(this.scroll + amount + event.deltaX);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / this.width);
    else this.zoom(Math.exp(Math.max(-300, Math.min(300, amount)) * 0.002), this.timeAt(event.offsetX));
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.focus({ preventScroll: true });
    const { offsetX: x, offsetY: y } = event;
    const inOverview = y < OVERVIEW;
    this.drag = { x, y, from: this.from, to: this.to, scroll: this.scroll, moved: false, inOverview, range: event.shiftKey };
    if (inOverview) this.dragOverview(x);
  }

  onMove(event) {
    const { offsetX: x, offsetY: y } = event;
    const { drag } = this;
    if (!drag) {
      this.hover(event);
      return;
    }
    drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > 3;
    if (drag.inOverview) this.dragOverview(x);
    else if (drag.range) {
      drag.now = x;
      this.redraw();
    } else if (drag.moved) {
      const shift = ((x - drag.x) / this.width) * (drag.to - drag.from);
      this.scroll = Math.max(0, Math.min(drag.scroll - (y - drag.y), this.height - this.viewHeight));
      this.show(drag.from - shift, drag.to - shift);
    }
  }

  onUp(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.inOverview) return;
    if (drag.range && drag.moved) {
      const times = [this.timeAt(drag.x), this.timeAt(event.offsetX)].sort((a, b) => a - b);
      this.show(...times);
    } else if (!drag.moved) {
      const span = this.spanAt(event.offsetX, event.offsetY);
      this.select(span < 0 ? -1 : this.model.span.task[span], span);
    }
  }

  dragOverview(x) {
    const { model } = this;
    const time = model.begin + ((x - LABELS) / this.width) * (model.finish - model.begin);
    const half = (this.to - this.from) / 2;
    this.show(time - half, time + half);
  }

  onKey(event) {
    const actions = {
      w: () => this.zoom(1 / 1.6), "+": () => this.zoom(1 / 1.6), "=": () => this.zoom(1 / 1.6),
      s: () => this.zoom(1.6), "-": () => this.zoom(1.6),
      a: () => this.pan(-0.2), ArrowLeft: () => this.pan(-0.2),
      d: () => this.pan(0.2), ArrowRight: () => this.pan(0.2),
      ArrowUp: () => this.scrollTo(this.scroll - 60), ArrowDown: () => this.scrollTo(this.scroll + 60),
      0: () => this.whole(), Home: () => this.whole(),
      f: () => this.reveal(this.selected),
      Escape: () => this.select(-1, -1),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  hover(event) {
    const span = this.spanAt(event.offsetX, event.offsetY);
    if (span !== this.hovered) {
      this.hovered = span;
      this.redraw();
    }
    this.canvas.style.cursor = span < 0 ? "grab" : "pointer";
    stf.showTip(span < 0 ? null : this.tipOf(span), event);
  }

  tipOf(span) {
    const { model } = this;
    const { start, end, task, kind } = model.span;
    const lines = [model.spanName(span), `${stf.duration(end[span] - start[span])}, from ${stf.duration(start[span])} on`];
    const operation = model.span.operation[span];
    if (operation >= 0) {
      const { source, target, bytes } = model.operation;
      const rate = bytes[operation] / Math.max(end[span] - start[span], 1);
      lines.push(`${model.places[source[operation]]} → ${model.places[target[operation]]}, ${stf.bytes(bytes[operation])}, ${rate.toFixed(2)} GB/s`);
    }
    if (task[span] >= 0) {
      lines.push(kind[span] !== stf.TASK ? `for ${model.nameOf(task[span])}, ${model.siteOf(task[span])}` : model.siteOf(task[span]));
      if (kind[span] === stf.TASK) {
        const data = model.accessesOf(task[span]).map((a) => `${model.data.name[a.data]} (${stf.MODES[a.mode] ?? "rw"})`);
        if (data.length) lines.push(data.slice(0, 6).join(", ") + (data.length > 6 ? ` and ${data.length - 6} more` : ""));
      }
    }
    return lines;
  }

  spanAt(x, y) {
    const top = OVERVIEW + RULER;
    if (x < LABELS || y < top) return -1;
    const inside = y - top + this.scroll;
    const row = this.rows.find((one) => one.lanes && inside >= one.top && inside < one.top + one.height);
    if (!row) return -1;
    const lane = row.lanes[Math.floor((inside - row.top) / this.laneHeight)];
    if (!lane) return -1;
    const { start, end } = this.model.span;
    const [from, to] = [this.timeAt(x - 1.5), this.timeAt(x + 1.5)];
    let best = -1;
    for (let i = firstAfter(lane, end, from); i < lane.length && start[lane[i]] <= to; i++) {
      if (best < 0 || end[lane[i]] - start[lane[i]] > end[best] - start[best]) best = lane[i];
    }
    return best;
  }

  find(text) {
    this.found = stf.search(this.model, text);
    this.foundText.textContent = this.found ? `${stf.count(this.found.size)} found` : "";
    this.redraw();
  }

  toggleCritical() {
    this.critical = this.criticalBox.checked ? this.model.critical.on : null;
    this.redraw();
  }

  setSelected(task, span = -1) {
    this.selected = task;
    this.selectedSpan = span;
    this.redraw();
  }

  // -- drawing

  redraw() {
    if (!this.frame || this.pendingFrame) return;
    this.pendingFrame = requestAnimationFrame(() => {
      this.pendingFrame = null;
      this.draw();
    });
  }

  draw() {
    const [fullWidth, fullHeight] = [this.frame.clientWidth, this.frame.clientHeight];
    if (!fullWidth || !fullHeight) return;
    this.width = fullWidth - LABELS - 10;
    this.place();
    this.scroll = Math.max(0, Math.min(this.scroll, this.height - this.viewHeight));
    const colors = Object.fromEntries(["text", "soft", "line", "panel", "page", "accent", "bad"].map((name) => [name, stf.color(name)]));
    const context = stf.fitCanvas(this.canvas, fullWidth, fullHeight);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const top = OVERVIEW + RULER;
    this.drawRuler(context, colors, fullWidth, fullHeight);
    context.save();
    context.beginPath();
    context.rect(0, top, fullWidth, fullHeight - top);
    context.clip();
    context.translate(0, top - this.scroll);
    this.drawRows(context, colors, fullWidth, fullHeight);
    this.drawArrows(context, colors);
    context.restore();
    this.drawOverview(context, colors);
    if (this.drag?.range && this.drag.now !== undefined) {
      context.fillStyle = colors.accent;
      context.globalAlpha = 0.2;
      context.fillRect(Math.min(this.drag.x, this.drag.now), top, Math.abs(this.drag.now - this.drag.x), fullHeight - top);
      context.globalAlpha = 1;
    }
  }

  drawRows(context, colors, fullWidth, fullHeight) {
    let odd = false;
    for (const row of this.rows) {
      odd = row.lanes ? !odd : false;
      if (row.top + row.height < this.scroll || row.top > this.scroll + fullHeight) continue;
      if (!row.lanes) {
        context.fillStyle = colors.text;
        context.font = "600 12px system-ui, sans-serif";
        context.fillText(row.head, 10, row.top + row.height / 2);
        context.font = "12px system-ui, sans-serif";
        continue;
      }
      context.fillStyle = colors.line;
      context.globalAlpha = odd ? 0.35 : 0.15;
      context.fillRect(LABELS, row.top, fullWidth - LABELS, row.height - 1);
      context.globalAlpha = 1;
      context.fillStyle = colors.soft;
      context.fillText(shortened(context, row.name, LABELS - 30), 22, row.top + this.laneHeight / 2 + 2);
      context.save();
      context.beginPath();
      context.rect(LABELS, row.top, this.width + 10, row.height);
      context.clip();
      row.lanes.forEach((lane, index) => this.drawLane(context, colors, lane, row.top + 2 + index * this.laneHeight));
      context.restore();
    }
  }

  drawLane(context, colors, lane, top) {
    const { model } = this;
    const { start, end } = model.span;
    const scale = this.width / (this.to - this.from);
    const height = this.laneHeight - 2;
    let column = null; // the column of pixels whose small spans are added up
    const flush = () => {
      if (!column) return;
      let [best, most] = [0, -1];
      for (const [style, time] of column.times) if (time > most) [best, most] = [style, time];
      const busy = Math.min(1, column.busy);
      context.globalAlpha = best < 0 ? 0.22 : 1;
      context.fillStyle = stf.familyColor(model, Math.abs(best) - 1);
      const tall = Math.max(2, height * busy);
      context.fillRect(column.x, top + height - tall, 1, tall);
      column = null;
    };
    context.lineWidth = 1;
    for (let i = firstAfter(lane, end, this.from); i < lane.length && start[lane[i]] < this.to; i++) {
      const span = lane[i];
      const left = LABELS + (start[span] - this.from) * scale;
      const wide = (end[span] - start[span]) * scale;
      const family = model.spanFamily(span);
      const dimmed = this.isDimmed(span, family);
      if (wide < SMALL) {
        const x = Math.floor(left);
        if (!column || column.x !== x) {
          flush();
          column = { x, busy: 0, times: new Map() };
        }
        const style = dimmed ? -family - 1 : family + 1;
        column.busy += wide;
        column.times.set(style, (column.times.get(style) ?? 0) + wide + 1e-6);
        if (!this.isSpecial(span)) continue;
      }
      flush();
      this.drawBar(context, colors, span, { left, wide: Math.max(wide, 1.5), top, height, family, dimmed });
    }
    flush();
    context.globalAlpha = 1;
  }

  drawBar(context, colors, span, { left, wide, top, height, family, dimmed }) {
    const { model } = this;
    const x = Math.max(left, LABELS - 4);
    const width = Math.min(left + wide, LABELS + this.width + 14) - x;
    const gap = width > 4 ? 0.5 : 0;
    context.globalAlpha = dimmed ? 0.22 : 1;
    context.fillStyle = stf.familyColor(model, family);
    context.fillRect(x + gap, top, width - 2 * gap, height);
    if (model.failedTasks.has(model.span.task[span]) && model.span.kind[span] === stf.TASK) {
      context.fillStyle = colors.bad;
      context.fillRect(x + gap, top + height - 4, width - 2 * gap, 4);
    }
    if (width > 26) {
      context.fillStyle = "#fff";
      const [name, ...more] = this.textsOf(span).slice(0, Math.max(1, Math.floor(height / LINE)));
      const whole = more.filter((text) => context.measureText(text).width <= width - 8);
      [shortened(context, name, width - 8), ...whole].forEach((text, index) => {
        if (text.length > 1) context.fillText(text, x + 4, top + height / 2 + 0.5 + (index - whole.length / 2) * LINE);
      });
    }
    context.globalAlpha = 1;
    if (this.critical && this.critical.has(model.span.task[span]) && model.span.kind[span] === stf.TASK) this.outline(context, colors.bad, x, top, width, height, 2);
    if (this.isSpecial(span)) this.outline(context, colors.text, x, top, width, height, 2);
  }

  /** The lines of text in a bar, as many as there is room for. */
  textsOf(span) {
    const { model } = this;
    const { start, end, task } = model.span;
    const texts = [model.spanName(span), stf.duration(end[span] - start[span])];
    return task[span] < 0 ? texts : [...texts, model.siteOf(task[span])];
  }

  outline(context, color, x, top, width, height, line) {
    context.strokeStyle = color;
    context.lineWidth = line;
    context.strokeRect(x + 1, top + 1, Math.max(width - 2, 1), height - 2);
  }

  isSpecial(span) {
    const { task, kind } = this.model.span;
    return span === this.hovered || span === this.selectedSpan || (this.selected >= 0 && task[span] === this.selected && kind[span] !== stf.COPY);
  }

  isDimmed(span, family) {
    if (this.isSpecial(span)) return false;
    const { task, kind } = this.model.span;
    if (this.family >= 0 && family !== this.family) return true;
    if (this.critical && (kind[span] === stf.COPY || !this.critical.has(task[span]))) return true;
    return this.found !== null && !this.found.has(task[span]);
  }

  /** Lines from what the selected task waited for, and to what waited for it. */
  drawArrows(context, colors) {
    const { model, selected } = this;
    if (selected < 0 || model.task.span[selected] < 0) return;
    context.save();
    context.beginPath();
    context.rect(LABELS, 0, this.width + 10, this.height);
    context.clip();
    context.globalAlpha = 0.8;
    context.lineWidth = 1.4;
    const middle = (task) => {
      const span = model.task.span[task];
      return this.rowOfIndex.get(model.span.row[span]).top + 2 + (this.lane[span] + 0.5) * this.laneHeight - 1;
    };
    const connect = (from, to, color) => {
      if (model.task.span[from] < 0 || model.task.span[to] < 0) return;
      const [x1, y1, x2, y2] = [this.x(model.task.end[from]), middle(from), this.x(model.task.start[to]), middle(to)];
      const bend = Math.max(12, Math.min(80, Math.abs(x2 - x1) / 2));
      context.strokeStyle = color;
      context.beginPath();
      context.moveTo(x1, y1);
      if (y1 === y2) context.quadraticCurveTo((x1 + x2) / 2, y1 - this.laneHeight, x2, y2); // not over the names between them
      else context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      context.stroke();
    };
    model.beforeOf(selected).slice(-200).forEach((before) => connect(before, selected, colors.accent));
    model.afterOf(selected).slice(0, 200).forEach((after) => connect(selected, after, colors.soft));
    context.restore();
  }

  drawRuler(context, colors, fullWidth, fullHeight) {
    context.fillStyle = colors.soft;
    context.strokeStyle = colors.line;
    context.lineWidth = 1;
    context.beginPath();
    for (const [time, text] of stf.ticks(this.from, this.to, this.width / 110)) {
      const x = Math.round(this.x(time)) + 0.5;
      if (x < LABELS) continue;
      context.moveTo(x, OVERVIEW + RULER - 5);
      context.lineTo(x, fullHeight);
      const wide = context.measureText(text).width;
      if (x + wide / 2 < fullWidth && x - wide / 2 > LABELS - 20) context.fillText(text, x - wide / 2, OVERVIEW + RULER / 2 - 1);
    }
    context.globalAlpha = 0.6;
    context.stroke();
    context.globalAlpha = 1;
    context.fillText(`shown: ${stf.duration(this.to - this.from)}`, 10, OVERVIEW + RULER / 2);
  }

  /** How many tasks ran at each time of the whole run, and which part of it is shown. */
  drawOverview(context, colors) {
    const { model } = this;
    const width = Math.floor(this.width);
    if (!this.running || this.running.length !== width) this.running = runningAt(model, width);
    const most = Math.max(1e-9, ...this.running);
    const bottom = OVERVIEW - 6;
    const tall = bottom - 8;
    context.fillStyle = colors.accent;
    context.globalAlpha = 0.55;
    for (let i = 0; i < width; i++) {
      const height = (this.running[i] / most) * tall;
      context.fillRect(LABELS + i, bottom - height, 1, height);
    }
    context.globalAlpha = 1;
    const share = (time) => LABELS + (Math.min(Math.max((time - model.begin) / (model.finish - model.begin), 0), 1)) * width;
    const [left, right] = [share(this.from), share(this.to)];
    context.fillStyle = colors.page;
    context.globalAlpha = 0.65;
    context.fillRect(LABELS, 6, left - LABELS, bottom - 6);
    context.fillRect(right, 6, LABELS + width - right, bottom - 6);
    context.globalAlpha = 1;
    context.strokeStyle = colors.soft;
    context.strokeRect(Math.min(left, LABELS + width - 2) + 0.5, 6.5, Math.max(right - left - 1, 2), bottom - 7);
    context.fillStyle = colors.soft;
    context.fillText("whole run, tasks", 10, 17);
    context.fillText("that ran at once", 10, 31);
  }
};

/** The first of a lane's spans that ends after a time; a lane's spans follow each other. */
function firstAfter(lane, end, time) {
  let [low, high] = [0, lane.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[lane[middle]] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

/** How many bodies ran on average in each of so many parts of the run. */
function runningAt(model, parts) {
  const found = new Float64Array(parts);
  const scale = parts / (model.finish - model.begin);
  for (let i = 0; i < model.numSpans; i++) {
    if (model.span.kind[i] !== stf.TASK) continue;
    const start = (model.span.start[i] - model.begin) * scale;
    const end = (model.span.end[i] - model.begin) * scale;
    for (let part = Math.floor(start); part < Math.min(end, parts); part++) {
      found[part] += Math.min(end, part + 1) - Math.max(start, part);
    }
  }
  return found;
}

/** The tasks whose name, data or line has all the words; null if there are none. */
stf.search = (model, text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const names = model.names.map((name) => name.toLowerCase());
  const data = model.data.name.map((name) => name.toLowerCase());
  const sites = model.sources.map((source) => [source.site, ...source.lines.slice(source.line, source.line + 1)].join(" ").toLowerCase());
  const found = new Set();
  for (let task = 0; task < model.numTasks; task++) {
    const has = (word) => {
      if (names[model.task.name[task]].includes(word) || sites[model.task.source[task]].includes(word)) return true;
      for (let i = model.accessAt[task]; i < model.accessAt[task + 1]; i++) if (data[model.access[i] >> 3].includes(word)) return true;
      return false;
    };
    if (words.every(has)) found.add(task);
  }
  return found;
};
