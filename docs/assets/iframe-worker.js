// Browsers start no workers in a page that is opened from a folder. There the script of a worker (that of the search)
// runs in a hidden frame, with the same two functions: it listens to "message" events and answers by postMessage or the property onmessage.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => (this.frame.onload = resolve));
      this.frame.srcdoc = "<!doctype html><body></body>";
      document.body.append(this.frame);
      this.ready = this.ready.then(() => this.start(url));
    }

    start(url) {
      const inside = this.frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.answer(new MessageEvent("message", { data }));
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      return load(url);
    }

    answer(event) {
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
