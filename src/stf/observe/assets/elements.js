"use strict";
// Elements of the page. Names come from the program and are only ever text: nothing here reads HTML.

/** An element: properties that begin with "on" are listeners, others are attributes; children are elements or text. */
stf.element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** The same for a picture. */
stf.svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

stf.button = (text, onclick, attributes = {}) => stf.element("button", { type: "button", onclick, ...attributes }, text);

stf.note = (text) => stf.element("p", { class: "note" }, text);

/** A word with an explanation that a pointer or the keyboard's focus shows. */
stf.explained = (text, what, attributes = {}) =>
  stf.element("span", { class: "explained", title: what, tabindex: "0", ...attributes }, text);

const ROWS_AT_FIRST = 200;

/**
 * A table that a click on a head sorts. Columns are { title, value(row), show(row), number, what }; `show` may return an
 * element. `sort` is [column, descending].
 */
stf.table = (columns, rows, { sort, onclick, caption } = {}) => {
  let [by, descending] = sort ?? [-1, false];
  let limit = ROWS_AT_FIRST;
  const head = stf.element("tr");
  const body = stf.element("tbody");
  const more = stf.button("", () => {
    limit *= 10;
    draw();
  });
  const draw = () => {
    const sorted = by < 0 ? rows : [...rows].sort((a, b) => compare(columns[by].value(a), columns[by].value(b)));
    if (by >= 0 && descending) sorted.reverse();
    body.replaceChildren(...sorted.slice(0, limit).map(rowOf));
    more.textContent = `${stf.count(limit)} of ${stf.count(rows.length)} rows; show more`;
    more.hidden = rows.length <= limit;
    head.replaceChildren(...columns.map(headOf));
  };
  const headOf = (column, index) => {
    const mark = index === by ? (descending ? " ▾" : " ▴") : "";
    const sortBy = () => {
      descending = index === by ? !descending : Boolean(column.number);
      by = index;
      draw();
    };
    const label = stf.button(column.title + mark, sortBy, { class: "head", title: column.what });
    const order = index === by ? (descending ? "descending" : "ascending") : "none";
    return stf.element("th", { scope: "col", class: column.number ? "number" : undefined, "aria-sort": order }, label);
  };
  const rowOf = (row) => {
    const cells = columns.map((column) => {
      const content = column.show ? column.show(row) : column.value(row);
      return stf.element("td", { class: column.number ? "number" : undefined }, content ?? "");
    });
    const attributes = onclick ? { class: "clickable", onclick: () => onclick(row) } : {};
    return stf.element("tr", attributes, ...cells);
  };
  draw();
  const table = stf.element("table", {}, stf.element("thead", {}, head), body);
  if (caption) table.prepend(stf.element("caption", {}, caption));
  return stf.element("div", { class: "table" }, table, more);
};

function compare(a, b) {
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** A share as a bar in front of its number. */
stf.bar = (share, text) =>
  stf.element(
    "span",
    { class: "share" },
    stf.element("i", { class: "track" }, stf.element("i", { style: `width: ${(100 * Math.min(share, 1)).toFixed(1)}%` })),
    stf.element("span", {}, text ?? stf.percent(share)),
  );

/** The colours of the theme, as canvases need them. */
stf.color = (name) => {
  const probe = document.getElementById("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};

const FUNCTION_COLORS = [
  "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1",
  "#d4a017", "#9c755f", "#5b8ff9", "#8cb43a", "#e377b2", "#2f9e8f",
]; // prettier-ignore
const COPY_COLOR = "#9aa3af";
const OTHER_COLOR = "#7d8694";

/** The colour of a family of functions: those with most time have one of their own. */
stf.familyColor = (model, family) =>
  family >= model.families.length ? COPY_COLOR : (FUNCTION_COLORS[model.rankOfFamily[family]] ?? OTHER_COLOR);

/** Ticks of an axis of time between two times: [time, text]. */
stf.ticks = (from, to, most) => {
  const rough = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough) ?? rough;
  const [factor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([size]) => to - from >= size) ?? [1, "ns"];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9));
  const found = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    found.push([time, `${(time / factor).toFixed(decimals)} ${unit}`]);
  }
  return found;
};

/** Fit a canvas to its element, in pixels of the screen; return its context in CSS pixels. */
stf.fitCanvas = (canvas, width, height) => {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
};

/** The tooltip: lines of text beside the pointer; null hides it. */
stf.showTip = (lines, event) => {
  const tip = document.getElementById("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line, index) => stf.element(index ? "span" : "b", {}, line)));
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const below = event.clientY + 16;
  const top = below + box.height > window.innerHeight ? event.clientY - box.height - 10 : below;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
};
