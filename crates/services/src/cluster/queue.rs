//! The queue of the batch system in front of which the portal stands: what each reader may see
//! of it, and the end of a job of one's own. A job that was handed in on a shell is as good as
//! one of the portal's; the portal's own sessions and jobs are ended as such, elsewhere.

use std::sync::Arc;

use super::Cluster;
use lyceum_db as db;
use lyceum_model::{Queue, QueueId, SessionId, User, queue::QueuedJob};

use crate::scheduler::{self, PortalUser};

/// Selects the jobs of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFilter<'a> {
    Own,
    Everybody,
    /// An account's.
    Account(&'a str),
}

/// Holds the queue as one user may see it.
#[derive(Clone, Debug)]
pub struct VisibleQueue {
    pub queue: Queue,
    /// The reader's own uid; or why they have no account on the cluster.
    pub own: Result<u32, String>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none, or it is somebody else's.
    #[error("job not found")]
    NotFound,
    /// It is this session's, or an attempt of a job.
    #[error("it was started in the portal: stop it on its own page")]
    StartedHere(SessionId),
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Cluster {
    /// What waits and runs; `None` where there is no queue. Whether the reader may ask for more
    /// than their own is the caller's to know.
    pub async fn queue(&self, user: &User, whose: QueueFilter<'_>) -> Result<Option<VisibleQueue>> {
        let Some(mut queue) = self.scheduler.queue().await else { return Ok(None) };
        let own = match self.scheduler.person(&PortalUser::from(user)).await {
            Ok(person) => Ok(person.uid),
            Err(scheduler::Error::Refused(sentence)) => Err(sentence),
            Err(other) => return Err(other.into()),
        };
        match whose {
            QueueFilter::Everybody => {}
            QueueFilter::Account(name) => queue.jobs.retain(|job| job.user == name),
            QueueFilter::Own => {
                queue.jobs.retain(|job| own.as_ref().is_ok_and(|own| *own == job.uid));
                if queue.hides.jobs {
                    // A place tells how many of the others there are.
                    queue.jobs.iter_mut().for_each(|job| Arc::make_mut(job).place = None);
                }
            }
        }
        Ok(Some(VisibleQueue { queue, own }))
    }

    /// Ends a job of this person's, as this person.
    pub async fn cancel_queued(&self, user: &User, id: QueueId) -> Result<()> {
        let queue = self.scheduler.queue().await.ok_or(Error::NotFound)?;
        if let Some(trouble) = queue.trouble {
            return Err(scheduler::Error::Unavailable(trouble).into());
        }
        let person = self.scheduler.person(&PortalUser::from(user)).await?;
        let is_it = |job: &&Arc<QueuedJob>| job.id == id && job.uid == person.uid;
        let job = queue.jobs.iter().find(is_it).ok_or(Error::NotFound)?;
        if let Some(session) = job.session {
            return Err(Error::StartedHere(session));
        }
        self.scheduler.cancel_queued(&person, id).await?;
        let (now, subject) = (self.clock.now(), id.to_string());
        Ok(self.db.add_audit(now, user.name.as_str(), "queue.cancel", &subject, &job.name).await?)
    }
}
