// The colour of a weight: a scale with evenly changing lightness (OKLab, Björn Ottosson 2020), which
// is readable for colour-blind people and in greyscale. Zero is the background, light or dark.

export const TICKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]; // weights in the legend, at their roots

export function tickText(weight) {
  return `${weight}`.replace(/^0\./, ".");
}

// 256 colours as canvas pixels, one per byte of a map. A byte is the square root of a weight.
export function scale(dark) {
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    const t = byte / 255;
    const chroma = 0.18 * Math.sin(Math.PI * t);
    return dark
      ? oklch(0.17 + 0.79 * t, chroma, 165 * t - 75)
      : oklch(0.985 - 0.76 * t, chroma, 90 - 165 * t);
  });
}

// 511 colours of differences: purple for -1, the background for 0, green for 1, of equal lightness on
// both sides. Both are told apart in all kinds of colour blindness.
export function diverging(dark) {
  return Uint32Array.from({ length: 511 }, (_, i) => {
    const t = Math.abs(i - 255) / 255;
    const chroma = 0.19 * Math.sin((Math.PI / 2) * Math.min(1, 1.5 * t)) * (1 - 0.3 * t);
    return oklch(dark ? 0.17 + 0.68 * t : 0.985 - 0.62 * t, chroma, i < 255 ? 320 : 155);
  });
}

// Later tokens in a causal map: a grey that no weight has.
export function future(dark) {
  return dark ? oklch(0.31, 0.01, 270) : oklch(0.91, 0.005, 270);
}

export function css(pixel) {
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

function oklch(lightness, chroma, degrees) {
  const a = chroma * Math.cos((degrees * Math.PI) / 180);
  const b = chroma * Math.sin((degrees * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const channels = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = channels.map((value) => {
    const linear = Math.min(1, Math.max(0, value));
    const gamma = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.round(255 * gamma);
  });
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
