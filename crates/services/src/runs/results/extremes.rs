//! What one metric came to in many runs: its least and greatest value and its last step. Runs that
//! are over are told by their digests, so that a sweep of a thousand tasks opens nobody's points;
//! only what is still written is asked for itself.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    super::{Error, Result, Runs},
    MAX_READERS,
    digest::{Digest, Metric},
};
use lyceum_curves::Store;
use lyceum_model::RunId;

/// One metric of one run, of its finite values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extremes {
    pub last_step: i64,
    pub min: f64,
    pub max: f64,
}

impl Runs {
    /// The metric's extremes in those of the runs that have it. `true` beside a run: everything
    /// of it has been read, and nobody writes any more.
    ///
    /// # Errors
    ///
    /// When the database fails, or the points of a run cannot be read.
    pub async fn extremes(&self, runs: &[(RunId, bool)], tag: &str) -> Result<HashMap<RunId, Extremes>> {
        let over: Vec<RunId> = runs.iter().filter(|(_, over)| *over).map(|(id, _)| *id).collect();
        let digests = self.digests(&over).await?;
        let mut found = HashMap::with_capacity(runs.len());
        let mut open = Vec::new();
        for (id, is_over) in runs {
            match digests.get(id).filter(|digest| *is_over && tells(digest, tag)) {
                Some(digest) => found.extend(in_digest(digest, tag).map(|extremes| (*id, extremes))),
                None => open.push(*id),
            }
        }
        let looked: Vec<(RunId, Option<Extremes>)> = stream::iter(open)
            .map(|id| async move {
                let tag = tag.to_owned();
                match self.cache.look(id, move |store| in_store(store, &tag)).await {
                    // Its job was deleted meanwhile.
                    Err(Error::NotFound) => Ok((id, None)),
                    looked => Ok::<_, Error>((id, looked?)),
                }
            })
            .buffer_unordered(MAX_READERS)
            .try_collect()
            .await?;
        found.extend(looked.into_iter().filter_map(|(id, extremes)| Some((id, extremes?))));
        Ok(found)
    }
}

impl Runs {
    /// Of those of the runs that have values which are not finite: a metric, and its first such step.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn not_finite(&self, runs: &[RunId]) -> Result<HashMap<RunId, (String, i64)>> {
        let digests = self.digests(runs).await?;
        let first = |digest: &Digest| {
            let metrics = digest.metrics.iter().filter_map(|(name, metric)| Some((name.clone(), metric.nonfinite?)));
            metrics.min_by_key(|(_, step)| *step)
        };
        Ok(digests.iter().filter_map(|(id, digest)| Some((*id, first(digest)?))).collect())
    }
}

/// Whether a digest says all there is to say of a metric: of a run with very many it has only some.
fn tells(digest: &Digest, tag: &str) -> bool {
    digest.has_all() && tag.chars().count() <= super::digest::MAX_NAME_LENGTH || of(digest, tag).is_some()
}

fn of<'a>(digest: &'a Digest, tag: &str) -> Option<&'a Metric> {
    let metrics = || digest.metrics.values();
    // As `lyceum_curves::run::Runs::curve`.
    let named =
        |metric: &&Metric| tag.strip_suffix(&*metric.tag).and_then(|run| run.strip_suffix(": ")) == Some(&metric.run);
    metrics().find(|metric| metric.tag == tag).or_else(|| metrics().find(named))
}

fn in_digest(digest: &Digest, tag: &str) -> Option<Extremes> {
    let Metric { min: Some((min, _)), max: Some((max, _)), line, .. } = of(digest, tag)? else { return None };
    Some(Extremes { last_step: line.to, min: *min, max: *max })
}

fn in_store(store: &Store, tag: &str) -> Option<Extremes> {
    let series = store.runs.curve(tag)?;
    let all = series.by_step(i64::MIN..=i64::MAX, 1).pop()?;
    let range = all.range?;
    Some(Extremes { last_step: all.last.step, min: range.min.value, max: range.max.value })
}

#[cfg(test)]
mod tests {
    use super::{super::digest::CurveOutline, *};

    fn digest(metrics: &[(&str, Option<f64>)]) -> Digest {
        let metric = |tag: &str, value: Option<f64>| Metric {
            run: ".".to_owned(),
            tag: tag.to_owned(),
            last: None,
            min: value.map(|value| (value, 3)),
            max: value.map(|value| (value + 1.0, 4)),
            line: CurveOutline { from: 0, to: 9, values: Vec::new() },
            nonfinite: None,
        };
        let metrics = metrics.iter().map(|(tag, value)| (format!("train: {tag}"), metric(tag, *value))).collect();
        Digest { metrics, ..Digest::default() }
    }

    #[test]
    fn a_digest_tells_of_the_metrics_that_it_has() {
        let few = digest(&[("loss", Some(0.5)), ("bad", None)]);
        assert_eq!(in_digest(&few, "loss"), Some(Extremes { last_step: 9, min: 0.5, max: 1.5 }));
        assert_eq!(in_digest(&few, "bad"), None, "nothing finite");
        assert_eq!(in_digest(&few, ".: loss"), in_digest(&few, "loss"), "with its directory");
        assert_eq!(in_digest(&few, "train: loss"), None, "of another directory");
        assert!(tells(&few, "bad") && tells(&few, "none"));
        assert!(!tells(&few, &"x".repeat(201)), "a long name is in no digest");
        let many: Vec<String> = (0..100).map(|n| format!("metric {n}")).collect();
        let many = digest(&many.iter().map(|tag| (tag.as_str(), Some(0.0))).collect::<Vec<_>>());
        assert!(tells(&many, "metric 7") && !tells(&many, "loss"), "there may be more than it has room for");
    }
}
