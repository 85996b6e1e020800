// @ts-check
// What a tag's name says: which chart it belongs to, whether it is the training's or the
// validation's, whether less or more of it is better, and in what its steps count. Names are
// the writers' (PyTorch, Keras, Lightning, Hugging Face and one's own); nothing else is asked.

const TRAIN = new Set(["train", "training"]);
const VALIDATION = new Set(["val", "valid", "validation", "eval", "evaluation", "dev"]);
const TEST = new Set(["test", "testing"]);
/** @type {[string, Set<string>][]} */
const ROLES = [
  ["train", TRAIN],
  ["validation", VALIDATION],
  ["test", TEST],
];

function roleOf(word) {
  return ROLES.find(([, words]) => words.has(word.toLowerCase()))?.[0] ?? null;
}

// {role, name}: `train/loss`, `val_loss`, `loss/val`, `epoch_loss` of the run `validation` are
// two parts of one thing, whose name is what is left when the part's word is taken out.
export function partOf(run, tag) {
  const inRun = run.split("/").map(roleOf).find(Boolean) ?? null;
  const segments = tag.split("/");
  for (const at of segments.keys()) {
    const role = roleOf(segments[at]);
    if (role && segments.length > 1) return { role, name: segments.filter((_, other) => other !== at).join("/") };
  }
  const last = segments.at(-1);
  const words = last.split(/(?<=[a-z0-9])[_.-]|(?=[A-Z])/);
  for (const at of [0, words.length - 1]) {
    const role = words.length > 1 ? roleOf(words[at]) : null;
    if (!role) continue;
    const cut =
      at === 0
        ? last.slice(words[0].length).replace(/^[_.-]/, "")
        : last.slice(0, -words[at].length).replace(/[_.-]$/, "");
    return { role, name: [...segments.slice(0, -1), cut].join("/") };
  }
  return { role: inRun, name: tag };
}

// The name of a run without the part's word: `train` and `validation` of Keras are one run.
export function baseRun(run) {
  return run
    .split("/")
    .filter((segment) => !roleOf(segment) && segment !== ".")
    .join("/");
}

// The last word of a metric's name decides; `epoch_` and the like are writers' prefixes.
export function kindOf(name) {
  const text = name.toLowerCase();
  if (/(^|[/_.-])(lr|learning[_.-]?rate)([/_.-]|$)/.test(text) || /learningrate/.test(text)) return "rate";
  if (/loss|error|perplexity|(^|[/_.-])(mse|mae|rmse|nll|ppl|wer|cer|fid|kl|bpb|bpc)([/_.-]|$)/.test(text))
    return "loss";
  if (
    /acc(uracy)?([/_.-]|\d|$)|precision|recall|f1|(^|[/_.-])(auc|map|iou|miou|bleu|rouge|dice|r2|psnr|ssim|top\d|reward|return|score|f_?score)([/_.-]|\d|$)/.test(
      text,
    )
  )
    return "accuracy";
  return "other";
}

const KINDS = ["loss", "accuracy", "rate", "other"];

// Which end of a curve is the good one: "min", "max", or null where nobody can say.
export function bestOf(name) {
  return { loss: "min", accuracy: "max" }[kindOf(name)] ?? null;
}

export const BEST_RULE =
  "Best is the minimum of metrics named like a loss or an error, and the maximum of metrics named like an accuracy or a score.";

// Steps of one unit share a zoom: Keras counts epochs in some curves and batches in others.
export function unitOf(tag) {
  return /(^|\/)epoch_/.test(tag) && !/_vs_iterations$/.test(tag) ? "epoch" : "step";
}

// Whether a curve is shown only when asked for: Lightning's placeholder.
const isHidden = (tag, curve) => tag === "hp_metric" && curve.count <= 1;

// Charts of one thing each, from `[{run, tag, …}]`, in groups by prefix. Loss stands first,
// accuracy beside it, then learning rate; within a group by name.
export function chartsOf(curves, { pair = true } = {}) {
  const charts = new Map();
  for (const curve of curves) {
    if (isHidden(curve.tag, curve)) continue;
    const { role, name } = pair ? partOf(curve.run, curve.tag) : { role: null, name: curve.tag };
    const key = pair ? name : curve.tag;
    const unit = unitOf(curve.tag);
    const id = `${unit === "epoch" ? "epoch:" : ""}${key}`;
    if (!charts.has(id)) charts.set(id, { id, name: key, unit, kind: kindOf(key), parts: [] });
    charts.get(id).parts.push({ ...curve, role });
  }
  const order = ["train", null, "validation", "test"];
  for (const chart of charts.values()) {
    chart.parts.sort(
      (a, b) => order.indexOf(a.role) - order.indexOf(b.role) || compare(a.run, b.run) || compare(a.tag, b.tag),
    );
  }
  return grouped([...charts.values()], pair);
}

// The groups with a first one of the charts that are pinned, in the order of pinning.
export function withPinned(groups, pinned) {
  const all = new Map(groups.flatMap(({ charts }) => charts).map((chart) => [chart.id, chart]));
  const first = pinned.flatMap((id) => all.get(id) ?? []);
  if (first.length === 0) return groups;
  const others = groups.map((group) => ({ ...group, charts: group.charts.filter((chart) => !first.includes(chart)) }));
  return [{ name: "Pinned", pinned: true, charts: first }, ...others.filter(({ charts }) => charts.length > 0)];
}

const compare = (a, b) => a.localeCompare(b, "en", { numeric: true });
const rank = (chart) => KINDS.indexOf(chart.kind);

// The first group holds what has no prefix of its own; a prefix with one chart alone joins it.
// Several learning rates are a group. Where training and validation of a metric do not share a
// chart, each has a group.
function grouped(charts, pair) {
  const rates = charts.filter(({ name, kind }) => kind === "rate" && !name.includes("/")).length;
  const prefix = ({ name, kind }) => {
    const [first, ...rest] = name.split("/");
    if (rest.length === 0) return kind === "rate" && rates > 1 ? "lr" : "";
    return roleOf(first) && pair ? "" : first;
  };
  const mates = new Map();
  for (const chart of charts) mates.set(prefix(chart), (mates.get(prefix(chart)) ?? 0) + 1);
  const groups = new Map();
  for (const chart of charts) {
    const name = mates.get(prefix(chart)) > 1 ? prefix(chart) : "";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(chart);
  }
  const list = [...groups].map(([name, members]) => ({ name, charts: ordered(members) }));
  return list.sort((a, b) => (a.name === "" ? -1 : b.name === "" ? 1 : compare(a.name, b.name)));
}

// The first loss, the first accuracy beside it, the second loss …, then everything else.
function ordered(charts) {
  charts.sort((a, b) => rank(a) - rank(b) || compare(b.unit, a.unit) || depth(a) - depth(b) || compare(a.name, b.name));
  const of = (kind) => charts.filter((chart) => chart.kind === kind);
  const [losses, accuracies] = [of("loss"), of("accuracy")];
  const both = Math.max(losses.length, accuracies.length);
  const pairs = Array.from({ length: both }, (_, at) => [losses[at], accuracies[at]])
    .flat()
    .filter(Boolean);
  return [...pairs, ...of("rate"), ...of("other")];
}

const depth = (chart) => chart.name.split("/").length;
