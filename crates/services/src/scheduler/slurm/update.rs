//! `scontrol update`: what the portal changes in Slurm as its own account, which must be an operator or administrator there.

use std::fmt::Write as _;

use super::{
    controller::{Controller, answer},
    submit::is_unreached,
};
use crate::scheduler::{Error, Result};

impl Controller {
    /// Sets how long a job may run in all (minutes).
    pub async fn set_limit(&self, job: u32, minutes: i64) -> Result<()> {
        self.update(
            [format!("JobId={job}"), format!("TimeLimit={minutes}")].into(),
            "extend its time limit",
            "operator",
        )
        .await
    }

    /// Keeps new jobs from a node, for the reason, or lets it accept jobs again.
    pub async fn set_drained(&self, node: &str, reason: Option<&str>) -> Result<()> {
        let name = format!("NodeName={node}");
        match reason {
            Some(reason) => {
                let words = vec![name, "State=DRAIN".to_owned(), format!("Reason={reason}")];
                self.update(words, "drain the node", "admin").await
            }
            None => self.update(vec![name, "State=RESUME".to_owned()], "resume the node", "admin").await,
        }
    }

    /// Changes a job or a node. `doing` goes on after “Slurm did not”; `level` is what the portal's account must be in
    /// Slurm.
    async fn update(&self, mut words: Vec<String>, doing: &str, level: &str) -> Result<()> {
        words.insert(0, "update".to_owned());
        let ran = self.ask("scontrol", words).await.map_err(Error::Unavailable)?;
        let is_unanswered = ran.status.is_none();
        let said = match answer(ran) {
            Ok(_nothing) => {
                self.nudge();
                return Ok(());
            }
            Err(said) => said,
        };
        if is_unanswered || is_unreached(&said) {
            return Err(Error::Unavailable(format!("Slurm did not {doing}: {said}")));
        }
        let mut sentence = format!("Slurm did not {doing}: {said}.");
        if said.contains("Invalid user id") {
            let account = &self.account;
            let _ = write!(
                sentence,
                " To allow it, give the portal’s account `{account}` the `adminlevel={level}` in Slurm."
            );
        }
        Err(Error::Refused(sentence))
    }
}
