// Sentences: at the top of the page, one for each tab, and for screen readers.

const sentences = new Map();
let tab = "";

/** Remember a sentence for a tab, and show it there: above what does not work, not above what does. */
export function say(name, sentence) {
  sentences.set(name, sentence);
  if (name === tab) showNotice(name);
}

/** Show what there is to say about a tab. */
export function showNotice(name) {
  tab = name;
  window.playgroundSay(sentences.get(name) ?? "");
}

let soon = 0;

/** Tell a screen reader, once nothing newer has come for a moment. */
export function announce(words) {
  clearTimeout(soon);
  soon = setTimeout(() => (document.getElementById("live").textContent = words), 500);
}
