/* Runs in any browser, old ones too: says in a sentence why the playground cannot start, instead of an empty page. */
(function () {
  var started = false, waiting = false;
  window.playgroundStarted = function () {
    started = true;
    if (waiting) document.getElementById("notice").setAttribute("hidden", ""); // it only took long
  };
  function say(sentence) {
    var notice = document.getElementById("notice");
    if (!notice) return;
    notice.textContent = sentence;
    notice.removeAttribute("hidden");
  }
  window.playgroundSay = say;
  function check() {
    if (location.protocol === "file:") {
      say("A browser does not let a page from a folder load its models. Run: cautious play");
    } else if (!("noModule" in document.createElement("script")) || !window.Worker || !window.fetch || !window.PointerEvent) {
      say("This browser is too old for the playground. Any Chrome, Edge, Firefox or Safari since 2023 will do.");
    } else {
      setTimeout(function () {
        waiting = !started;
        if (waiting) say("The playground did not start. Reload the page; if that does not help, use a newer browser or install the package again.");
      }, 8000);
    }
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", check);
  else check();
})();
