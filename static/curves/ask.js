// @ts-check
// Questions to the portal: what curves there are, and many curves in one call. An answer that
// nobody waits for any more is dropped; a question that fails says so in words for people.

export class Away extends Error {
  constructor(words, status = 0) {
    super(words);
    this.status = status;
  }
}

async function asked(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { ...options, headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away("The portal is not reachable.");
  }
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Away(problem.detail ?? problem.title ?? `The portal returned status ${answer.status}.`, answer.status);
}

// Where a run and its curves are asked for: `source` is {id}.
export const addressOf = (base, { id }) => `${base}/runs/${encodeURIComponent(id)}`;

export const runOf = (base, source) => asked(addressOf(base, source));

// The run that a job's attempts write; null until something of it has been read.
export async function runOfJob(base, id) {
  const job = `${base}/jobs/${encodeURIComponent(id)}`;
  const { runs } = await asked(`${job}/metrics?limit=1`);
  return runs.length > 0 ? asked(`${job}/run`) : null;
}

// What a job made of the machine.
export const hardwareOf = (base, job) => asked(`${base}/jobs/${encodeURIComponent(job)}/hardware`);

export const metricsOf = (base, source) => asked(`${addressOf(base, source)}/metrics?limit=20000`);

export function curveOf(base, source, { run, tag }, parameters) {
  const query = new URLSearchParams({ run, ...parameters });
  return asked(`${addressOf(base, source)}/metrics/${encodeURIComponent(tag)}?${query}`);
}

// Where every point of a curve can be saved from.
export function csvAddress(base, source, { run, tag }) {
  return `${addressOf(base, source)}/metrics/${encodeURIComponent(tag)}?${new URLSearchParams({ run, format: "csv" })}`;
}

// What one call may ask for; the portal's own limits are a little above.
const MOST_CURVES = 900,
  MOST_TAGS = 190,
  MOST_BUCKETS = 450_000;

// How many tags of so many sources one call may ask for.
export function tagsOfACall(sources, points) {
  return Math.max(
    1,
    Math.min(MOST_TAGS, Math.floor(Math.min(MOST_CURVES, MOST_BUCKETS / points) / Math.max(1, sources.length * 2))),
  );
}

// The tags of some charts.
export const tagsOf = (charts) => [...new Set(charts.flatMap(({ about }) => about.parts.map(({ tag }) => tag)))];

// Charts that one call answers, in their order; one that has more tags than a call takes is by itself.
export function byCall(charts, most) {
  const calls = [];
  for (const chart of charts) {
    const last = calls.at(-1);
    if (last && tagsOf([...last, chart]).length <= most) last.push(chart);
    else calls.push([chart]);
  }
  return calls;
}

// Curves of many sources and tags, in as few calls as are allowed. `more` has from, to, points,
// x and smoothing.
export async function curvesOf(base, sources, tags, { points, ...more }, signal) {
  const share = tagsOfACall(sources, points);
  const items = [];
  for (let from = 0; from < tags.length; from += share) {
    const body = { runs: sources.map(({ id }) => id), tags: tags.slice(from, from + share), points, ...more };
    const answer = await asked(`${base}/curves`, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
      signal,
    });
    items.push(...answer.items);
  }
  return items;
}
