// On the first page, where there is room and a server: the playground itself, in place of its picture.
(() => {
  const stage = document.getElementById("stage");
  if (!stage || !location.protocol.startsWith("http") || !matchMedia("(min-width: 940px)").matches) return;
  const frame = document.createElement("iframe");
  frame.title = "The playground";
  frame.src = stage.querySelector("a").href;
  const follow = () => {
    const page = frame.contentDocument;
    if (!page?.documentElement) return;
    page.documentElement.classList.add("embedded");
    page.documentElement.dataset.theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
    page.dispatchEvent(new Event("look"));
  };
  frame.addEventListener("load", follow);
  new MutationObserver(follow).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  stage.replaceChildren(frame);
})();
