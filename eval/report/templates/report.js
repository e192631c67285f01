// Filters, overlays and keys of the report. The state lives in the URL: report.html#correct=0&faithful=1&run=after
(() => {
  "use strict";
  // A live page reloads itself when its server reports another version, unless a reader has opened something.
  const version = document.body.dataset.live;
  const touched = () => document.activeElement?.closest("select") || document.querySelector(".task details[open]");
  async function look() {
    try {
      const current = await (await fetch("/version")).json();
      if (current !== version && !touched()) location.reload();
    } catch { /* The server is gone: the page stays as it is. */ }
    setTimeout(look, 2000);
  }
  if (version) look();

  const form = document.getElementById("filters");
  if (!form) return;
  const count = document.getElementById("count");
  const tasks = [...document.querySelectorAll(".task")];
  const fields = ["correct", "faithful", "run", "differ", "bench", "category", "variant", "suspected"].filter(
    (name) => form.elements[name],
  );
  const differ = (task, by) => new Set([...task.querySelectorAll(".episode")].map((e) => e.dataset[by])).size > 1;
  const matches = {
    suspected: (episode, value) => episode.dataset.suspected.split("|").includes(value),
    differ: (episode, value) => differ(episode.closest(".task"), value),
  };

  function apply() {
    const wanted = fields.map((name) => [name, form.elements[name].value]).filter(([, value]) => value !== "");
    let shown = 0, all = 0;
    for (const task of tasks) {
      let any = false;
      for (const episode of task.querySelectorAll(".episode")) {
        const fits = wanted.every(([name, value]) =>
          matches[name] ? matches[name](episode, value) : episode.dataset[name] === value,
        );
        episode.hidden = !fits;
        any = any || fits;
        shown += fits;
        all += 1;
      }
      task.hidden = !any;
    }
    for (const kind of ["target", "crop"]) {
      document.body.classList.toggle("show-" + kind, form.elements["show-" + kind].checked);
    }
    count.textContent = shown === all ? `${all} episodes` : `${shown} of ${all} episodes`;
    document.getElementById("nothing").hidden = shown > 0;
  }

  function readHash() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const name of fields) {
      const value = state.get(name) ?? "";
      const values = [...(form.elements[name].options ?? form.elements[name])].map((option) => option.value);
      form.elements[name].value = values.includes(value) ? value : "";
    }
    apply();
  }

  function writeHash() {
    const state = new URLSearchParams();
    for (const name of fields) if (form.elements[name].value) state.set(name, form.elements[name].value);
    history.replaceState(null, "", "#" + state);
    apply();
  }

  form.addEventListener("change", writeHash);
  form.addEventListener("reset", () => setTimeout(writeHash));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", readHash);

  // c and f switch a filter to its next value, r resets all.
  function turn(name) {
    const values = [...form.elements[name]].map((radio) => radio.value);
    form.elements[name].value = values[(values.indexOf(form.elements[name].value) + 1) % values.length];
    writeHash();
  }

  // j and k go to the next and the previous visible task.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, textarea")) return;
    if (event.key === "c") return turn("correct");
    if (event.key === "f") return turn("faithful");
    if (event.key === "r") return form.reset();
    if (!["j", "k"].includes(event.key)) return;
    const visible = tasks.filter((task) => !task.hidden);
    const here = visible.indexOf(document.activeElement.closest(".task"));
    const next = visible[event.key === "j" ? here + 1 : here - 1];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
  });
  readHash();
})();
