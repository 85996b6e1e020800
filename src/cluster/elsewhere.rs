//! Who holds what in the batch system's queue without the portal: jobs that people handed in on
//! a shell. They are told by their Unix account. While nobody answers, what was known last
//! counts on.

use std::collections::{BTreeMap, HashMap};

use super::{Cluster, News};
use crate::{
    admission::elsewhere::Held,
    db,
    model::{UserId, queue::QueuedJob},
};

impl Cluster {
    /// Looks at the queue, and tells admission of what is not its own.
    pub(super) async fn look_elsewhere(&self, tell: &(impl Fn(News) + Send)) -> db::Result<()> {
        let Some(queue) = self.scheduler.queue().await else { return Ok(()) };
        let mut held: HashMap<UserId, Held> = HashMap::new();
        for (account, of_account) in by_account(&queue.jobs) {
            if let Some((owner, name)) = self.db.owner_of_account(account).await? {
                held.insert(owner, Held { name, ..of_account });
            }
        }
        if self.admission.elsewhere.set(held) {
            tell(News::Room);
        }
        Ok(())
    }
}

/// What runs and is not the portal's, by the account's name.
fn by_account(jobs: &[QueuedJob]) -> BTreeMap<&str, Held> {
    let mut held: BTreeMap<&str, Held> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.runs && job.session.is_none()) {
        held.entry(&job.user).or_default().add(format!("{} ({})", job.name, job.label), &job.resources);
    }
    held
}
