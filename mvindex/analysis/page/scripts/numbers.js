// Numbers as readers want them: few digits, units, a dash for what is not known.

const NONE = "\u2013";
const MINUS = "\u2212";

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function grouped(value, digits = 0) {
  if (!isNumber(value)) return NONE;
  // Halves go to the even digit, as in the sentences of the verdict.
  const shown = { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven" };
  const text = Math.abs(value).toLocaleString("en", shown);
  return value < 0 && /[1-9]/.test(text) ? MINUS + text : text;
}

/** 0.7134 as 71.3%. */
function percent(share, digits = 1) {
  return isNumber(share) ? `${grouped(share * 100, digits)}%` : NONE;
}

/** The difference of two shares in points, with its sign: +2.1. */
function points(difference) {
  if (!isNumber(difference)) return NONE;
  const text = grouped(difference * 100, 1);
  return text.startsWith(MINUS) || text === "0.0" ? text : `+${text}`;
}

/** A count with its thousands told apart. */
function count(value) {
  return grouped(value);
}

/** A count with its noun, which takes an s unless there is one. */
function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** The power of 1024 whose unit leaves at least 1 of that many bytes. */
function bytePower(value) {
  return Math.max(0, Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(Math.max(value, 1)) / 10)));
}

/** Bytes in the largest binary unit that leaves at least 1, three digits. */
function bytes(value) {
  if (!isNumber(value)) return NONE;
  const power = bytePower(value);
  const scaled = value / 1024 ** power;
  return `${grouped(scaled, power === 0 || scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)} ${BYTE_UNITS[power]}`;
}

/** Scores, cosines and the like: three decimals below 10, four significant digits above. */
function decimal(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && size < 0.0005) return value.toExponential(1).replace("-", MINUS).replace("-", MINUS);
  return grouped(value, size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0);
}

/** A setting as it was given, in at most four significant digits. */
function short(value) {
  return isNumber(value) ? String(Number(value.toPrecision(4))).replace("-", MINUS) : NONE;
}

// What follows from a kind of number: how it is shown, how on an axis, and what an axis counts in.
const PERCENT = { show: percent, tick: (value) => short(value * 100), unit: 1 };
const DECIMAL = { show: decimal, tick: short, unit: 1 };
const COUNT = { show: count, tick: shortCount, unit: 1 };

/** Bytes on an axis that reaches up to `most`, in one unit. */
function bytesUpTo(most) {
  const power = bytePower(most);
  const unit = 1024 ** power;
  return { show: bytes, tick: (value) => short(value / unit), unit, name: BYTE_UNITS[power] };
}

function shortCount(value) {
  return isNumber(value) ? value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }) : NONE;
}
