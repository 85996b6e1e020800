//! `/admin/quotas/groups`: the groups that somebody may see, with what each gives its members
//! and what is charged to it. One group's limits are `pages`'s.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::{set_at, table::meter};
use crate::{
    db::{
        groups::{GroupFilter, ListedGroup},
        quotas::{Level, QuotaGroup, SetLimit},
    },
    model::{
        Timestamp,
        quota::{Effective, Field, Kind, Limit, Source, Unit, Usage},
    },
    web::{
        Portal,
        http::{
            error::Result,
            extract::{GroupReader, Query},
            paging::{Listed, Paging},
        },
        page::{Nav, Page},
        people::GroupCursor,
        views::{Meter, Moment, QuotaGroupRow, QuotaGroupsPage, field_words, limit_words},
    },
};

/// The address of the list of groups.
#[derive(Default, Deserialize)]
pub struct PageParams {
    find: Option<String>,
    cursor: Option<String>,
}

/// How many groups a page shows.
const GROUPS: i64 = 50;

/// `/admin/quotas/groups`: those that somebody may see, with what they give and hold.
pub async fn list(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let find: String = visit.find.unwrap_or_default().trim().chars().take(200).collect();
    let cursor = visit.cursor.filter(|cursor| !cursor.is_empty());
    let paged = cursor.is_some();
    let after = Paging::new(None, cursor).after::<GroupCursor>()?.map(|GroupCursor(name, id)| (name, id));
    let manager = (!reader.is_operator()).then(|| reader.id());
    let filter = GroupFilter { find: find.clone(), manager, after, limit: GROUPS + 1 };
    let found = portal.db.list_groups(&filter).await?;
    let listed = Listed::new(found, GROUPS, |one: &ListedGroup| GroupCursor(one.group.name.clone(), one.group.id));
    let mut holdings = portal.sessions.admission.holdings().await?;
    let (mut rows, now) = (Vec::new(), portal.clock.now());
    for one in listed.items {
        let Some(group) = portal.db.find_quota_group(&one.group.id.to_string()).await? else { continue };
        let set = set_at(&portal, Level::Group(group.id)).await?;
        let kept = portal.sessions.admission.slurm_limits.as_ref().and_then(|kept| kept.together(group.id));
        // Hours are counted where they are limited.
        let counts_hours = |limit: &SetLimit| limit.kind == Kind::Total && limit.field.unit() == Unit::Hours;
        let mut usage = if set.iter().any(counts_hours) {
            portal.sessions.admission.used_together(Some(group.id)).await?
        } else {
            holdings.by_group.remove(&group.id).unwrap_or_default()
        };
        let mut row = group_row(group, one.members, (&set, &usage), now);
        if let Some(mut kept) = kept {
            kept.count(&mut usage);
            kept.limits.retain(|(field, _)| !matches!(field, Field::Jobs));
            let bound = |limit| Effective { limit, source: kept.source.clone() };
            row.meters.extend(kept.limits.iter().filter_map(|(field, limit)| meter(field, &usage, &bound(*limit))));
        }
        rows.push(row);
    }
    let address = |cursor: &str| {
        let mut query = Serializer::new(String::new());
        let pairs = [("find", find.as_str()), ("cursor", cursor)];
        query.extend_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
        format!("/admin/quotas/groups?{}", query.finish())
    };
    Ok(Page(QuotaGroupsPage {
        layout: portal.layout_of(&reader, Nav::Administration),
        first_href: paged.then(|| address("")),
        next_href: listed.next_cursor.as_deref().map(address),
        rows,
        find,
    })
    .into_response())
}

fn group_row(group: QuotaGroup, members: i64, (set, usage): (&[SetLimit], &Usage), now: Timestamp) -> QuotaGroupRow {
    let each = set.iter().filter(|limit| limit.kind != Kind::Total).map(|limit| {
        let (label, _) = field_words(&limit.field, Kind::Each);
        let raised = if limit.kind == Kind::Raised { " (raised by a manager)" } else { "" };
        format!("{label}: {}{raised}", limit_words(&limit.field, Limit::of(limit.terms.value)))
    });
    let held = |limit: &SetLimit| {
        let total = Effective { limit: Limit::of(limit.terms.value), source: Source::Total };
        meter(&limit.field, usage, &total)
    };
    let meters: Vec<Meter> = set.iter().filter(|limit| limit.kind == Kind::Total).filter_map(held).collect();
    QuotaGroupRow {
        id: group.id.to_string(),
        name: group.name,
        members,
        chargeable: group.chargeable,
        restrictive: group.restrictive,
        gone: group.absent_since.map(|at| Moment::clock(at, now)),
        each: each.collect(),
        meters,
    }
}
