//! The Unix accounts of this machine: found by the name service, made by the helper on first need, or the portal's own
//! where it is not root. Errands on files go through the helper too.

use std::time::Duration;

use async_trait::async_trait;

use super::{Local, blocking, unexpected};
use crate::scheduler::{Account, Accounts, Error, Person, PortalUser, Result};
use lyceum_node::helper::identity::{self, Identity};
use lyceum_wire::protocol::{Errand, ErrandOutcome, HelperAnswer, HelperRequest};

/// Longer than the helper's own patience with each errand.
fn errand_timeout(errand: &Errand) -> Duration {
    Duration::from_secs(match errand {
        Errand::Directory { .. } | Errand::Environment { .. } => 8,
        Errand::Overlays | Errand::RemoveRunDirectory { .. } => 25,
        Errand::ResetOverlay { .. } => 130,
    })
}

/// Before the helper is asked again about a file system that has not answered.
const ERRAND_PAUSE: Duration = Duration::from_millis(50);

#[async_trait]
impl Accounts for Local {
    async fn person(&self, user: &PortalUser) -> Result<Person> {
        if !self.shared.config.launcher.changes_user() {
            let own = blocking(|| identity::own().map_err(Error::from)).await?;
            return match &user.account {
                Account::Named(name) if *name != own.name => Err(Error::Refused(format!(
                    "this portal does not run as root: it runs everything as `{}`, not as `{name}`",
                    own.name
                ))),
                _ => Ok(own.into()),
            };
        }
        let (unix_name, spelled) = match &user.account {
            Account::Named(name) => (name.clone(), None),
            Account::Hosts { spelled, .. } => (user.name.clone(), spelled.clone()),
            Account::Made => match self.helper(HelperRequest::Account { name: user.name.clone() }).await? {
                HelperAnswer::Account { unix_name } => (unix_name, None),
                other => return Err(unexpected(&other)),
            },
        };
        let looked_up = move || match spelled {
            Some(spelled) if identity::is_known(&spelled) => Identity::look_up(&spelled),
            _ => Identity::look_up(&unix_name),
        };
        let person = blocking(move || looked_up().map(Person::from).map_err(Error::from)).await?;
        match user.account {
            Account::Hosts { uid: Some(uid), .. } if uid != person.uid => Err(Error::Refused(format!(
                "the uid of `{}` is {uid} in the directory but {} on this machine: an administrator must make them \
                 match",
                person.unix_name, person.uid
            ))),
            _ => Ok(person),
        }
    }

    async fn errand(&self, person: &Person, errand: Errand) -> Result<ErrandOutcome> {
        let end = tokio::time::Instant::now() + errand_timeout(&errand);
        loop {
            let request = HelperRequest::Errand { unix_name: person.unix_name.clone(), errand: errand.clone() };
            let is_over = end <= tokio::time::Instant::now();
            match self.helper(request).await {
                Ok(HelperAnswer::Found { found }) => return Ok(found),
                Ok(HelperAnswer::Looking) if is_over => return Ok(ErrandOutcome::Silent),
                Ok(HelperAnswer::Looking) => tokio::time::sleep(ERRAND_PAUSE).await,
                // Many requests of one person that come together take turns.
                Err(Error::Unavailable(_)) if !is_over && self.shared.config.launcher.is_there() => {
                    tokio::time::sleep(ERRAND_PAUSE).await;
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error),
            }
        }
    }

    async fn unix_name(&self, uid: u32) -> Option<String> {
        blocking(move || Ok(identity::name_of(uid))).await.ok()?
    }
}
