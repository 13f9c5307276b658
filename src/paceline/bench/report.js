// Draws the figures of the page. With ?only=ID the page is that figure alone: what the PNG export takes a picture of.
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const only = new URLSearchParams(location.search).get("only");

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line"), automargin: true };
  const result = {
    ...layout,
    paper_bgcolor: color("--page"),
    plot_bgcolor: color("--page"),
    modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: color("--quiet"), activecolor: color("--ink") },
    font: { color: color("--ink"), family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { bgcolor: color("--panel"), bordercolor: color("--line"), font: { color: color("--ink") }, align: "left" },
  };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(name)) result[name] = { ...axis, ...layout[name] };
  }
  // A finger that drags should scroll the page, not zoom the plot.
  if (matchMedia("(pointer: coarse)").matches) result.dragmode = false;
  return result;
}

function options(id) {
  return {
    responsive: true,
    displaylogo: false,
    displayModeBar: only ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { filename: id, scale: 2 },
  };
}

// What is drawn, read back from the plot itself, where a script or a test can find it.
function publishKnee(plot) {
  const knee = plot.data.find((trace) => trace.meta === "knee");
  if (!knee) return;
  plot.dataset.kneeX = knee.x[0];
  plot.dataset.kneeY = knee.y[0];
  plot.dataset.kneeLabel = knee.customdata[0];
}

function draw() {
  const drawn = figures.map((figure) => {
    const plot = document.getElementById(figure.id);
    return Plotly.react(plot, figure.traces, themed(figure.layout), options(figure.id)).then(publishKnee);
  });
  return Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = drawn.length; });
}

if (only) {
  document.body.classList.add("only");
  for (const element of document.querySelectorAll("figure")) {
    if (!element.querySelector(`[id="${CSS.escape(only)}"]`)) element.remove();
  }
  figures.splice(0, figures.length, ...figures.filter((figure) => figure.id === only));
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
