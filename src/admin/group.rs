//! `lyceum admin group …`: groups that are made here, who is in them, and who manages any
//! group. The rules are `auth::groups`'s, as on the pages; a directory's groups are changed in
//! the directory.

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::json;

use super::{Out, find};
use crate::{
    auth::groups::{made_here, parsed, single, taken},
    db::{
        self, Db,
        audit::ChangedBy,
        groups::{GroupFilter, ListedGroup},
    },
    model::{Group, GroupName},
};

/// A group is named by its name or, where several are called alike, by its id.
#[derive(Subcommand)]
pub enum GroupVerb {
    /// Create a local group.
    Add { name: String },
    /// List all groups, including those of a directory, with the number of members and the managers.
    List {
        #[arg(long)]
        json: bool,
    },
    /// Rename a local group.
    Rename { group: String, name: String },
    /// Delete a local group; its members' accounts are kept.
    Remove { group: String },
    /// Add or remove members of a local group.
    #[command(subcommand)]
    Member(PeopleVerb),
    /// Add or remove managers of a group.
    #[command(subcommand)]
    Manager(PeopleVerb),
}

#[derive(Subcommand)]
pub enum PeopleVerb {
    Add { group: String, user: String },
    Remove { group: String, user: String },
}

/// So many groups are read at once.
const STEP: i64 = 500;

pub(super) async fn group(db: &Db, verb: GroupVerb, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    match verb {
        GroupVerb::Add { name } => {
            let name = parsed(&name)?;
            db.add_group(&name, None, by).await.map_err(|err| to_anyhow(err, &name))?;
        }
        GroupVerb::List { json } => list(db, json, out).await?,
        GroupVerb::Rename { group, name } => {
            let (group, name) = (find_group(db, &group).await?, parsed(&name)?);
            made_here(&group)?;
            db.rename_group(group.id, &name, by).await.map_err(|err| to_anyhow(err, &name))?;
        }
        GroupVerb::Remove { group } => {
            let group = find_group(db, &group).await?;
            made_here(&group)?;
            db.remove_group(group.id, by).await?;
        }
        GroupVerb::Member(verb) => {
            let (group, user, is) = verb.parts();
            let (group, user) = (find_group(db, &group).await?, find(db, &user).await?);
            made_here(&group)?;
            db.set_member(group.id, user.id, is, by).await?;
        }
        GroupVerb::Manager(verb) => {
            let (group, user, is) = verb.parts();
            let (group, user) = (find_group(db, &group).await?, find(db, &user).await?);
            db.set_manager(group.id, user.id, is, by).await?;
        }
    }
    Ok(())
}

impl PeopleVerb {
    /// The group, the person, and whether they shall belong to it.
    fn parts(self) -> (String, String, bool) {
        match self {
            Self::Add { group, user } => (group, user, true),
            Self::Remove { group, user } => (group, user, false),
        }
    }
}

async fn find_group(db: &Db, id_or_name: &str) -> Result<Group> {
    let found = single(db.find_groups(id_or_name).await?)?;
    Ok(found.with_context(|| format!("there is no group `{id_or_name}`"))?.group)
}

fn to_anyhow(err: db::Error, name: &GroupName) -> anyhow::Error {
    match err {
        db::Error::Unique => taken(name).into(),
        err => err.into(),
    }
}

async fn list(db: &Db, json: bool, out: Out<'_>) -> Result<()> {
    let groups = everything(db).await?;
    if json {
        let groups: Vec<_> = groups.iter().map(document).collect();
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&groups)?)?);
    }
    writeln!(out, "{:<24} {:<7} {:>7}  MANAGERS", "NAME", "SOURCE", "MEMBERS")?;
    for ListedGroup { group, members, managers } in groups {
        let managers = if managers.is_empty() { "-".to_owned() } else { managers.join(", ") };
        writeln!(out, "{:<24} {:<7} {members:>7}  {managers}", group.name, group.source)?;
    }
    Ok(())
}

async fn everything(db: &Db) -> Result<Vec<ListedGroup>> {
    let mut groups: Vec<ListedGroup> = Vec::new();
    loop {
        let after = groups.last().map(|last| (last.group.name.clone(), last.group.id));
        let more = db.list_groups(&GroupFilter { after, limit: STEP, ..GroupFilter::default() }).await?;
        if more.is_empty() {
            return Ok(groups);
        }
        groups.extend(more);
    }
}

fn document(listed: &ListedGroup) -> serde_json::Value {
    let ListedGroup { group, members, managers } = listed;
    json!({
        "id": group.id,
        "name": group.name,
        "source": group.source,
        "subject": group.subject,
        "members": members,
        "managers": managers,
        "created_at": group.created_at,
    })
}
