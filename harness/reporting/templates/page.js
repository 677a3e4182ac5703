"use strict";
{% include "shared.js" %}

// Drawings are compressed, as they are most of a page.
for (const image of document.querySelectorAll("img[data-svg]")) {
  const packed = Uint8Array.from(atob(image.dataset.svg), (character) => character.charCodeAt(0));
  const drawing = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  new Response(drawing).text().then((svg) => {
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  });
}

// Sorting: a click on the head of a column, or Enter or Space on it, orders the rows; once more turns the order round.
// Cells that begin with a number, or with ≈ and one, are ordered by it; others follow by their text, and empty ones come
// last both ways.
const keyOf = (cell) => {
  const text = cell ? cell.textContent.trim().replace(/^≈ /, "") : "";
  const number = /^([-+−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?:\^(-?\d+))?(?=$|[\s%†(\[,])/i.exec(text);
  if (number) {
    const base = parseFloat(number[1].replace(/,/g, "").replace("−", "-"));
    return [0, number[2] ? base ** parseFloat(number[2]) : base];
  }
  return text === "" || text === "–" ? [2, 0] : [1, text];
};
const compare = (one, other) =>
  typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
const sort = (head) => {
  const table = head.closest("table");
  const column = head.cellIndex;
  const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  const sign = order === "ascending" ? 1 : -1;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const rows = Array.from(table.tBodies[0].rows, (row) => [keyOf(row.cells[column]), row]);
  rows.sort(([one], [other]) => one[0] - other[0] || sign * compare(one[1], other[1]));
  table.tBodies[0].append(...rows.map(([, row]) => row));
};
for (const button of document.querySelectorAll("thead button")) {
  button.title = "Sort by this column";
  button.addEventListener("click", () => sort(button.parentElement));
}

// A narrow window has the sections in a menu that opens; a wide one shows them all.
const menu = document.getElementById("menu");
const narrow = matchMedia("(max-width: 44rem)");
const fold = () => { menu.open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();

// A link into a folded section opens it, and so does printing.
const reveal = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.querySelector(":scope > details");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
};
menu.addEventListener("click", (event) => { if (event.target.closest("a") && narrow.matches) menu.open = false; });
document.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) setTimeout(reveal); });
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
reveal();
