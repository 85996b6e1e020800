//! Lists in pages: `?limit=` and `?cursor=`, and `next_cursor` of the answer. A cursor is the
//! id of the last item, wrapped so that nobody builds one by hand.

use std::{fmt::Display, str::FromStr};

use axum::response::{IntoResponse, Response};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{
    error::{Error, Result},
    json::Long,
};
use crate::{
    auth::Principal,
    model::{IdPart, Role, UserId},
    web::{Portal, views::More},
};

/// `?limit=` and `?cursor=` of a list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Maximum number of items to return, 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl Paging {
    pub fn new(limit: Option<i64>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    pub fn limit(&self) -> Result<i64> {
        match self.limit.unwrap_or(50) {
            limit @ 1..=500 => Ok(limit),
            _ => Err(Error::field("limit", "out_of_range", "Must be between 1 and 500.")),
        }
    }

    /// The id after which to go on.
    pub fn after<I: FromStr>(&self) -> Result<Option<I>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let id = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let id = id.and_then(|id| id.parse().ok());
        id.map(Some).ok_or_else(|| Error::field("cursor", "invalid_value", "This is not a valid cursor for this list."))
    }
}

/// One page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Listed<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

impl<T> Listed<T> {
    /// `items` were asked for with a limit one higher than `limit`: one too many means that
    /// there are more. `id` tells an item's place in the order.
    pub fn new<I: Display>(mut items: Vec<T>, limit: i64, id: impl Fn(&T) -> I) -> Self {
        let limit = usize::try_from(limit).unwrap_or(0);
        let more = limit < items.len();
        items.truncate(limit);
        let last = items.last().filter(|_| more);
        let next_cursor = last.map(|item| cursor(id(item)));
        Self { items, next_cursor }
    }

    /// A page of a list that is in memory as a whole; `name` is unique. A cursor whose item has gone is an error, since
    /// its place is not known any more.
    pub fn cut<S>(all: &[S], paging: &Paging, name: impl Fn(&S) -> &str, item: impl Fn(&S) -> T) -> Result<Self> {
        let limit = usize::try_from(paging.limit()?).unwrap_or(0);
        let after: Option<String> = paging.after()?;
        let begin = match after {
            None => 0,
            Some(after) => match all.iter().position(|one| *name(one) == *after) {
                Some(place) => place + 1,
                None => {
                    return Err(Error::field(
                        "cursor",
                        "gone",
                        "The item that this cursor refers to no longer exists. Start again without a cursor.",
                    ));
                }
            },
        };
        let page = &all[begin..all.len().min(begin + limit)];
        let last = page.last().filter(|_| begin + page.len() < all.len());
        Ok(Self { items: page.iter().map(item).collect(), next_cursor: last.map(|one| cursor(name(one))) })
    }
}

/// The part of a list that a page shows, and what is said of the rest.
#[derive(Clone, Debug)]
pub struct Part<T> {
    pub items: Vec<T>,
    pub more: More,
}

impl<T> Part<T> {
    /// Cuts the page behind `asked`, the cursor of an address, out of a whole list. A cursor whose item has gone begins
    /// at the first page. `address` makes the address of a page from its cursor, which is empty for the first one.
    pub fn cut<I: Display>(
        mut all: Vec<T>,
        size: usize,
        asked: Option<&str>,
        id: impl Fn(&T) -> I,
        address: impl Fn(&str) -> String,
    ) -> Self {
        let total = all.len();
        let asked = asked.filter(|asked| !asked.is_empty());
        let begin =
            asked.and_then(|asked| all.iter().position(|item| cursor(id(item)) == asked)).map_or(0, |at| at + 1);
        let mut items = all.split_off(begin);
        let left = items.len().saturating_sub(size);
        items.truncate(size);
        let next = items.last().filter(|_| 0 < left).map(|last| (left, address(&cursor(id(last)))));
        Self { items, more: More { total, first_href: (0 < begin).then(|| address("")), next } }
    }
}

fn cursor(id: impl Display) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(id.to_string())
}

impl<T: Serialize> IntoResponse for Listed<T> {
    fn into_response(self) -> Response {
        Long(self).into_response()
    }
}

/// Returns whose sessions or sweeps (`what`) a list is narrowed to: one's own by default, and nobody's for `*`. Only
/// operators can name others.
pub(in crate::web) async fn owner_asked(
    portal: &Portal,
    user: &Principal,
    owner: Option<&str>,
    what: &str,
) -> Result<Option<UserId>> {
    match owner {
        None | Some("") => Ok(Some(user.id())),
        Some(name) if name == user.user.name.as_str() => Ok(Some(user.id())),
        Some(_) if user.user.role < Role::Operator => {
            Err(Error::forbidden(format!("Only operators can see other users' {what}.")))
        }
        Some("*") => Ok(None),
        Some(name) => Ok(Some(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user.id)),
    }
}

/// The part of an id that a list is narrowed to.
pub(in crate::web) fn id_asked(part: Option<&str>) -> Result<Option<IdPart>> {
    let part = part.filter(|part| !part.is_empty()).map(str::parse).transpose();
    part.map_err(|_err| {
        Error::field("id", "invalid_value", "Enter the beginning or the end of an id: digits, a to f, hyphens.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another() {
        let ids: Vec<i64> = (0..5).collect();
        let page = Listed::new(ids[..3].to_vec(), 2, |id| *id);
        assert_eq!(page.items, [0, 1]);
        let paging = Paging::new(Some(2), page.next_cursor);
        assert_eq!(paging.after::<i64>().unwrap(), Some(1));
        assert_eq!(Listed::new(ids[2..4].to_vec(), 2, |id| *id).next_cursor, None);
        let names = ["a", "b", "c"].map(str::to_owned);
        let cut = |paging: &Paging| Listed::cut(&names, paging, |name| name, Clone::clone);
        let first = cut(&Paging::new(Some(2), None)).unwrap();
        assert_eq!(first.items, ["a", "b"]);
        let second = cut(&Paging::new(Some(2), first.next_cursor)).unwrap();
        assert_eq!((second.items, second.next_cursor), (vec!["c".to_owned()], None));
        assert!(cut(&Paging::new(Some(501), None)).is_err());
        assert!(cut(&Paging::new(None, Some(cursor("d")))).is_err(), "it is gone");
        let part = |asked: Option<&str>| {
            Part::cut((0..5).collect(), 2, asked, |id: &i64| *id, |cursor| format!("/?after={cursor}"))
        };
        let (first, second) = (part(None), part(Some(&cursor(1))));
        assert_eq!((first.items, first.more.first_href), (vec![0, 1], None));
        assert_eq!(first.more.next, Some((3, format!("/?after={}", cursor(1)))));
        assert_eq!((second.items, second.more.total), (vec![2, 3], 5));
        assert_eq!(second.more.first_href.as_deref(), Some("/?after="));
        let last = part(Some(&cursor(3)));
        assert_eq!((last.items, last.more.next), (vec![4], None));
        assert_eq!(part(Some("gone")).items, [0, 1], "it begins anew");
        for limit in [0, -1, 501, i64::MAX] {
            assert!(Paging::new(Some(limit), None).limit().is_err());
        }
        for cursor in ["", "x", "!!", "AAAA"] {
            assert!(Paging::new(None, Some(cursor.to_owned())).after::<i64>().is_err(), "{cursor}");
        }
    }
}
