// Light or dark: as the system has it, until the button is used.
const root = document.documentElement;
const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
system.addEventListener("change", label);
label();
theme.hidden = false;

// What is wider than its place says so, and fades out where it goes on.
const mark = (one) => {
  one.classList.toggle("cut", one.scrollWidth > one.clientWidth + 1);
  one.classList.toggle("more", one.scrollWidth > one.clientWidth + one.scrollLeft + 1);
};
const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => mark(target)));
for (const one of document.querySelectorAll(".scroll, .wide")) {
  watch.observe(one);
  one.addEventListener("scroll", () => mark(one), { passive: true });
}
