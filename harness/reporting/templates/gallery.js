"use strict";
{% include "shared.js" %}

// Only reports of the chosen kind and profile are shown.
const form = document.getElementById("filters");
const filter = () => {
  const reports = Array.from(document.querySelectorAll("article"));
  const chosen = Array.from(form.querySelectorAll("select")).filter((box) => box.value);
  for (const one of reports) one.hidden = chosen.some((box) => one.dataset[box.name] !== box.value);
  form.querySelector("output").textContent = `${reports.filter((one) => !one.hidden).length} of ${reports.length} reports`;
};
form.addEventListener("change", filter);
form.hidden = false;
filter();
