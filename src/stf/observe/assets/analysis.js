"use strict";
// What is computed from a run: its critical path, why its workers were idle, what it would take elsewhere.

/** Why a place or a worker was idle. The parts of a gap are told by the task that ended it, in this order. */
stf.CAUSES = [
  {
    name: "no work",
    label: "no work",
    what:
      "Nothing that could run here was ready: the task that ended the gap still waited for tasks that it depends on, " +
      "or no more tasks came.",
  },
  {
    name: "host",
    label: "waiting for the host",
    what:
      "The inputs of the task that ended the gap were ready, and the program had not submitted it yet: it was busy " +
      "with other code, with submitting, in a with-block, or in a wait.",
  },
  {
    name: "data",
    label: "waiting for data",
    what: "The task that ended the gap was submitted and its inputs were written, and a copy of its data was not done.",
  },
  {
    name: "start",
    label: "workers busy or waking up",
    what:
      "The task that ended the gap had all it needed and was not running yet: all workers were busy at other places, " +
      "or the worker was woken up.",
  },
];

/** The longest path by measured durations: tasks in order, its length, and all tasks' work. */
stf.criticalPath = (model) => {
  const { numTasks, task } = model;
  const finish = new Float64Array(numTasks);
  const decisive = new Int32Array(numTasks).fill(-1);
  let last = -1;
  let work = 0;
  for (let index = 0; index < numTasks; index++) {
    for (let i = model.beforeAt[index]; i < model.beforeAt[index + 1]; i++) {
      const before = model.before[i];
      if (decisive[index] < 0 || finish[before] >= finish[decisive[index]]) decisive[index] = before;
    }
    finish[index] = (decisive[index] < 0 ? 0 : finish[decisive[index]]) + task.work[index];
    work += task.work[index];
    if (last < 0 || finish[index] > finish[last]) last = index;
  }
  const tasks = [];
  for (let index = last; index >= 0; index = decisive[index]) tasks.push(index);
  tasks.reverse();
  return { tasks, length: last < 0 ? 0 : finish[last], work, on: new Set(tasks) };
};

/** A sentence on how much of the run the critical path is. */
stf.sizeOfPath = ({ critical, numTasks }) =>
  `${stf.count(critical.tasks.length)} of ${stf.count(numTasks)} tasks, ${stf.percent(critical.length / Math.max(critical.work, 1))} of all work`;

/** Idle time by cause: of each place where tasks ran, and of each worker. Causes and busy time add up to the run. */
stf.idleTimes = (model) => {
  const places = new Map();
  const workers = new Map();
  model.rows.forEach((row, index) => {
    const has = (map, key, label, title) => {
      if (!map.has(key)) map.set(key, { label, title, rows: new Set(), withCopies: false });
      map.get(key).rows.add(index);
      return map.get(key);
    };
    has(places, row.place, row.place, "All workers of this place together: it is idle while none of them runs a task.");
    if (row.isThread) {
      has(workers, row.name, row.name, "One thread, whatever place it works for.").withCopies = true;
    }
  });
  const found = [...places.values(), ...(workers.size > 1 ? [...workers.values()] : [])];
  return found.map((unit) => idleOf(model, unit)).filter((unit) => unit.busy > 0);
};

function idleOf(model, unit) {
  const { span } = model;
  const idle = [0, 0, 0, 0];
  let busy = 0;
  let until = model.begin;
  for (let i = 0; i < model.numSpans; i++) {
    if (!unit.rows.has(span.row[i]) || (span.kind[i] !== stf.TASK && !unit.withCopies)) continue;
    if (span.start[i] > until) {
      const parts = partsOfGap(model, i, until);
      parts.forEach((part, cause) => (idle[cause] += part));
    }
    busy += Math.max(0, span.end[i] - Math.max(span.start[i], until));
    until = Math.max(until, span.end[i]);
  }
  idle[0] += Math.max(0, model.finish - until);
  return { ...unit, busy, idle };
}

/** The causes of a gap that a span ended. */
function partsOfGap(model, index, from) {
  const { span, operation } = model;
  const start = span.start[index];
  const task = span.task[index];
  if (span.kind[index] === stf.TASK && task >= 0 && model.task.span[task] === index) return model.partsOfWait(task, from);
  const asked = span.operation[index] >= 0 ? operation.time[span.operation[index]] : from;
  const host = Math.min(Math.max(asked - from, 0), start - from);
  return [0, host, 0, start - from - host];
}

/**
 * Tasks and copies as jobs, in the order of the program: a copy comes before the task that it was made for, and after the
 * one that wrote its data. Each takes as long as it was measured to. Edges go from lower numbers to higher ones.
 */
stf.jobs = (model, { freeCopies = false, hostAsRecorded = false, family = -1, faster = 1 } = {}) => {
  const { numTasks, task } = model;
  const copies = freeCopies ? [] : (model.copies ??= copiesOf(model));
  const count = numTasks + copies.length;
  const jobs = { count, cost: new Float64Array(count), release: new Float64Array(count), takesWorker: new Uint8Array(count).fill(1) };
  const jobOf = new Uint32Array(numTasks);
  let passed = 0; // copies
  for (let index = 0; index < numTasks; index++) {
    while (passed < copies.length && copies[passed].at <= index) passed++;
    const job = (jobOf[index] = index + passed);
    jobs.cost[job] = model.familyOf(index) === family ? task.work[index] / faster : task.work[index];
    if (hostAsRecorded) jobs.release[job] = Math.max(0, task.submitted[index]);
  }
  copies.forEach((copy, number) => {
    const job = copy.at + number;
    jobs.cost[job] = copy.duration;
    jobs.takesWorker[job] = copy.takesWorker ? 1 : 0;
    if (hostAsRecorded) jobs.release[job] = Math.max(0, copy.asked);
  });
  const forEdges = (visit) => {
    for (let index = 0; index < numTasks; index++) for (const before of model.beforeOf(index)) visit(jobOf[before], jobOf[index]);
    copies.forEach(({ at, task: made, writer }, number) => {
      if (writer >= 0) visit(jobOf[writer], at + number);
      if (made >= 0) visit(at + number, jobOf[made]);
    });
  };
  jobs.numBefore = new Uint32Array(count);
  const counts = new Uint32Array(count);
  forEdges((from, to) => (counts[from]++, jobs.numBefore[to]++));
  jobs.afterAt = offsets(counts);
  jobs.after = new Uint32Array(jobs.afterAt[count]);
  const next = jobs.afterAt.slice();
  forEdges((from, to) => (jobs.after[next[from]++] = to));
  return jobs;
};

/** The copies that ran, in the order of the program: `at` is how many tasks come before each; -1 is no task. */
function copiesOf(model) {
  const { span, operation, task, numTasks } = model;
  const copies = [];
  for (let i = 0; i < model.numSpans; i++) {
    if (span.kind[i] !== stf.COPY) continue;
    const index = span.operation[i];
    const asked = index < 0 ? 0 : operation.time[index];
    const made = span.task[i]; // for this task, which is told after it
    copies.push({
      at: made >= 0 ? made : firstAfterTime(task.submitted, numTasks, asked), task: made, asked,
      takesWorker: model.takesWorker(i),
      data: index < 0 ? -1 : operation.data[index], writer: -1, duration: span.end[i] - span.start[i],
    });
  }
  copies.sort((a, b) => a.at - b.at);
  const writers = new Map();
  let next = 0;
  for (const copy of copies) {
    for (; next < copy.at; next++) {
      for (let i = model.accessAt[next]; i < model.accessAt[next + 1]; i++) if ((model.access[i] & 7) !== 1) writers.set(model.access[i] >> 3, next);
    }
    copy.writer = writers.get(copy.data) ?? -1;
  }
  return copies;
}

function firstAfterTime(times, count, time) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Play jobs on so many workers, and return how long that takes.
 *
 * A worker runs one task or one copy at a time, at any place; a GPU makes its copies beside its tasks. Of what is ready,
 * that with the longest path to the end runs first. So one worker takes as long as all tasks and copies together.
 */
stf.simulate = (jobs, workers) => {
  const { count, cost, takesWorker, after, afterAt } = jobs;
  const toEnd = new Float64Array(count);
  for (let job = count - 1; job >= 0; job--) {
    let longest = 0;
    for (let i = afterAt[job]; i < afterAt[job + 1]; i++) longest = Math.max(longest, toEnd[after[i]]);
    toEnd[job] = longest + cost[job];
  }
  const missing = jobs.numBefore.slice();
  const release = jobs.release.slice();
  const coming = new stf.Heap((a, b) => release[a] - release[b] || a - b); // all inputs there, by when
  const ready = new stf.Heap((a, b) => toEnd[b] - toEnd[a] || a - b);
  const running = new stf.Heap((a, b) => a[0] - b[0]); // [end, job]
  for (let job = 0; job < count; job++) if (!missing[job]) coming.push(job);
  let now = 0;
  let finish = 0;
  let busy = 0; // workers
  const start = (job) => {
    busy += takesWorker[job];
    running.push([now + cost[job], job]);
  };
  while (coming.size || ready.size || running.size) {
    while (coming.size && release[coming.top] <= now) {
      const job = coming.pop();
      if (takesWorker[job]) ready.push(job);
      else start(job);
    }
    while (ready.size && busy < workers) start(ready.pop());
    const nextEnd = running.size ? running.top[0] : Infinity;
    const nextComing = coming.size ? release[coming.top] : Infinity;
    if (nextComing < nextEnd) {
      now = nextComing;
      continue;
    }
    const [end, job] = running.pop();
    now = end;
    finish = Math.max(finish, end);
    busy -= takesWorker[job];
    for (let i = afterAt[job]; i < afterAt[job + 1]; i++) {
      const next = after[i];
      release[next] = Math.max(release[next], end);
      if (!--missing[next]) coming.push(next);
    }
  }
  return finish;
};

/** A binary heap; `compare` as of Array.sort, the smallest first. */
stf.Heap = class {
  constructor(compare) {
    this.compare = compare;
    this.items = [];
  }

  get size() {
    return this.items.length;
  }

  get top() {
    return this.items[0];
  }

  push(item) {
    const { items, compare } = this;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (compare(items[parent], item) <= 0) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  pop() {
    const { items, compare } = this;
    const top = items[0];
    const item = items.pop();
    if (items.length) {
      let at = 0;
      for (;;) {
        let child = 2 * at + 1;
        if (child >= items.length) break;
        if (child + 1 < items.length && compare(items[child + 1], items[child]) < 0) child++;
        if (compare(item, items[child]) <= 0) break;
        items[at] = items[child];
        at = child;
      }
      items[at] = item;
    }
    return top;
  }
};

/** The length of the longest chain of tasks before each task. */
stf.levels = (model) => {
  const found = new Uint32Array(model.numTasks);
  for (let index = 0; index < model.numTasks; index++) {
    for (let i = model.beforeAt[index]; i < model.beforeAt[index + 1]; i++) {
      found[index] = Math.max(found[index], found[model.before[i]] + 1);
    }
  }
  return found;
};

/**
 * If there are more than `most` tasks, put them into at most `mostGroups` groups: by section, as deep as fits; then by
 * function and level; then by function and more and more levels. `by` may be "function", to leave the sections out.
 * Returns the groups, in program order, what they were put together by, and a sentence that says so.
 */
stf.groups = (model, tasks, { most, mostGroups }, by = "") => {
  const alone = tasks.map((task) => ({ key: `t${task}`, tasks: [task] }));
  if (tasks.length <= most) return { groups: alone, note: "", by: "" };
  const total = stf.count(tasks.length);
  const depths = model.sections.map((section) => section.depth);
  const deepest = depths.reduce((a, b) => Math.max(a, b), -1);
  for (let depth = by === "function" ? -1 : deepest; depth >= 0; depth--) {
    const groups = grouped(tasks, (task) => {
      let section = model.task.section[task];
      while (section >= 0 && depths[section] > depth) section = model.sections[section].parent;
      return section < 0 ? `t${task}` : `s${section}`;
    });
    if (groups.length <= mostGroups && groups.length > 1) {
      return { groups, by: "section", note: `${total} tasks are too many to read: each section is one node.` };
    }
  }
  const levels = stf.levels(model);
  for (let step = 1; ; step *= 2) {
    const groups = grouped(tasks, (task) => `f${model.familyOf(task)} ${Math.floor(levels[task] / step)}`);
    if (groups.length <= mostGroups || step > model.numTasks) {
      groups.forEach((group) => (group.level = Math.floor(levels[group.tasks[0]] / step)));
      groups.sort((a, b) => a.level - b.level);
      const size = step === 1 ? "one level" : `${stf.count(step)} levels`;
      return {
        groups,
        by: "function",
        note: `${total} tasks are too many to read: a node is all tasks of one function in ${size} of the graph.`,
      };
    }
  }
};

function grouped(tasks, keyOf) {
  const found = new Map();
  for (const task of tasks) {
    const key = keyOf(task);
    if (!found.has(key)) found.set(key, { key, tasks: [] });
    found.get(key).tasks.push(task);
  }
  return [...found.values()];
}

/** The edges between groups without those that others imply, as [from, to]. Groups of the same levels have none. */
stf.edgesOf = (model, groups) => {
  const groupOf = new Map();
  groups.forEach((group, index) => group.tasks.forEach((task) => groupOf.set(task, index)));
  const before = groups.map(() => new Set());
  for (const [task, index] of groupOf) {
    for (const source of model.beforeOf(task)) {
      const from = groupOf.get(source);
      if (from === undefined || from === index) continue;
      if (groups[index].level === undefined || groups[from].level < groups[index].level) before[index].add(from);
    }
  }
  const edges = [];
  const ancestors = [];
  before.forEach((sources, index) => {
    const known = new Set();
    for (const source of [...sources].sort((a, b) => b - a)) {
      if (known.has(source)) continue;
      known.add(source);
      ancestors[source].forEach((ancestor) => known.add(ancestor));
      edges.push([source, index]);
    }
    ancestors.push(known);
  });
  return edges;
};
