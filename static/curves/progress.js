// @ts-check
// How far a run is and when it ends: a speed from a sliding window of what was written last,
// and a total from what the program itself says of its hyper-parameters. Where either is
// missing nothing is promised.

const STEPS = [
  "total_steps",
  "max_steps",
  "num_steps",
  "num_train_steps",
  "train_steps",
  "steps",
  "max_iters",
  "num_iterations",
  "iterations",
];
const EPOCHS = ["epochs", "num_epochs", "max_epochs", "num_train_epochs", "total_epochs", "n_epochs"];

const positive = (value) => (Number(value) > 0 && Number.isFinite(Number(value)) ? Number(value) : null);

function first(hparams, names) {
  for (const [name, value] of Object.entries(hparams)) {
    const last = name.toLowerCase().replace(/.*[./]/, "");
    if (names.includes(last) && positive(value) !== null) return positive(value);
  }
  return null;
}

// {unit, done, total}: `tags` are summaries of all curves of one run. Steps count from 0, and
// so do Keras's epochs; a curve named `epoch` says how many steps one takes.
export function extentOf(hparams, tags) {
  const steps = tags.filter((tag) => !/(^|\/)epoch_/.test(tag.tag));
  const last = Math.max(...steps.map((tag) => tag.last_step), -1);
  const total = first(hparams, STEPS);
  if (total !== null && last >= 0) return { unit: "step", done: last, total };
  const epochs = first(hparams, EPOCHS);
  if (epochs === null) return last >= 0 ? { unit: "step", done: last, total: null } : epochsAlone(tags, null);
  const counter = steps.find((tag) => /(^|\/)epoch$/.test(tag.tag) && tag.last > 0 && tag.last_step > 0);
  if (counter) return { unit: "step", done: last, total: Math.round((counter.last_step / counter.last) * epochs) };
  return epochsAlone(tags, epochs) ?? { unit: "step", done: last, total: null };
}

function epochsAlone(tags, total) {
  const last = Math.max(...tags.filter((tag) => /(^|\/)epoch_/.test(tag.tag)).map((tag) => tag.last_step), -1);
  return last < 0 ? null : { unit: "epoch", done: last + 1, total };
}

// Steps a second over the window [[step, wall time], …], oldest first; null where it says nothing.
export function speed(window) {
  if (window.length < 2) return null;
  const [[fromStep, from], [toStep, to]] = [window[0], window.at(-1)];
  return toStep > fromStep && to > from ? (toStep - fromStep) / (to - from) : null;
}

// Keeps what is younger than `seconds` before the newest, and at least two points.
export function slide(window, point, seconds) {
  const kept = window.length > 0 && point[0] < window.at(-1)[0] ? [] : window;
  const all = [...kept, point];
  const oldest = all.findIndex(([, wall]) => wall >= point[1] - seconds);
  return all.slice(Math.max(0, Math.min(oldest, all.length - 2)));
}

// {share, rate, endsAt, quiet}: share from 0 to 1 or null; `endsAt` in seconds since 1970; and
// for how long nothing has come, where that is much longer than usual.
export function tell({ done, total }, window, now) {
  const rate = speed(window);
  const share = total ? Math.min(1, done / total) : null;
  const last = window.at(-1);
  const silence = last ? now - last[1] : 0;
  const usual = window.length > 1 ? (last[1] - window[0][1]) / (window.length - 1) : Infinity;
  const quiet = silence > Math.max(30, usual * 5) ? silence : null;
  const endsAt = rate && total && done < total && quiet === null ? last[1] + (total - done) / rate : null;
  return { share, rate, endsAt, quiet };
}
