/* Runs in any browser, old ones too: says in a sentence why the playground cannot start, instead of an empty page. */
(function () {
  var started = false, waiting = false, shown = "";
  var last = ""; // a sentence that no other may replace
  window.playgroundStarted = function () {
    started = true;
    if (waiting) say(""); // it only took long
  };
  function say(sentence) {
    var notice = document.getElementById("notice");
    shown = last || sentence;
    if (!notice) return; // said when the page is there
    notice.textContent = shown;
    if (shown) notice.removeAttribute("hidden");
    else notice.setAttribute("hidden", "");
  }
  window.playgroundSay = say;
  function canRun() {
    return "noModule" in document.createElement("script") && window.Worker && window.fetch && window.PointerEvent && window.Promise &&
      Array.prototype.at && Element.prototype.replaceChildren && window.CanvasRenderingContext2D && CanvasRenderingContext2D.prototype.roundRect;
  }
  if (location.protocol === "file:") last = "A browser does not let a page from a folder load its models. Run: cautious play";
  else if (!canRun()) last = "This browser is too old for the playground. Any Chrome, Edge, Firefox or Safari since 2023 will do.";
  function failed(event) {
    if (shown) return; // the first sentence is the one that helps
    if (event.target && event.target !== window && event.target.tagName !== "SCRIPT") return; // a missing picture is no reason to stop
    if (event.filename && event.filename.indexOf(location.origin) !== 0) return; // an extension of the browser, not the page
    var error = event.error || event.reason;
    var why = error && error.message ? " (" + error.message + ")" : "";
    say((started ? "Something in the page went wrong" : "The playground did not start") + why + ". Reload the page; if that does not help, use a newer browser or install the package again.");
  }
  window.addEventListener("error", failed, true);
  window.addEventListener("unhandledrejection", failed);
  function check() {
    say(shown);
    if (last) return;
    setTimeout(function () {
      waiting = !started && !shown;
      if (waiting) say("The playground did not start. Reload the page; if that does not help, use a newer browser or install the package again.");
    }, 8000);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", check);
  else check();
})();
