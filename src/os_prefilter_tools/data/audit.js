"use strict";
const box = document.querySelector(".find input");
const found = document.querySelector(".find output");
const parts = [...document.querySelectorAll("main > details")];
const texts = new Map();
let unfolded = null;

function textOf(row) {
  if (!texts.has(row)) {
    const heading = row.closest("main > details").querySelector("h2");
    texts.set(row, `${heading.textContent} ${row.textContent}`.toLowerCase());
  }
  return texts.get(row);
}

function find() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  unfolded ??= parts.map((part) => part.open);
  let shown = 0, all = 0;
  for (const [number, part] of parts.entries()) {
    let here = 0;
    for (const row of part.querySelectorAll("tbody > tr")) {
      row.hidden = !words.every((word) => textOf(row).includes(word));
      here += !row.hidden;
      all += 1;
    }
    shown += here;
    part.hidden = !here;
    part.open = words.length ? here > 0 : unfolded[number];
  }
  if (!words.length) unfolded = null;
  found.value = words.length ? `${shown} of ${all} rows` : "";
}

// Browsers that do not open what is folded by the style.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});

box.addEventListener("input", find);
box.parentElement.hidden = false;
document.body.classList.add("finding");
