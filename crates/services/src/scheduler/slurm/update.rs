//! `scontrol update`: what the portal changes in Slurm as its own account, which must be an operator or administrator there.

use super::{
    controller::{Controller, answer},
    submit::is_unreached,
};
use crate::scheduler::{Error, Result};

impl Controller {
    /// Sets how long a job may run in all (minutes).
    pub async fn set_limit(&self, job: u32, minutes: i64) -> Result<()> {
        self.update([format!("JobId={job}"), format!("TimeLimit={minutes}")].into(), "extend its time limit").await
    }

    /// Keeps new jobs from a node, for the reason, or lets it accept jobs again.
    pub async fn set_drained(&self, node: &str, reason: Option<&str>) -> Result<()> {
        let name = format!("NodeName={node}");
        match reason {
            Some(reason) => {
                let words = vec![name, "State=DRAIN".to_owned(), format!("Reason={reason}")];
                self.update(words, "drain the node").await
            }
            None => self.update(vec![name, "State=RESUME".to_owned()], "resume the node").await,
        }
    }

    /// Changes a job or a node. `doing` goes on after “Slurm did not”.
    async fn update(&self, mut words: Vec<String>, doing: &str) -> Result<()> {
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
        let advice = if said.contains("Invalid user id") { self.advice() } else { String::new() };
        Err(Error::Refused(format!("Slurm did not {doing}: {said}.{advice}")))
    }

    /// What an administrator of Slurm does, so that it lets the portal's account change things.
    fn advice(&self) -> String {
        let account = &self.account;
        format!(
            " To allow it, make the portal’s account an administrator in Slurm: `sacctmgr modify user {account} set adminlevel=admin`."
        )
    }
}
