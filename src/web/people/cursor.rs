//! Places in the lists of people and groups, as cursors carry them: what a list is sorted by,
//! and the id where that may stand twice.

use std::{fmt, str::FromStr};

use crate::{
    db::people::{PeoplePosition, Sort},
    model::{GroupId, User},
    web::http::error::{Error, Result},
};

/// Identifies a position in the list of users, for paging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeopleCursor(PeoplePosition);

impl PeopleCursor {
    pub(super) fn after(user: &User, sort: Sort) -> Self {
        Self(match sort {
            Sort::Name | Sort::NameDown => PeoplePosition::Name(user.name.to_string()),
            Sort::Seen | Sort::SeenDown => PeoplePosition::Seen(user.last_seen_at.unwrap_or_default().0, user.id),
        })
    }

    /// A cursor belongs to the order that it was made in.
    pub(super) fn of(self, sort: Sort) -> Result<PeoplePosition> {
        let by_name = matches!(sort, Sort::Name | Sort::NameDown);
        if by_name == matches!(self.0, PeoplePosition::Name(_)) {
            Ok(self.0)
        } else {
            Err(Error::field("cursor", "invalid_value", "This cursor belongs to a list with another sort order."))
        }
    }
}

impl fmt::Display for PeopleCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PeoplePosition::Name(name) => write!(f, "name {name}"),
            PeoplePosition::Seen(at, id) => write!(f, "seen {at} {id}"),
        }
    }
}

impl FromStr for PeopleCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidCursor> {
        let mut words = text.split(' ');
        let place = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("name"), Some(name), None, None) if !name.contains('\0') => PeoplePosition::Name(name.to_owned()),
            (Some("seen"), Some(at), Some(id), None) => PeoplePosition::Seen(
                at.parse().map_err(|_err| InvalidCursor)?,
                id.parse().map_err(|_err| InvalidCursor)?,
            ),
            _ => return Err(InvalidCursor),
        };
        Ok(Self(place))
    }
}

/// A group's place in the list of groups. A directory's names may hold anything, so the id is first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::web) struct GroupCursor(pub String, pub GroupId);

impl fmt::Display for GroupCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.1, self.0)
    }
}

impl FromStr for GroupCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidCursor> {
        let (id, name) = text.split_once(' ').filter(|(_, name)| !name.contains('\0')).ok_or(InvalidCursor)?;
        Ok(Self(name.to_owned(), id.parse().map_err(|_err| InvalidCursor)?))
    }
}

/// Reports an invalid cursor of the lists of users and groups.
#[derive(Debug)]
pub(in crate::web) struct InvalidCursor;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UserId;

    #[test]
    fn places_are_read_as_they_were_written() {
        let places = [
            PeopleCursor(PeoplePosition::Name("ada".to_owned())),
            PeopleCursor(PeoplePosition::Seen(-7, UserId::new())),
        ];
        for place in places {
            assert_eq!(place.to_string().parse::<PeopleCursor>().unwrap(), place);
            let (by_name, by_seen) = (place.clone().of(Sort::NameDown), place.clone().of(Sort::Seen));
            assert_ne!(by_name.is_ok(), by_seen.is_ok(), "{place:?}");
        }
        let group = GroupCursor("Équipe  de vision".to_owned(), GroupId::new());
        assert_eq!(group.to_string().parse::<GroupCursor>().unwrap(), group);
        for bad in ["", "name", "name a b", "name \0", "seen x y", "seen 1", "1"] {
            assert!(bad.parse::<PeopleCursor>().is_err() && bad.parse::<GroupCursor>().is_err(), "{bad:?}");
        }
    }
}
