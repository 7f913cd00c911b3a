// A picture that says everything by itself: what was drawn, a sentence, and the dial with the answer at each level.

import { colour } from "./look.js";

const [WIDTH, HEIGHT] = [1200, 630];
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** @param {{picture: HTMLCanvasElement, sentence: string, answers: string[], ring: number[], place: number}} what */
export function pictureOf({ picture, sentence, answers, ring, place }) {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const c = canvas.getContext("2d");
  const box = (name, ...at) => {
    c.fillStyle = colour(name);
    c.beginPath();
    c.roundRect(...at, 20);
    c.fill();
  };
  const write = (text, size, weight, name, x, y) => {
    c.font = `${weight} ${size}px ${FONT}`;
    c.fillStyle = colour(name);
    c.fillText(text, x, y);
  };
  c.fillStyle = colour("paper");
  c.fillRect(0, 0, WIDTH, HEIGHT);
  box("card", 50, 50, 400, 400);
  c.imageSmoothingEnabled = false;
  c.drawImage(picture, 70, 70, 360, 360);
  c.font = `700 40px ${FONT}`;
  wrapped(c, sentence, 650).slice(0, 5).forEach((line, i) => write(line, 40, 700, "ink", 500, 92 + 50 * i));
  [["Ordinary", "ordinary"], ["Cautious", "cautious"]].forEach(([title, name], i) => {
    box("card", 500 + 335 * i, 330, 315, 120);
    box(i ? "cautious-fill" : "ordinary", 500 + 335 * i, 330, 315, 8);
    write(title, 22, 600, name, 522 + 335 * i, 374);
    write(answers[i], 38, 730, name, 522 + 335 * i, 424);
  });
  const step = 1100 / ring.length;
  ring.forEach((caution, i) => {
    c.fillStyle = colour("ordinary");
    c.fillRect(50 + step * i, 492, step - 4, 26);
    c.globalAlpha = caution;
    c.fillStyle = colour("cautious-fill");
    c.fillRect(50 + step * i, 492, step - 4, 26);
    c.globalAlpha = 1;
  });
  c.strokeStyle = colour("ink");
  c.lineWidth = 4;
  c.strokeRect(48 + step * place, 488, step, 34);
  write("all models count: ordinary", 20, 600, "ordinary", 50, 552);
  c.textAlign = "right";
  write(`only the worst of ${ring.length} counts: cautious`, 20, 600, "cautious", 1150, 552);
  c.textAlign = "left";
  write("cautious", 24, 730, "ink", 50, 598);
  write("blue: the ordinary answer, orange: another one, at each level of the dial", 20, 400, "soft", 170, 598);
  return canvas;
}

function wrapped(context, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

export function download(canvas, name) {
  canvas.toBlob((blob) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}
