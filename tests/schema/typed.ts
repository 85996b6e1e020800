// What a page in TypeScript has of the document that openapi-typescript read: answers that are always complete,
// words that are a choice, and fields that may be null. It is compiled, never run.
import type { components, paths } from "./openapi";

type Job = components["schemas"]["Job"];

export function isRunning(job: Job): boolean {
  return job.state === "running";
}

// @ts-expect-error there is no such state
export const wrong: Job["state"] = "somewhere";

export type Listed = paths["/api/v1/jobs"]["get"]["responses"][200]["content"]["application/json"]["items"][number];

export function titles(jobs: Listed[]): string[] {
  return jobs.map((job) => job.name);
}
