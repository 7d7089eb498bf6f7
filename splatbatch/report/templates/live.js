// While a batch runs: what `serve` says replaces the panel; a report that has changed is loaded anew once nobody is busy.
{
  const panel = document.getElementById("live"), line = panel.querySelector("p"), rows = panel.querySelector("tbody");
  const IDLE_MS = 3000, LEAST_MS = 15000, KEPT = "splatbatch-kept", loaded = Date.now();
  let touched = 0, isNews = false;
  for (const kind of ["pointerdown", "keydown", "wheel", "input"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });

  const clock = seconds => {
    if (seconds === null) return "";
    const whole = Math.round(seconds), two = number => String(number).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  };
  const shown = (value, digits) => value === null ? "" : value.toFixed(digits);

  function row(one) {
    const tr = document.createElement("tr"), bar = document.createElement("progress");
    bar.max = Math.max(1, one.max_steps);
    bar.value = one.step;
    bar.setAttribute("aria-label", `${one.patch}: step ${one.step} of ${one.max_steps}`);
    const gpu = [one.gpu_used_mib === null ? "" : `${one.gpu_used_mib} MiB`, one.gpu_temperature_c === null ? "" : `${one.gpu_temperature_c} °C`];
    const words = [one.patch, one.phase, bar, `${one.step} of ${one.max_steps}`, shown(one.loss, 4), shown(one.psnr_covered, 2), shown(one.psnr, 2), shown(one.steps_per_s, 1), clock(one.eta_s), gpu.filter(Boolean).join(", "), one.node];
    const TEXTS = [0, 1, 2, 9, 10];
    words.forEach((word, place) => {
      const cell = tr.appendChild(document.createElement("td"));
      cell.className = TEXTS.includes(place) ? "" : "number";
      cell.append(word);
    });
    return tr;
  }

  function show(now) {
    line.textContent = `${now.line} · ${now.left} left` + (now.run ? ` · ${now.run}` : now.running.length ? "" : " · nobody is at work");
    rows.replaceChildren(...now.running.map(row));
    panel.querySelector(".table").hidden = !now.running.length;
    isNews = now.version !== panel.dataset.version;
  }

  const state = () => ({ open: all("details[open][id]").map(one => one.id), filter: document.getElementById("filter")?.value ?? "" });
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    for (const id of kept?.open ?? []) document.getElementById(id)?.setAttribute("open", "");
    const filter = document.getElementById("filter");
    if (filter && kept?.filter) { filter.value = kept.filter; filter.dispatchEvent(new Event("input")); }
    sessionStorage.removeItem(KEPT);
  } catch { /* a browser that keeps nothing: the page begins anew */ }

  setInterval(() => {
    if (!isNews || Date.now() - touched < IDLE_MS || Date.now() - loaded < LEAST_MS || document.querySelector(".scene")) return;
    try { sessionStorage.setItem(KEPT, JSON.stringify(state())); } catch { /* as above */ }
    location.reload();
  }, 1000);

  const events = new EventSource("events");
  events.addEventListener("now", event => { panel.dataset.lost = "no"; show(JSON.parse(event.data)); });
  events.addEventListener("error", () => { panel.dataset.lost = "yes"; line.textContent = "Nobody answers: `splatbatch serve` has ended, or the connection is lost. Trying again."; });
}
