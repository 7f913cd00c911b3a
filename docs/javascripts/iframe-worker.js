// Lets the search work where the site is opened as files. Browsers refuse to start a Worker from a file:// page, so this one runs
// the worker's script in a hidden frame. The theme's search worker looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      // Within a worker, postMessage sends to whoever started it.
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      // Messages that are sent before the script has loaded wait for it.
      this.inside = new Promise(loaded => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => loaded(inside)
        inside.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", {data})))
    }
  }
  window.Worker = window.IFrameWorker
}
