//! Where a model comes from and what became of it: the dataset, the model that it went on from,
//! and those that went on from it. Nobody learns by it of a model that is not shown to them.

use std::path::Path;

use serde_json::Value;

use super::{Error, Models, Result};
use lyceum_db::models::ModelFilter;
use lyceum_model::{Model, ModelId};

use crate::sessions::Actor;

/// How far back and how wide it is told.
const ANCESTORS: usize = 8;
const CHILDREN: i64 = 20;

/// The models around one, as far as they are shown to whoever asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lineage {
    /// What it went on from, the first of all first, each with the snapshot that was taken.
    pub ancestors: Vec<(Model, String)>,
    /// What went on from it, the latest first.
    pub children: Vec<Model>,
}

impl Models {
    /// Which model, and which snapshot of it, a configuration goes on from; nothing where that is
    /// a file of any other origin.
    pub(super) async fn parent(&self, actor: Actor<'_>, config: &Value) -> Result<Option<(ModelId, String)>> {
        let Some((directory, file)) = config["network"]["pretrained"].as_str().and_then(snapshot_in) else {
            return Ok(None);
        };
        let Some(found) = self.db.find_model_in(directory).await? else { return Ok(None) };
        match self.find(actor, found.id).await {
            Ok(parent) => Ok(Some((parent.id, file.to_owned()))),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is around a model.
    pub async fn lineage(&self, actor: Actor<'_>, model: &Model) -> Result<Lineage> {
        let mut ancestors: Vec<(Model, String)> = Vec::new();
        let mut next = model.parent.clone();
        while let Some((id, file)) = next.take().filter(|_| ancestors.len() < ANCESTORS) {
            match self.find(actor, id).await {
                Ok(found) => {
                    next.clone_from(&found.parent);
                    ancestors.push((found, file));
                }
                // It is gone, or not shown.
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        ancestors.reverse();
        let of_it = ModelFilter {
            viewer: actor.user.id,
            own: false,
            dataset: None,
            parent: Some(model.id),
            find: "",
            sort: None,
            before: None,
            limit: CHILDREN,
        };
        Ok(Lineage { ancestors, children: self.list(of_it).await?.into_iter().map(|(child, _)| child).collect() })
    }
}

/// The directory of a training and the file of its snapshot: `DIRECTORY/checkpoints/FILE`.
fn snapshot_in(path: &str) -> Option<(&str, &str)> {
    let file = Path::new(path);
    let folder = file.parent()?;
    let directory = folder.parent()?.to_str()?;
    let fits = path.starts_with('/') && folder.file_name()? == "checkpoints" && directory != "/";
    fits.then_some((directory, file.file_name()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_trainings_and_other_files() {
        let path = "/home/ada/runs/x/checkpoints/epoch-00003.keras";
        assert_eq!(snapshot_in(path), Some(("/home/ada/runs/x", "epoch-00003.keras")));
        for other in ["", "/", "x.keras", "/home/ada/x.keras", "runs/x/checkpoints/a.keras", "/checkpoints/a.keras"] {
            assert_eq!(snapshot_in(other), None, "{other}");
        }
    }
}
