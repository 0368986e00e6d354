// Questions to the worker, in which the model runs, and its answers.

export class Asking {
  constructor(address) {
    this.worker = new Worker(address);
    this.waiting = new Map();
    this.last = 0;
    this.worker.onmessage = ({ data }) => this.#answered(data);
    this.worker.onerror = ({ message }) => this.#failed(new Error(message));
  }

  // The answer, or null if a newer question has taken its place. each(part): of an answer that comes
  // part by part.
  ask(type, body, each = () => {}) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      if (this.error) return reject(this.error);
      this.waiting.set(id, { resolve, reject, each });
      this.worker.postMessage({ id, type, ...body });
    });
  }

  #answered({ id, ...answer }) {
    const asked = this.waiting.get(id);
    if (!asked) return;
    if (answer.part) return asked.each(answer);
    this.waiting.delete(id);
    if (answer.error) asked.reject(new Error(answer.error));
    else asked.resolve(answer.cancelled ? null : answer);
  }

  #failed(error) {
    this.error = error;
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}
