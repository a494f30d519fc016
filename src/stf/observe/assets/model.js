"use strict";
// The run as typed arrays, and what follows from it: who waited for whom, when what a task needs was there.
// Times are in nanoseconds since the run's first event. -1 stands for "not known".

const stf = {};

stf.TASK = 0; // kinds of spans: a body, a copy that the engine made, what CUPTI saw on a GPU
stf.COPY = 1;
stf.KERNEL = 2;
stf.MODES = { 1: "read", 2: "write", 3: "rw", 4: "accumulate" };

/** Unpack a block of the page: base64 of gzip. */
stf.unpack = async (id) => {
  const binary = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};

/** The sums of differences, as times are written. */
function summed(differences) {
  const values = new Float64Array(differences.length);
  let value = 0;
  for (let i = 0; i < values.length; i++) values[i] = value += differences[i];
  return values;
}

/** Where the values of each item begin in a flat list, from how many each has. */
function offsets(counts) {
  const found = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) found[i + 1] = found[i] + counts[i];
  return found;
}

stf.Model = class {
  constructor(page) {
    Object.assign(this, page); // title, subtitle, statistics, names, families, places, rows, data, sections, sources, failures
    this.readTasks(page.tasks);
    this.readSpans(page.spans);
    this.readOperations(page.operations);
    this.findTimes();
    this.findSuccessors();
  }

  readTasks(columns) {
    this.numTasks = columns.id.length;
    this.task = {
      id: columns.id,
      name: Int32Array.from(columns.name),
      kind: columns.kind,
      place: Int32Array.from(columns.place),
      section: Int32Array.from(columns.section),
      source: Int32Array.from(columns.source),
      submitted: summed(columns.submitted),
    };
    this.accessAt = offsets(columns.numAccesses);
    this.access = columns.accesses;
    this.beforeAt = offsets(columns.numBefore);
    this.before = new Int32Array(columns.before.length);
    for (let task = 0; task < this.numTasks; task++) {
      for (let i = this.beforeAt[task]; i < this.beforeAt[task + 1]; i++) this.before[i] = task - columns.before[i];
    }
  }

  readSpans(columns) {
    this.numSpans = columns.task.length;
    const start = summed(columns.start);
    const end = new Float64Array(this.numSpans);
    for (let i = 0; i < this.numSpans; i++) end[i] = start[i] + columns.duration[i];
    this.span = {
      task: Int32Array.from(columns.task),
      operation: Int32Array.from(columns.operation),
      name: Int32Array.from(columns.name),
      row: Int32Array.from(columns.row),
      kind: Uint8Array.from(columns.kind),
      start,
      end,
    };
  }

  readOperations(columns) {
    this.operation = { ...columns, time: summed(columns.time) };
    this.operationsOf = new Map();
    columns.task.forEach((task, index) => {
      if (task < 0) return;
      if (!this.operationsOf.has(task)) this.operationsOf.set(task, []);
      this.operationsOf.get(task).push(index);
    });
  }

  /** When each task started and ended, how long it worked, and when its inputs and its copies were there. */
  findTimes() {
    const { task, span, numTasks } = this;
    const column = (value) => new Float64Array(numTasks).fill(value);
    task.start = column(-1);
    task.end = column(-1);
    task.work = column(0);
    task.copied = column(-1);
    task.copyTime = column(0);
    task.kernelTime = column(0);
    task.kernels = new Uint32Array(numTasks);
    task.runs = new Uint32Array(numTasks);
    task.span = new Int32Array(numTasks).fill(-1);
    this.begin = 0;
    this.finish = 1;
    for (let i = 0; i < this.numSpans; i++) {
      this.finish = Math.max(this.finish, span.end[i]);
      const index = span.task[i];
      if (index < 0) continue;
      if (span.kind[i] === stf.KERNEL) {
        task.kernels[index]++;
        task.kernelTime[index] += span.end[i] - span.start[i];
        continue;
      }
      if (span.kind[i] === stf.COPY) {
        task.copied[index] = Math.max(task.copied[index], span.end[i]);
        task.copyTime[index] += span.end[i] - span.start[i];
        continue;
      }
      if (task.start[index] < 0) {
        task.start[index] = span.start[i];
        task.span[index] = i;
      }
      // parts of a grid overlap, launches of a recording don't
      task.work[index] += Math.max(0, span.end[i] - Math.max(span.start[i], task.end[index]));
      task.end[index] = Math.max(task.end[index], span.end[i]);
      task.runs[index]++;
    }
    task.inputs = column(-1);
    task.lastInput = new Int32Array(numTasks).fill(-1);
    for (let index = 0; index < numTasks; index++) {
      for (let i = this.beforeAt[index]; i < this.beforeAt[index + 1]; i++) {
        const before = this.before[i];
        if (task.end[before] > task.inputs[index]) {
          task.inputs[index] = task.end[before];
          task.lastInput[index] = before;
        }
      }
    }
  }

  findSuccessors() {
    const counts = new Uint32Array(this.numTasks);
    for (const before of this.before) counts[before]++;
    this.afterAt = offsets(counts);
    this.after = new Int32Array(this.before.length);
    const next = this.afterAt.slice();
    for (let task = 0; task < this.numTasks; task++) {
      for (const before of this.beforeOf(task)) this.after[next[before]++] = task;
    }
  }

  beforeOf(task) {
    return this.before.subarray(this.beforeAt[task], this.beforeAt[task + 1]);
  }

  afterOf(task) {
    return this.after.subarray(this.afterAt[task], this.afterAt[task + 1]);
  }

  accessesOf(task) {
    return this.access.slice(this.accessAt[task], this.accessAt[task + 1]).map((a) => ({ data: a >> 3, mode: a & 7 }));
  }

  nameOf(task) {
    return this.names[this.task.name[task]];
  }

  familyOf(task) {
    return this.familyOfName[this.task.name[task]];
  }

  siteOf(task) {
    return this.sources[this.task.source[task]].site;
  }

  spanName(span) {
    return this.names[this.span.name[span]];
  }

  /** Whether a span is work of a worker: a task, or a copy that a thread makes. A GPU makes its copies beside its tasks. */
  takesWorker(span) {
    const { kind, row } = this.span;
    return kind[span] === stf.TASK || (kind[span] === stf.COPY && this.rows[row[span]].isThread);
  }

  /** The family of a span's function, for a kernel that of its task; that of copies comes after all others. */
  spanFamily(span) {
    const { kind, task, name } = this.span;
    if (kind[span] === stf.TASK) return this.familyOfName[name[span]];
    return kind[span] === stf.KERNEL && task[span] >= 0 ? this.familyOf(task[span]) : this.families.length;
  }

  describeData(data) {
    const { name, dtype, shape, nbytes } = this.data;
    if (nbytes[data] < 0) return `${name[data]}`;
    return `${name[data]}: ${dtype[data]}[${shape[data].join(", ")}], ${stf.bytes(nbytes[data])}`;
  }

  /** What a task waited for last, in the order of `stf.CAUSES`; each is a time from `from` on. */
  partsOfWait(task, from) {
    const { submitted, inputs, copied, start } = this.task;
    const until = start[task];
    const parts = [0, 0, 0, 0];
    let now = from;
    const pass = (time, part) => {
      const next = Math.min(Math.max(time, now), until);
      parts[part] += next - now;
      now = next;
    };
    pass(inputs[task], 0);
    pass(submitted[task], 1);
    pass(copied[task], 2);
    pass(until, 3);
    return parts;
  }
};

stf.duration = (ns) => {
  const size = Math.abs(ns);
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (size >= factor * 0.9995) return `${digits(ns / factor)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
};

stf.bytes = (count) => {
  for (const [factor, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (count >= factor) return `${digits(count / factor)} ${unit}`;
  }
  return `${Math.round(count)} B`;
};

stf.percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
stf.count = (number) => number.toLocaleString("en-US");

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
