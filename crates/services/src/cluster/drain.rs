//! Draining of nodes by operators, before a repair or after a bad test. The batch system is asked first: what it refuses
//! is not in the audit log. Work that runs on the node goes on.

use super::Cluster;
use lyceum_db as db;
use lyceum_model::{
    FieldError, Role, User,
    machines::{Machine, MachineState},
};

use super::withheld::one_line;
use crate::scheduler;

#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("node not found")]
    NotFound,
    #[error("only operators can drain nodes")]
    Forbidden,
    #[error("invalid reason")]
    Invalid(FieldError),
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Cluster {
    /// Keeps new work from a node, and returns the node. All users see the reason and the operator's name.
    pub async fn drain(&self, user: &User, node: &str, reason: &str) -> Result<Machine, DrainError> {
        self.find_node(user, node).await?;
        let reason = one_line(reason).map_err(DrainError::Invalid)?;
        self.scheduler.set_drained(node, Some(&format!("{reason} ({})", user.name))).await?;
        self.db.add_audit(self.clock.now(), user.name.as_str(), "node.drain", node, reason).await?;
        self.find_node(user, node).await?.ok_or(DrainError::NotFound)
    }

    /// Lets a node accept work again, and returns it. A node that does is left alone.
    pub async fn resume(&self, user: &User, node: &str) -> Result<Machine, DrainError> {
        let accepts =
            |machine: &Machine| matches!(machine.state, MachineState::Idle | MachineState::Mixed | MachineState::Full);
        if let Some(machine) = self.find_node(user, node).await?.filter(accepts) {
            return Ok(machine);
        }
        self.scheduler.set_drained(node, None).await?;
        self.db.add_audit(self.clock.now(), user.name.as_str(), "node.resume", node, "").await?;
        self.find_node(user, node).await?.ok_or(DrainError::NotFound)
    }

    /// Finds a node; `None` is the only machine there is, which the scheduler does not drain.
    async fn find_node(&self, user: &User, node: &str) -> Result<Option<Machine>, DrainError> {
        if user.role < Role::Operator {
            return Err(DrainError::Forbidden);
        }
        match self.scheduler.machines().await {
            Some(found) => found.machines.into_iter().find(|machine| machine.name == node).map(Some),
            None => (self.scheduler.node().await.name == node).then_some(None),
        }
        .ok_or(DrainError::NotFound)
    }
}
