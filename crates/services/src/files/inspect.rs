//! What a source of images is taken for, found by a files agent as its user: the same program that
//! builds a dataset says so, without building.

use super::{Error, Files, Result, curves::broken, unexpected};
use lyceum_model::User;
use lyceum_wire::protocol::files_agent::{FilesAnswer, FilesRequest};

impl Files {
    /// Inspects the source of a specification. Returns a document of JSON, or the sentence that says why not.
    pub async fn inspect_dataset(
        &self,
        user: &User,
        spec: String,
        path: &str,
    ) -> Result<Result<String, String>, Error> {
        let pool = self.pool(user).await?;
        let mut line = self.line(&pool).await?;
        let answer = line.ask(&FilesRequest::InspectDataset { spec }).await.map_err(|err| broken(err, path))?;
        line.hang_up_well();
        match answer {
            FilesAnswer::Inspected { text, succeeded } => Ok(if succeeded { Ok(text) } else { Err(text) }),
            other => Err(unexpected(&other)),
        }
    }
}
