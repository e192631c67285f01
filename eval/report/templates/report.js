// Filters, overlays, keys, turns and zoom of the report. The filters live in the URL: report.html#correct=0&run=after
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const dialog = $("#zoom");

  // A live page reloads itself when its server reports another version, unless a reader has opened something.
  const version = document.body.dataset.live;
  const touched = () => document.activeElement?.closest("select, .slide") || $(".task details[open]") || dialog?.open;
  async function look() {
    try {
      const current = await (await fetch("/version")).json();
      if (current !== version && !touched()) location.reload();
    } catch { /* The server is gone: the page stays as it is. */ }
    setTimeout(look, 2000);
  }
  if (version) look();

  const form = $("#filters");
  if (!form) return;
  form.hidden = false;
  // What is scrolled to, and scenes that stay in view, begin below the filters.
  new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${form.offsetHeight}px`)).observe(form);
  const count = $("#count");
  const tasks = all(".task");
  const fields = ["correct", "faithful", "run", "differ", "bench", "category", "variant", "suspected"].filter(
    (name) => form.elements[name],
  );
  const differ = (task, by) => new Set(all(".episode", task).map((e) => e.dataset[by])).size > 1;
  const matches = {
    suspected: (episode, value) => episode.dataset.suspected.split("|").includes(value),
    differ: (episode, value) => differ(episode.closest(".task"), value),
  };

  function apply() {
    const wanted = fields.map((name) => [name, form.elements[name].value]).filter(([, value]) => value !== "");
    let shown = 0, total = 0;
    for (const task of tasks) {
      let any = false;
      for (const episode of all(".episode", task)) {
        const fits = wanted.every(([name, value]) =>
          matches[name] ? matches[name](episode, value) : episode.dataset[name] === value,
        );
        episode.hidden = !fits;
        any = any || fits;
        shown += fits;
        total += 1;
      }
      task.hidden = !any;
    }
    for (const kind of ["target", "crop", "seen"]) {
      document.body.classList.toggle("show-" + kind, form.elements["show-" + kind].checked);
    }
    const episodes = total === 1 ? "1 episode" : `${total} episodes`;
    count.textContent = shown === total ? episodes : `${shown} of ${episodes}`;
    $("#nothing").hidden = shown > 0;
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

  // A slider shows one turn of an episode, and in its scene the crops up to that turn.
  for (const episode of all(".episode")) {
    const slide = $(".slide", episode);
    if (!slide) continue;
    slide.hidden = false;
    const range = $("input", slide), turns = all("li[data-turn]", episode);
    range.addEventListener("input", () => {
      const now = Number(range.value);
      $("output", slide).textContent = now ? `${now} of ${turns.length}` : `all ${turns.length}`;
      for (const turn of turns) turn.hidden = now > 0 && Number(turn.dataset.turn) !== now;
      for (const mark of all(".scene .mark[data-turn]", episode)) {
        mark.classList.toggle("later", now > 0 && Number(mark.dataset.turn) > now);
        mark.classList.toggle("earlier", now > 0 && Number(mark.dataset.turn) < now);
      }
    });
  }

  // c and f switch a filter to its next value, r resets all.
  function turn(name) {
    const values = [...form.elements[name]].map((radio) => radio.value);
    form.elements[name].value = values[(values.indexOf(form.elements[name].value) + 1) % values.length];
    writeHash();
  }

  function go(element) {
    if (!element) return;
    element.tabIndex = -1;
    element.focus({ preventScroll: true });
    element.scrollIntoView({ block: "start" });
  }

  // j and k go to the next and the previous visible task, n and p to the next and previous episode of one outcome.
  function step(forward) {
    const visible = tasks.filter((task) => !task.hidden);
    const here = visible.indexOf(document.activeElement.closest(".task"));
    go(visible[forward ? here + 1 : here - 1]);
  }
  const outcome = (e) => [e.dataset.correct, e.dataset.faithful, e.dataset.run].join();
  let last = null;
  function same(forward) {
    const visible = all(".episode:not([hidden])").filter((e) => !e.closest(".task").hidden);
    const focused = document.activeElement;
    const here = focused.closest(".episode") ?? $(".episode:not([hidden])", focused.closest(".task") ?? visible[0]);
    const from = document.activeElement.closest(".task") ? here : last ?? null;
    if (!from) return go((last = visible[0]));
    const alike = visible.filter((e) => outcome(e) === outcome(from));
    const next = alike[alike.indexOf(from) + (forward ? 1 : -1)];
    if (next) go((last = next));
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || event.target.closest("select, textarea")) return;
    const picture = event.target.closest?.(".picture");
    if (picture && ["Enter", " "].includes(event.key)) {
      event.preventDefault();
      return open(picture);
    }
    if (event.key === "c") return turn("correct");
    if (event.key === "f") return turn("faithful");
    if (event.key === "r") return form.reset();
    if (event.key === "j" || event.key === "k") return step(event.key === "j");
    if (event.key === "n" || event.key === "p") return same(event.key === "n");
  });

  // An image at any zoom: its view box is what is shown, so boxes stay sharp.
  const stage = $(".stage", dialog), pointers = new Map();
  let image = null, whole = null, view = null, pictures = [], place = 0, pinch = null;

  function open(picture) {
    pictures = all(".picture", picture.closest(".episode"));
    dialog.showModal();
    show(pictures.indexOf(picture));
    stage.focus();
  }
  function show(number) {
    place = (number + pictures.length) % pictures.length;
    image = pictures[place].cloneNode(true);
    image.removeAttribute("style");
    image.removeAttribute("tabindex");
    stage.replaceChildren(image);
    const box = image.viewBox.baseVal;
    whole = { x: 0, y: 0, w: box.width, h: box.height };
    $("[data-do=target]", dialog).hidden = !$(".mark.target", image);
    $(".caption", dialog).textContent = `${image.getAttribute("aria-label")} (${place + 1} of ${pictures.length})`;
    fit();
  }
  const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));
  // The part of the image that the stage shows has the stage's own shape, so that all of it is used at zoom.
  function fit() {
    const { width, height } = stage.getBoundingClientRect();
    const shape = width && height ? width / height : 1;
    const w = Math.max(whole.w, whole.h * shape);
    view = { w, h: w / shape, x: (whole.w - w) / 2, y: (whole.h - w / shape) / 2 };
    fit.w = w;
    draw();
  }
  function draw() {
    if (!image) return;
    image.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    for (const label of all(".label", image)) keepSize(label, view.w / fit.w);
    $(".scale", dialog).textContent = `${Math.round((100 * fit.w) / view.w)} %`;
  }
  // Boxes grow with the image; their labels keep their size, and their distance from the box.
  function keepSize(label, size) {
    const box = $(".line", label.parentNode).getBBox(), tag = $(".tag", label).getBBox();
    const bottom = box.y + box.height;
    const from = tag.y >= bottom ? bottom : box.y;
    const x = box.x + (tag.x - box.x) * size, y = from + (tag.y - from) * size;
    label.setAttribute("transform", `translate(${x - tag.x * size} ${y - tag.y * size}) scale(${size})`);
  }
  // Keep the point at a place of the screen where it is.
  function zoom(factor, x, y) {
    const box = stage.getBoundingClientRect();
    const u = x === undefined ? 0.5 : (x - box.left) / box.width;
    const v = y === undefined ? 0.5 : (y - box.top) / box.height;
    const w = clamp(view.w / factor, fit.w / 40, fit.w), h = (w * view.h) / view.w;
    if (w === fit.w) return fit();
    view = { w, h, x: view.x + u * (view.w - w), y: view.y + v * (view.h - h) };
    move(0, 0);
  }
  function move(dx, dy) {
    view.x = view.w >= whole.w ? (whole.w - view.w) / 2 : clamp(view.x + dx, 0, whole.w - view.w);
    view.y = view.h >= whole.h ? (whole.h - view.h) / 2 : clamp(view.y + dy, 0, whole.h - view.h);
    draw();
  }
  function toTarget() {
    const box = $(".mark.target .line", image)?.getBBox();
    if (!box) return;
    fit();
    const ratio = view.h / view.w, w = clamp(3 * Math.max(box.width, box.height / ratio), fit.w / 40, fit.w);
    view = { w, h: w * ratio, x: box.x + box.width / 2 - w / 2, y: box.y + box.height / 2 - (w * ratio) / 2 };
    move(0, 0);
  }

  for (const picture of all(".episode .picture")) {
    picture.tabIndex = 0;
    picture.addEventListener("click", () => open(picture));
  }
  const actions = {
    previous: () => show(place - 1),
    next: () => show(place + 1),
    out: () => zoom(1 / 1.5),
    in: () => zoom(1.5),
    target: toTarget,
    fit,
    close: () => dialog.close(),
  };
  dialog.addEventListener("click", (event) => actions[event.target.dataset.do]?.());
  dialog.addEventListener("close", () => pictures[place]?.focus({ preventScroll: true }));
  window.addEventListener("resize", () => dialog.open && fit());
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.002), event.clientX, event.clientY);
  }, { passive: false });
  stage.addEventListener("dblclick", (event) => zoom(2, event.clientX, event.clientY));
  stage.addEventListener("pointerdown", (event) => {
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    pinch = null;
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    pointers.set(event.pointerId, event);
    const unit = view.w / stage.getBoundingClientRect().width;
    if (pointers.size === 1) return move((before.clientX - event.clientX) * unit, (before.clientY - event.clientY) * unit);
    const [a, b] = [...pointers.values()];
    const apart = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    if (pinch) zoom(apart / pinch, (a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2);
    pinch = apart;
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    stage.addEventListener(kind, (event) => {
      pointers.delete(event.pointerId);
      pinch = null;
    });
  }
  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const part = 0.15, zoomed = view.w < fit.w * 0.999;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const keys = { "+": actions.in, "=": actions.in, "-": actions.out, 0: fit, t: toTarget, n: actions.next, p: actions.previous };
    if (keys[event.key]) keys[event.key]();
    else if (arrows[event.key]) {
      const [x, y] = arrows[event.key];
      if (zoomed) move(x * part * view.w, y * part * view.h);
      else if (x) show(place + x);
    } else return;
    event.preventDefault();
  });
  readHash();
})();
