//! What a command acts on: ids and names as they were typed, or everything that options such as `--state` select. The
//! portal lists what is selected, page by page; where it has no filter for a state, the items are filtered here.
//! `--dry-run` lists the selection instead of acting on it.

use std::collections::BTreeMap;

use clap::{Args, builder::PossibleValuesParser};
use serde_json::Value;

use super::{
    api::{Api, Collection, Error, Result, id_of},
    print_status,
};
use lyceum_model::{DatasetState, SessionState, SweepState, trained::ModelState};

/// The states of sessions and jobs that can be ended.
pub(super) const STOPPABLE: &[&str] = &["queued", "starting", "running"];

/// What every command that acts on several accepts.
#[derive(Args, Debug, Default)]
pub struct Targets {
    /// Ids, their beginnings or their ends, or names
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// List what would be selected, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// Which sessions a command acts on.
#[derive(Args, Debug)]
pub struct SessionTargets {
    #[command(flatten)]
    pub(super) targets: Targets,
    /// All sessions, jobs and sweeps of this group's members, running and pending (operators)
    #[arg(long, conflicts_with_all = ["ids", "owner", "app", "state"])]
    pub group: Option<String>,
    /// Sessions of this user, or * for all users (operators)
    #[arg(long)]
    owner: Option<String>,
    /// Sessions of this app, such as jupyter
    #[arg(long)]
    app: Option<String>,
    /// Sessions in this state; by default all that have not ended
    #[arg(long, value_parser = PossibleValuesParser::new(SessionState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
}

/// Which jobs a command acts on.
#[derive(Args, Debug)]
pub struct JobTargets {
    #[command(flatten)]
    targets: Targets,
    /// Jobs of this user, or * for all users
    #[arg(long)]
    owner: Option<String>,
    /// Jobs charged to this group
    #[arg(long)]
    group: Option<String>,
    /// Jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Jobs in this state; by default in every state that allows the command
    #[arg(long, value_parser = PossibleValuesParser::new(SessionState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
}

/// Which sweeps a command acts on.
#[derive(Args, Debug)]
pub struct SweepTargets {
    #[command(flatten)]
    targets: Targets,
    /// Sweeps of this user, or * for all users (operators)
    #[arg(long)]
    owner: Option<String>,
    /// Sweeps in this state; by default in every state that allows the command
    #[arg(long, value_parser = PossibleValuesParser::new(SweepState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
}

/// Which datasets of one's own a command acts on.
#[derive(Args, Debug)]
pub struct DatasetTargets {
    #[command(flatten)]
    targets: Targets,
    /// Your datasets in this state
    #[arg(long, value_parser = PossibleValuesParser::new(DatasetState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
}

/// Which models of one's own a command acts on.
#[derive(Args, Debug)]
pub struct ModelTargets {
    #[command(flatten)]
    targets: Targets,
    /// Your models in this state
    #[arg(long, value_parser = PossibleValuesParser::new(ModelState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
}

/// The options of one command.
pub(super) struct Selection<'a> {
    targets: &'a Targets,
    /// The filters that the portal knows.
    query: Vec<(&'static str, &'a str)>,
    state: Option<&'a str>,
}

pub(super) trait Selects {
    fn selection(&self) -> Selection<'_>;
}

impl<'a> Selection<'a> {
    fn new(targets: &'a Targets, query: &[(&'static str, &'a Option<String>)], state: Option<&'a str>) -> Self {
        let query = query.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
        Self { targets, query, state }
    }
}

impl Selects for SessionTargets {
    fn selection(&self) -> Selection<'_> {
        Selection::new(&self.targets, &[("owner", &self.owner), ("app", &self.app)], self.state.as_deref())
    }
}

impl Selects for JobTargets {
    fn selection(&self) -> Selection<'_> {
        let query = [("owner", &self.owner), ("group", &self.group), ("tag", &self.tag)];
        Selection::new(&self.targets, &query, self.state.as_deref())
    }
}

impl Selects for SweepTargets {
    fn selection(&self) -> Selection<'_> {
        Selection::new(&self.targets, &[("owner", &self.owner)], self.state.as_deref())
    }
}

impl Selects for DatasetTargets {
    fn selection(&self) -> Selection<'_> {
        Selection::new(&self.targets, &[], self.state.as_deref())
    }
}

impl Selects for ModelTargets {
    fn selection(&self) -> Selection<'_> {
        Selection::new(&self.targets, &[], self.state.as_deref())
    }
}

/// What is to be done with a selection.
pub(super) enum Selected {
    /// Act on these ids and names.
    Act(Vec<String>),
    /// List these items.
    List(Vec<Value>),
}

/// Returns what was selected. Without `--state`, options select what is in one of these states.
pub(super) async fn select(
    api: &Api,
    of: Collection,
    asked: &impl Selects,
    states: &[&str],
    json: bool,
) -> Result<Selected> {
    let Selection { targets, query, state } = asked.selection();
    match (targets.ids.is_empty(), query.is_empty() && state.is_none()) {
        (true, true) => {
            return Err(Error::Usage("nothing to act on: give ids or names, or an option that selects".to_owned()));
        }
        (false, false) => {
            return Err(Error::Usage("ids and options that select cannot be combined".to_owned()));
        }
        (false, true) if targets.dry_run => {
            let mut items = Vec::new();
            for id in &targets.ids {
                let id = api.id(of, id).await?;
                items.push(api.get(&format!("{}/{id}", of.path()), &[]).await?);
            }
            return Ok(Selected::List(items));
        }
        (false, true) => return Ok(Selected::Act(targets.ids.clone())),
        (true, false) => {}
    }
    let items = listed(api, of, &query, &state.map_or_else(|| states.to_vec(), |state| vec![state])).await?;
    if items.is_empty() {
        print_status(format_args!("nothing matches"));
    }
    // The table of an empty list would say how to start something.
    let is_list = targets.dry_run && (json || !items.is_empty());
    Ok(if is_list { Selected::List(items) } else { Selected::Act(items.iter().map(id_of).collect()) })
}

/// All items in one of these states, newest first.
async fn listed(api: &Api, of: Collection, query: &[(&str, &str)], states: &[&str]) -> Result<Vec<Value>> {
    // Other users' datasets and models are listed with one's own otherwise.
    let own = [("own", "true")];
    let query = if of.finds_ids { query.to_vec() } else { [query, &own].concat() };
    let asked: &[&str] = if of.filters_states { states } else { &[""] };
    let mut found = BTreeMap::new();
    for state in asked {
        let state = [("state", *state)];
        let narrowed = if of.filters_states { [&query[..], &state].concat() } else { query.clone() };
        let page = api.all(of.path(), &narrowed).await?;
        for item in page["items"].as_array().into_iter().flatten() {
            if item["state"].as_str().is_some_and(|state| states.contains(&state)) {
                found.insert(id_of(item), item.clone());
            }
        }
    }
    Ok(found.into_values().rev().collect())
}
