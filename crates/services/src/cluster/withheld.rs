//! GPUs that operators keep from new work: after a critical verdict, before a repair. What holds such a GPU already
//! keeps it. The last look at the GPUs is corrected at once; the next one reads the table.

use std::sync::Arc;

use super::Cluster;
use lyceum_db::{self as db, audit::Entry};
use lyceum_model::{
    FieldError, Role, User,
    gpus::{Condition, Obstacle, WithheldGpu},
};

use crate::admission::Bar;

/// The longest reason (characters).
const MAX_REASON_LENGTH: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum WithholdError {
    #[error("GPU not found")]
    NotFound,
    #[error("only operators can hold GPUs")]
    Forbidden,
    #[error("invalid reason")]
    Invalid(FieldError),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Cluster {
    /// Keeps a GPU from new work, with the reason.
    pub async fn withhold(&self, user: &User, uuid: &str, reason: &str) -> Result<WithheldGpu, WithholdError> {
        self.may_withhold(user, uuid)?;
        let reason = one_line(reason).map_err(WithholdError::Invalid)?;
        let (at, by) = (self.clock.now(), user.name.to_string());
        let one = WithheldGpu { uuid: uuid.to_owned(), reason: reason.to_owned(), by: by.clone(), at };
        let noted = Entry { at, actor: &by, action: "gpu.hold", subject: uuid, detail: reason };
        self.db.withhold_gpu(&one, &noted).await?;
        self.correct(uuid, Some(&one));
        Ok(one)
    }

    /// Gives a GPU to new work again; one that was not withheld is fine.
    pub async fn release(&self, user: &User, uuid: &str) -> Result<(), WithholdError> {
        self.may_withhold(user, uuid)?;
        let by = user.name.as_str();
        let noted = Entry { at: self.clock.now(), actor: by, action: "gpu.release", subject: uuid, detail: "" };
        if self.db.release_gpu(uuid, &noted).await? {
            self.correct(uuid, None);
        }
        Ok(())
    }

    fn may_withhold(&self, user: &User, uuid: &str) -> Result<(), WithholdError> {
        if user.role < Role::Operator {
            return Err(WithholdError::Forbidden);
        }
        let is_there = self.scheduler.stock().inventory().gpus.iter().any(|gpu| gpu.uuid == uuid);
        if is_there { Ok(()) } else { Err(WithholdError::NotFound) }
    }

    /// Corrects what the last look said. A GPU that is given back is blocked until the next look, which wakes those
    /// that wait for it.
    fn correct(&self, uuid: &str, withheld: Option<&WithheldGpu>) {
        let mut view = self.view.write();
        let Some(gpu) = Arc::make_mut(&mut view).gpus.iter_mut().find(|view| view.gpu.uuid == uuid) else { return };
        gpu.withheld = withheld.cloned();
        match gpu.obstacle {
            _ if matches!(gpu.condition, Condition::Down(_)) => {}
            None | Some(Obstacle::Outside) if withheld.is_some() => gpu.obstacle = Some(Obstacle::Withheld),
            Some(Obstacle::Withheld) if withheld.is_none() => gpu.obstacle = None,
            _ => {}
        }
        if let Some(obstacle) = gpu.obstacle.filter(|_| withheld.is_some()) {
            self.admission.blocked_gpus.add(uuid, Bar { obstacle, is_held: gpu.is_held });
        }
    }
}

/// Checks the reason for which a GPU or a node is kept from new work.
pub(super) fn one_line(reason: &str) -> Result<&str, FieldError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > MAX_REASON_LENGTH || reason.contains(char::is_control) {
        let message = format!("Give a reason in one line of at most {MAX_REASON_LENGTH} characters.");
        return Err(FieldError::new("reason", "malformed", message));
    }
    Ok(reason)
}
