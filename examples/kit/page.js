"use strict";
// Without this script the page still shows everything but the dashed lines.

const summaries = [...document.querySelectorAll("summary")];

function show(details) {
  details.open = true;
  details.firstElementChild.focus();
  details.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  const at = summaries.indexOf(document.activeElement);
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: summaries.length - 1 };
  if (event.key in moves) summaries[moves[event.key]]?.focus();
  else if (event.key === "ArrowRight") summaries[at].parentElement.open = true;
  else if (event.key === "ArrowLeft") summaries[at].parentElement.open = false;
  else return;
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  const target = event.target.closest("a[href^='#']")?.getAttribute("href").slice(1);
  if (target) {
    event.preventDefault();
    show(document.getElementById(target));
  }
});

function make(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function draw() {
  const canvas = document.querySelector(".links");
  const origin = canvas.getBoundingClientRect();
  const box = (details) => details.querySelector(".bar").getBoundingClientRect();
  const lines = [];
  for (const details of document.querySelectorAll("details[data-links]")) {
    for (const id of details.dataset.links.split(" ").filter(Boolean)) {
      const linked = document.getElementById(`span-${id}`);
      if (!linked) continue;
      const [from, to] = [box(linked), box(details)];
      const [x, y] = [from.left + Math.min(from.width, 10) / 2 - origin.left, from.bottom - origin.top];
      const [endX, endY] = [to.left - origin.left, (to.top + to.bottom) / 2 - origin.top];
      const d = `M${x} ${y}C${x} ${endY} ${x} ${endY} ${endX} ${endY}`;
      lines.push(make("path", { d }), make("circle", { cx: endX, cy: endY, r: 3 }));
    }
  }
  // One write after all reads: a thousand spans would otherwise be laid out a thousand times.
  canvas.replaceChildren(...lines);
}

document.addEventListener("toggle", draw, true);
new ResizeObserver(draw).observe(document.body);
