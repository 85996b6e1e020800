//! Who used how much in a time: the overlap of every allocation with it, summed up by
//! person, by the group that was charged, or by GPU model.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, query_as};

use super::{Db, Json, Result, reading};
use crate::model::{Gpu, Timestamp, UserId};

/// By what use is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    User,
    Group,
    GpuModel,
}

/// Whose use is asked for, and of which time.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub by: By,
    /// Everybody's where it is `None`.
    pub owner: Option<UserId>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// What is held still counts until then.
    pub now: Timestamp,
}

/// What somebody, a group or a model of GPUs was used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// A person, a group or a model; empty where no group was charged, or it is gone.
    pub name: String,
    /// GPUs × milliseconds.
    pub gpu_milliseconds: i64,
    /// Cores × milliseconds; 0 by model.
    pub cpu_milliseconds: i64,
    /// How many allocations there were.
    pub sessions: i64,
}

/// The allocations of `$3` (or everybody's where it is empty) between `$1` and `$2`, each with the
/// milliseconds of it that fall in between; `$4` is now.
fn parts(owner: Option<UserId>) -> &'static str {
    macro_rules! parts {
        ($whose:literal) => {
            concat!(
                "SELECT owner, charged_group, gpus, cpus, gpu_list, ends - begins AS part FROM
                     (SELECT owner, charged_group, gpus, cpus, gpu_list,
                          CASE WHEN COALESCE(ended_at, $4) < $2 THEN COALESCE(ended_at, $4) ELSE $2 END AS ends,
                          CASE WHEN started_at < $1 THEN $1 ELSE started_at END AS begins
                      FROM intervals WHERE (ended_at IS NULL OR ended_at > $1) AND started_at < $2 AND ",
                $whose,
                ") AS held WHERE ends > begins"
            )
        };
    }
    if owner.is_some() { parts!("owner = $3") } else { parts!("$3 = ''") }
}

fn sums(asked: &Asked) -> String {
    let parts = parts(asked.owner);
    let sums = "CAST(SUM(gpus * part) AS BIGINT), CAST(SUM(cpus * part) AS BIGINT), COUNT(*)";
    match asked.by {
        By::User => {
            format!("SELECT users.name, {sums} FROM ({parts}) AS parts JOIN users ON users.id = owner GROUP BY users.name")
        }
        By::Group => format!(
            "SELECT COALESCE(groups.name, ''), {sums} FROM ({parts}) AS parts LEFT JOIN groups ON groups.id = charged_group
             GROUP BY COALESCE(groups.name, '')"
        ),
        // One list of GPUs is given out again and again: there are far fewer of them than allocations.
        By::GpuModel => {
            format!("SELECT gpu_list, CAST(SUM(part) AS BIGINT), CAST(0 AS BIGINT), COUNT(*) FROM ({parts}) AS parts WHERE gpus > 0 GROUP BY gpu_list")
        }
    }
}

impl Db {
    /// What was used, by name.
    pub async fn used(&self, asked: &Asked) -> Result<Vec<Used>> {
        let sql = sums(asked);
        let owner = asked.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let rows: Vec<(String, i64, i64, i64)> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(asked.from.0).bind(asked.to.0).bind(&owner).bind(asked.now.0)
            .fetch_all(pool).await)?;
        let mut used: BTreeMap<String, Used> = BTreeMap::new();
        for (name, gpus, cpus, sessions) in rows {
            if asked.by == By::GpuModel {
                add_models(&mut used, &Json::read::<Vec<Gpu>>(&name, "session's GPUs")?, gpus, sessions);
            } else {
                let row = Used { name: name.clone(), gpu_milliseconds: gpus, cpu_milliseconds: cpus, sessions };
                used.insert(name, row);
            }
        }
        Ok(used.into_values().collect())
    }
}

/// Each GPU of a list was held so long; an allocation counts once for each model in it.
fn add_models(used: &mut BTreeMap<String, Used>, gpus: &[Gpu], milliseconds: i64, sessions: i64) {
    for (index, gpu) in gpus.iter().enumerate() {
        let fresh = || Used { name: gpu.model.clone(), gpu_milliseconds: 0, cpu_milliseconds: 0, sessions: 0 };
        let row = used.entry(gpu.model.clone()).or_insert_with(fresh);
        row.gpu_milliseconds = row.gpu_milliseconds.saturating_add(milliseconds);
        let is_first = gpus[..index].iter().all(|other| other.model != gpu.model);
        row.sessions += if is_first { sessions } else { 0 };
    }
}
