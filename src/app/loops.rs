//! Every loop of the portal: what runs beside the listeners from the start to the end, how often, and
//! who is woken by whose news. What a loop does is its module's business; this file only starts it.

use std::{io, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use crate::{
    auth::Ldap,
    cluster,
    environments::{self, Modules},
    expiry::Expiry,
    lifecycle::Lifecycle,
    model::{Loops, alert::AlertMemory},
    web::{self, Portal, gateway},
};

/// How often traffic is told to those who judge idleness: who comes back at the last moment
/// is seen before the session is stopped.
const ACTIVITY_INTERVAL: Duration = Duration::from_secs(1);

/// How often what nobody uses any more is let go: files agents, connections to apps.
const SWEEP: Duration = Duration::from_secs(10);

/// How often the site's modules are listed.
const LIST_MODULES: Duration = Duration::from_mins(15);

/// How often the health report is checked for alerts.
const LOOK_AT_HEALTH: Duration = Duration::from_secs(30);

/// How often what has expired is forgotten.
const PURGE: Duration = Duration::from_mins(10);

/// Every loop of the portal, in one place.
pub fn start(life: &Lifecycle, portal: &Arc<Portal>) {
    life.spawn("sessions", portal.sessions.clone().run());
    life.spawn("sweeps", portal.sweeps.clone().run(life.loops.clone()));
    life.spawn("notifications", portal.notifications.clone().run(life.loops.clone()));
    life.spawn("events", portal.events.clone().run(life.loops.clone()));
    life.spawn("curves", portal.runs.clone().run(life.loops.clone()));
    life.spawn("storage", portal.files.clone().watch_storage(portal.clock.clone(), life.loops.clone()));
    life.spawn("gpus", watch_gpus(portal.clone(), life.loops.clone()));
    let (access, loops) = (portal.access.clone(), life.loops.clone());
    life.spawn("access", async move { access.poll_for_ever(&loops).await });
    let expiry = Expiry {
        db: portal.db.clone(),
        clock: portal.clock.clone(),
        access: portal.access.clone(),
        sessions: portal.sessions.clone(),
        dormant_after: portal.access.dormant_after,
    };
    life.spawn("expiry of accounts", expiry.run(life.loops.clone()));
    let (announcements, loops) = (portal.announcements.clone(), life.loops.clone());
    life.spawn("announcements", async move { announcements.follow(&loops).await });
    life.spawn("news of maintenance", wake_on_announcements(portal.clone()));
    life.spawn("tunnels", gateway::cut_what_lost_access(portal.clone()));
    life.spawn("endpoints", gateway::forget_ended(portal.clone()));
    let (environments, loops) = (portal.sessions.environments.clone(), life.loops.clone());
    life.spawn("environments", async move { environments.maintain(&loops).await });
    life.spawn("environment progress", wake_on_progress(portal.clone()));
    life.spawn("image progress", wake_on_images(portal.clone()));
    let terminal = io::IsTerminal::is_terminal(&io::stderr());
    let watched = portal.sessions.environments.subscribe();
    life.tracker.spawn({
        let stopping = life.stopping.clone();
        async move {
            let columns = terminal.then_some(80);
            tokio::select! {
                // Nobody reads a progress line that cannot be written.
                _ = environments::show(watched, io::stderr(), columns) => {}
                () = stopping.cancelled() => {}
            }
        }
    });
    let told = portal.clone();
    life.periodic("activity", ACTIVITY_INTERVAL, move || {
        let portal = told.clone();
        async move {
            for (session, activity) in portal.gateway.activity() {
                if let Some(at) = activity.last() {
                    portal.sessions.touch(session, at);
                }
            }
            Ok(())
        }
    });
    let modules = portal.sessions.environments.modules().clone();
    if modules.init().is_some() {
        let first = list_modules(modules.clone());
        life.tracker.spawn(life.stopping.clone().run_until_cancelled_owned(first));
        life.periodic("modules", LIST_MODULES, move || list_modules(modules.clone()));
    }
    let swept = portal.clone();
    life.periodic("sweep", SWEEP, move || {
        swept.files.sweep();
        swept.gateway.proxy.sweep();
        std::future::ready(Ok(()))
    });
    let watched = (portal.clone(), Arc::new(Mutex::new(AlertMemory::default())));
    life.periodic("alerts", LOOK_AT_HEALTH, move || {
        let (portal, memory) = watched.clone();
        async move { web::alert(&portal, &mut *memory.lock().await).await }
    });
    let purged = portal.clone();
    life.periodic("purge", PURGE, move || {
        let portal = purged.clone();
        async move {
            let day_ago = portal.clock.now().plus_seconds(-86_400);
            let outcomes = [
                portal.access.purge().await.map_err(|err| err.to_string()),
                portal.db.purge_idempotent(day_ago).await.map_err(|err| err.to_string()),
            ];
            let outcome = outcomes.into_iter().collect::<Result<(), String>>();
            if let Err(error) = &outcome {
                tracing::warn!(error, "failed to delete expired data");
            }
            outcome
        }
    });
}

/// A list that cannot be had leaves the one before.
async fn list_modules(modules: Modules) -> Result<(), String> {
    let listed = modules.refresh().await;
    if let Err(error) = &listed {
        tracing::warn!(error = error as &dyn std::error::Error, "failed to list environment modules");
    }
    listed.map_err(|error| error.to_string())
}

/// Whoever waits for GPUs, or shows a session, hears what a look at the GPUs found.
async fn watch_gpus(portal: Arc<Portal>, loops: Loops) {
    let sessions = portal.sessions.clone();
    let tell = move |news| match news {
        cluster::ClusterEvent::Room => sessions.wake(),
        cluster::ClusterEvent::Answered { session, owner } => sessions.announce(session, owner),
    };
    portal.cluster.clone().run(loops, tell).await;
}

/// Looks again and again at those whom the directory let in.
pub fn look_at_directory(life: &Lifecycle, directory: Arc<Ldap>) {
    let Some(every) = directory.refreshes() else { return };
    life.periodic("directory", every, move || {
        let directory = directory.clone();
        async move {
            let looked = directory.refresh().await;
            if let Err(err) = &looked {
                tracing::warn!(error = err as &dyn std::error::Error, "directory refresh failed; users stay signed in");
            }
            looked.map_err(|err| err.to_string())
        }
    });
}

/// Sessions that wait for an environment look again when it gets further.
async fn wake_on_progress(portal: Arc<Portal>) {
    let mut progress = portal.sessions.environments.subscribe();
    while progress.changed().await.is_ok() {
        portal.sessions.wake();
    }
}

/// Sessions that wait for an image look again when its pull gets further.
async fn wake_on_images(portal: Arc<Portal>) {
    let mut progress = portal.sessions.images.subscribe();
    while progress.changed().await.is_ok() {
        portal.sessions.wake();
    }
}

/// Sessions that wait are looked at again when maintenance begins, changes or ends.
async fn wake_on_announcements(portal: Arc<Portal>) {
    let mut news = portal.announcements.subscribe();
    while news.changed().await.is_ok() {
        portal.sessions.wake();
    }
}
