"use strict";
// Tables sort by the column whose heading is pressed; numbers from the largest, text from A; again for the other way round.
const value = (cell) => {
  const text = cell.textContent.trim();
  const number = text.replace(/,/g, "").replace(/\u2212/g, "-").match(/^[<±≤+]*\s*(-?\d+(?:\.\d+)?)/);
  return number ? Number(number[1]) : text === "–" ? Number.NEGATIVE_INFINITY : text;
};
const compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a === b ? 0 : a < b ? -1 : 1;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, "en", { numeric: true });
};
for (const head of document.querySelectorAll("thead")) {
  const body = head.parentElement.tBodies[0];
  if (!body || body.rows.length < 2) continue;
  [...head.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const rows = [...body.rows];
      const isNumeric = typeof value(rows[0].cells[column]) === "number";
      const before = cell.getAttribute("aria-sort");
      const first = isNumeric ? "descending" : "ascending";
      const other = isNumeric ? "ascending" : "descending";
      const order = before === first ? other : first;
      for (const each of head.rows[0].cells) each.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((a, b) => sign * compare(value(a.cells[column]), value(b.cells[column])));
      body.append(...rows);
    });
  });
}
