// Colours and canvases that follow the theme and the screen.

/** The value of one of the style sheet's variables. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A canvas as sharp as the screen; returns its context and its size in CSS pixels. */
export function sharp(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** What a caution means, in words. */
export function cautionWords(caution) {
  if (caution < 0.005) return "acts as usual";
  if (caution < 0.35) return "a little careful";
  if (caution < 0.75) return "careful";
  return "acts differently: it does not know";
}

/** "#rrggbb" as [r, g, b]. */
export function rgb(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** Mark one of a group of radio buttons, which arrow keys walk through. */
export function radios(group, onChoose) {
  const buttons = [...group.querySelectorAll("button")];
  const choose = (button) => {
    for (const other of buttons) {
      other.setAttribute("aria-checked", String(other === button));
      other.tabIndex = other === button ? 0 : -1;
    }
    onChoose(button);
  };
  buttons.forEach((button, number) => {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = buttons[(number + step + buttons.length) % buttons.length];
      next.focus();
      choose(next);
    });
  });
}
