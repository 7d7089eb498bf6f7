// The one name that the page uses of the viewer.
import { createViewer } from "./node_modules/@playcanvas/supersplat-viewer/public/index.js";

globalThis.splatbatchOpenViewer = createViewer;
