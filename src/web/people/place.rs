//! Places in the lists of people and groups, as cursors carry them: what a list is sorted by,
//! and the id where that may stand twice.

use std::{fmt, str::FromStr};

use crate::{
    db::people::{After, Sort},
    model::{GroupId, User},
    web::error::{Error, Result},
};

/// Somebody's place in the list of people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(After);

impl Place {
    pub(super) fn after(user: &User, sort: Sort) -> Self {
        Self(match sort {
            Sort::Name | Sort::NameDown => After::Name(user.name.to_string()),
            Sort::Seen | Sort::SeenDown => After::Seen(user.last_seen_at.unwrap_or_default().0, user.id),
        })
    }

    /// A cursor belongs to the order that it was made in.
    pub(super) fn of(self, sort: Sort) -> Result<After> {
        let by_name = matches!(sort, Sort::Name | Sort::NameDown);
        if by_name == matches!(self.0, After::Name(_)) {
            Ok(self.0)
        } else {
            Err(Error::field("cursor", "invalid_value", "This cursor belongs to a list in another order."))
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            After::Name(name) => write!(f, "name {name}"),
            After::Seen(at, id) => write!(f, "seen {at} {id}"),
        }
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> std::result::Result<Self, NoPlace> {
        let mut words = text.split(' ');
        let place = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("name"), Some(name), None, None) if !name.contains('\0') => After::Name(name.to_owned()),
            (Some("seen"), Some(at), Some(id), None) => {
                After::Seen(at.parse().map_err(|_err| NoPlace)?, id.parse().map_err(|_err| NoPlace)?)
            }
            _ => return Err(NoPlace),
        };
        Ok(Self(place))
    }
}

/// A group's place in the list of groups. A directory's names may hold anything, so the id is first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::web) struct GroupPlace(pub String, pub GroupId);

impl fmt::Display for GroupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.1, self.0)
    }
}

impl FromStr for GroupPlace {
    type Err = NoPlace;

    fn from_str(text: &str) -> std::result::Result<Self, NoPlace> {
        let (id, name) = text.split_once(' ').filter(|(_, name)| !name.contains('\0')).ok_or(NoPlace)?;
        Ok(Self(name.to_owned(), id.parse().map_err(|_err| NoPlace)?))
    }
}

/// It is no place of these lists.
#[derive(Debug)]
pub(in crate::web) struct NoPlace;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UserId;

    #[test]
    fn places_are_read_as_they_were_written() {
        let places = [Place(After::Name("ada".to_owned())), Place(After::Seen(-7, UserId::new()))];
        for place in places {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
            let (by_name, by_seen) = (place.clone().of(Sort::NameDown), place.clone().of(Sort::Seen));
            assert_ne!(by_name.is_ok(), by_seen.is_ok(), "{place:?}");
        }
        let group = GroupPlace("Équipe  de vision".to_owned(), GroupId::new());
        assert_eq!(group.to_string().parse::<GroupPlace>().unwrap(), group);
        for bad in ["", "name", "name a b", "name \0", "seen x y", "seen 1", "1"] {
            assert!(bad.parse::<Place>().is_err() && bad.parse::<GroupPlace>().is_err(), "{bad:?}");
        }
    }
}
