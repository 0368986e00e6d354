// A placeholder that loads the model and says so.

export function start(workerSource) {
  const read = (id) => document.getElementById(id).textContent;
  const data = JSON.parse(read("model"));
  const weights = data.steps.map((_, place) => read(`weights-${place}`));
  const script = new Blob([workerSource], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script));
  const main = document.body.appendChild(document.createElement("main"));
  worker.onmessage = ({ data }) => {
    main.textContent = JSON.stringify(data);
    main.dataset.ready = "";
  };
  worker.postMessage({ id: 0, type: "load", data, weights });
}
