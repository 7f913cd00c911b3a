// Talking to a worker, and keeping to the newest question while it is busy with an older one.

const CANNOT_START = "The page's computations could not start. Reload the page, or use a newer browser.";

export class Client {
  constructor() {
    this.worker = new Worker(new URL("../worker.js", import.meta.url), { type: "module" });
    this.waiting = new Map();
    this.count = 0;
    this.failed = false;
    this.worker.onmessage = ({ data }) => {
      const asked = this.waiting.get(data.id);
      if (data.progress) {
        asked.onProgress?.(data.progress);
        return;
      }
      this.waiting.delete(data.id);
      if (data.error) asked.reject(new Error(data.error));
      else asked.resolve(data.answer);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.failed = true; // perhaps before the first question
      for (const asked of this.waiting.values()) asked.reject(new Error(CANNOT_START));
      this.waiting.clear();
    };
  }

  ask(kind, request = {}, onProgress = null) {
    if (this.failed) return Promise.reject(new Error(CANNOT_START));
    return new Promise((resolve, reject) => {
      const id = ++this.count;
      this.waiting.set(id, { resolve, reject, onProgress });
      this.worker.postMessage({ id, kind, ...request });
    });
  }
}

/** Calls `work` for the newest request only: what came in between while it was busy is dropped. */
export function newestOnly(work, onError) {
  let busy = false;
  let next = null;
  return async function run(request) {
    if (busy) {
      next = { request };
      return;
    }
    busy = true;
    try {
      await work(request);
    } catch (error) {
      onError(error);
    }
    busy = false;
    if (next) {
      const { request: newer } = next;
      next = null;
      run(newer);
    }
  };
}

let manifest = null;

/** What the weights folder holds. */
export function manifestOf() {
  manifest ??= (async () => {
    try {
      const response = await fetch("weights/manifest.json");
      if (response.ok) return await response.json();
    } catch {
      // said below
    }
    throw new Error("The models cannot be loaded: weights/manifest.json is not there. Reload the page, or install the package again.");
  })();
  return manifest;
}
