"use strict";
const scene = JSON.parse(document.getElementById("scene").textContent);
const stage = document.getElementById("stage"), bar = document.querySelector("#bar span");
if (innerWidth <= 600) document.getElementById("about").open = false;
const EFFECTS = ["sharpness", "bloom", "grading", "vignette", "fringing"];

// the viewer's angle is that of its longer side, a photograph's that of its height
const along = high => {
  const aspect = Math.max(1, stage.clientWidth / stage.clientHeight);
  return Math.atan(Math.tan(high * Math.PI / 360) * aspect) * 360 / Math.PI;
};
const pose = given => ({
  initial: { position: given.slice(0, 3), target: given.slice(3, 6), fov: given[6] ? along(given[6]) : 60 },
});
const settings = {
  version: 2, tonemapping: "none", highPrecisionRendering: false, background: { color: scene.sky }, animTracks: [],
  startMode: "default", cameras: scene.start ? [pose(scene.start)] : [],
  annotations: [...scene.patches, ...scene.photos].map(one => ({
    position: one.view.slice(3, 6), title: one.name, text: "", camera: pose(one.view),
  })),
  postEffectSettings: Object.fromEntries(EFFECTS.map(name => [name, { enabled: false }])),
};

const packed = document.getElementById("splat");
const bytes = template => Uint8Array.from(atob(template.content.textContent), letter => letter.charCodeAt(0));

async function unpackViewer() {
  const template = document.getElementById("viewer");
  if (!template) return;
  const stream = new Blob([bytes(template)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

// where the camera stands on the map, and where north is from there; both are asked of the viewer as it draws
function follow(viewer) {
  const plan = document.getElementById("plan"), here = plan.querySelector(".here"), needle = document.querySelector("#compass g");
  const [right, ahead] = scene.plan, unit = +plan.dataset.unit;
  const dot = (one, other) => one.reduce((sum, value, index) => sum + value * other[index], 0);
  viewer.app.on("frameend", () => {
    const camera = viewer.app.root.findComponent("camera")?.entity;
    if (!camera) return;
    const at = camera.getPosition(), to = camera.forward, place = [at.x, at.y, at.z], forward = [to.x, to.y, to.z];
    const x = unit * (dot(place, right) - plan.dataset.left), y = unit * (plan.dataset.top - dot(place, ahead));
    const heading = Math.atan2(dot(forward, right), dot(forward, ahead)) * 180 / Math.PI;
    const box = plan.viewBox.baseVal, inside = (value, most) => Math.min(Math.max(value, 4), most - 4);
    here.setAttribute("transform", `translate(${inside(x, box.width)} ${inside(y, box.height)}) rotate(${heading})`);
    needle?.setAttribute("transform", `rotate(${-heading})`);
    stage.dataset.heading = heading.toFixed(1);
  });
}

async function open() {
  await unpackViewer();
  const content = packed
    ? { contentUrl: "data:,", contentFilename: scene.content, contents: Promise.resolve(new Response(bytes(packed))) }
    : { contentUrl: scene.content };
  const viewer = await globalThis.splatbatchOpenViewer({
    container: stage, settings, ui: false, noanim: true, renderer: "webgl", ...content,
  });
  viewer.events.on("progress:changed", progress => { bar.style.width = `${progress}%`; });
  const shown = () => {
    if (scene.rotation) {
      viewer.app.root.findComponents("gsplat").forEach(part => part.entity.setLocalRotation(...scene.rotation));
      viewer.app.renderNextFrame = true;
    }
    bar.parentElement.hidden = true;
    stage.dataset.shown = "yes";
    document.querySelectorAll("#plan .patch").forEach(patch => {
      const go = () => viewer.selectAnnotation(+patch.dataset.patch);
      patch.addEventListener("click", go);
      patch.addEventListener("keydown", event => { if (event.key === "Enter") go(); });
    });
    document.querySelector("#photo select")?.addEventListener("change", event => {
      const chosen = event.target.value, picture = document.querySelector("#photo img");
      picture.hidden = chosen === "";
      if (chosen === "") return;
      picture.src = scene.photos[chosen].url;
      viewer.selectAnnotation(scene.patches.length + +chosen);
    });
    document.getElementById("back").addEventListener("click", () => viewer.resetCamera());
  };
  follow(viewer);
  if (viewer.state.loaded) shown(); else viewer.events.once("loaded:changed", shown);
}

open().catch(error => {
  document.getElementById("said").textContent = `This browser cannot show it: ${error.message}`;
});
