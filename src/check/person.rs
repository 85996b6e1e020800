//! `lyceum check --as USER`: rehearses a whole start as this person. The account and its
//! groups are asked here; the rest is done by errands, one as the person and one as the
//! portal, and whatever those leave after an accident is removed.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    Facts, Finding, Level,
    errand::{self, Errand},
    home::HomeCheck,
    trial::Trial,
};
use crate::{
    db::location::existing,
    environments::{self, Build, Environments, Recipe, State},
    gpu,
    helper::{
        cgroup,
        identity::{self, Identity},
        placement, process,
    },
    start,
};

/// A name service that takes longer makes every start slow.
const SLOW: Duration = Duration::from_secs(1);

/// How long looking at everything may take.
const LOOKING: Duration = Duration::from_mins(3);

/// What the rehearsal may take beside the start itself.
const REHEARSING: Duration = Duration::from_mins(4);

pub async fn rehearse(facts: &Facts, name: &str) -> Vec<Finding> {
    let (person, mut findings) = match account(facts, name) {
        Ok((person, findings)) => (person, findings),
        Err(finding) => return vec![*finding],
    };
    let pythons = pythons(facts).await;
    let inventory = gpu::inventory(&facts.gpus).ok().filter(|found| found.driver);
    let look = HomeCheck {
        person: person.clone(),
        becomes: facts.is_root,
        pythons: pythons.clone(),
        gpus: inventory.map(|found| found.gpus.len()),
    };
    findings.extend(errand::send(&Errand::Look(look), "home", LOOKING).await);
    let stage = Stage::new(facts);
    let python = pythons.iter().find(|(name, _)| name == environments::DEFAULT).or(pythons.first());
    let rehearsal = Trial {
        data: stage.data.clone(),
        runtime_directory: facts.surroundings.xdg_runtime_dir.clone(),
        service_user: stage.service_user.clone(),
        account_uids: facts.account_uids,
        unix_name: person.name,
        python: python.map(|(_, python)| python.clone()),
        start_timeout: facts.start_timeout,
    };
    let patience = REHEARSING + Duration::from_secs(facts.start_timeout);
    let errand = Errand::Rehearse(rehearsal);
    tokio::select! {
        found = errand::send(&errand, "start test", patience) => findings.extend(found),
        // What was started is ended before we are.
        _ = tokio::signal::ctrl_c() => findings.push(Finding::new("start test", Level::Fault, "it was interrupted")),
    }
    drop(stage);
    findings
}

/// What the name service says, and whether the rules for accounts let this one run anything.
fn account(facts: &Facts, name: &str) -> Result<(Identity, Vec<Finding>), Box<Finding>> {
    let fault = |what: String, fix: String| Box::new(Finding::new("account", Level::Fault, what).fix(fix));
    let begun = Instant::now();
    let person = match Identity::look_up(name) {
        Ok(person) => person,
        Err(err) => {
            let fix = format!(
                "getent passwd {name}; or name another account: lyceum admin user add NAME --unix-name U (`{name}` \
                 cannot be used)"
            );
            return Err(fault(err.sentence(), fix));
        }
    };
    let took = begun.elapsed();
    if !facts.is_root {
        let own = identity::own().map_err(|err| fault(err.sentence(), "getent passwd".to_owned()))?;
        if own.uid != person.uid {
            let what = format!("only root can check a start as another user; this is `{}`", own.name);
            return Err(fault(what, format!("sudo lyceum check --as {name}, or --as {}", own.name)));
        }
    }
    let what = format!("`{name}` is uid {}, gid {}, shell {}", person.uid, person.gid, person.shell);
    let first = match took {
        took if took > SLOW => Finding::new(
            "account",
            Level::Warning,
            format!("{what}; the name service took {:.1} s to respond", took.as_secs_f64()),
        )
        .fix(format!("time getent passwd {name}; check sssd or nslcd")),
        _ => Finding::new("account", Level::Ok, what),
    };
    Ok((person.clone(), vec![first, groups(&person)]))
}

fn groups(person: &Identity) -> Finding {
    let named = |gid: &u32| {
        let group = nix::unistd::Group::from_gid((*gid).into()).ok().flatten();
        (*gid, group.map(|group| group.name))
    };
    let groups: Vec<_> = person.groups.iter().map(named).collect();
    let told: Vec<String> = groups
        .iter()
        .map(|(gid, name)| name.as_ref().map_or_else(|| gid.to_string(), |name| format!("{name} ({gid})")))
        .collect();
    let nameless = groups.iter().find(|(_, name)| name.is_none());
    match nameless {
        Some((gid, _)) => Finding::new("groups", Level::Warning, format!("{}; {gid} has no name", told.join(", ")))
            .fix(format!("getent group {gid}: the name service does not know it")),
        None => Finding::new("groups", Level::Ok, told.join(", ")),
    }
}

/// The environments that are ready, with their Pythons.
async fn pythons(facts: &Facts) -> Vec<(String, PathBuf)> {
    let config = environments::Config { build: Build::Never, ..facts.environments.clone() };
    let environments = Environments::new(config, facts.place_on_this_machine(), Recipe::default(), facts.clock.clone());
    environments.attempt_all().await;
    environments.look_at_sites().await;
    let found = environments.list().into_iter().filter_map(|environment| match environment.state {
        State::Ready { python, .. } => Some((environment.name, python)),
        _ => None,
    });
    found.collect()
}

/// A data directory of the rehearsal's own; dropping it removes it and everything that was
/// started from it.
struct Stage {
    data: PathBuf,
    paths: Option<start::Paths>,
    /// What holds run directories, and was there before.
    run_parent: Option<PathBuf>,
    /// The portal's own account, or one that is as powerless where that is not made yet.
    service_user: String,
}

impl Stage {
    fn new(facts: &Facts) -> Self {
        let beside = existing(facts.data.parent().unwrap_or(&facts.data));
        let data = beside.join(format!(".lyceum-check-{:08x}", rand::random::<u32>()));
        let surroundings = start::ProcessEnvironment { data: Some(data.clone()), ..facts.surroundings.clone() };
        let paths = start::layout(&surroundings).ok();
        let run_parent = paths.as_ref().and_then(|paths| paths.run.parent()).filter(|parent| parent.exists());
        let run_parent = run_parent.map(std::path::Path::to_owned);
        let user = &facts.service_user;
        let is_there = nix::unistd::User::from_name(user).is_ok_and(|found| found.is_some());
        let service_user = if is_there { user.clone() } else { "nobody".to_owned() };
        Self { data, paths, run_parent, service_user }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(paths) = &self.paths else { return };
        // Empty, unless the errand was cut short.
        for session in placement::list(&paths.placements).unwrap_or_default().0 {
            let Ok(Some(record)) = placement::read(&paths.placements, session) else { continue };
            let all = || {
                let mut found: BTreeSet<i32> = cgroup::processes(&record.cgroups)?;
                found.extend(process::of_session(session, Some(&record.placement))?);
                Ok(found)
            };
            let _ = process::kill_all(all, Duration::from_secs(10));
            for group in &record.cgroups {
                let _ = fs::remove_dir(group);
                let _ = group.parent().map(fs::remove_dir);
            }
        }
        let _ = fs::remove_dir_all(&paths.run);
        if self.run_parent.is_none() {
            // Others may have put something there meanwhile.
            let _ = paths.run.parent().map(fs::remove_dir);
        }
        let _ = fs::remove_dir_all(&self.data);
    }
}
