//! What groups make of somebody, wherever the groups come from: who may sign in, who is an
//! administrator or an operator. Pure; a group is named by its name or by its whole DN.

use serde::Deserialize;

use super::ldap::normalise;
use lyceum_db::directory::Group;
use lyceum_model::{Role, setting::list};

/// The lists of groups in a section of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Who may sign in; `*` is everybody.
    #[serde(deserialize_with = "list")]
    pub allow_groups: Vec<String>,
    /// Who may not, whatever the other lists say.
    #[serde(deserialize_with = "list")]
    pub deny_groups: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub admin_groups: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub operator_groups: Vec<String>,
}

impl Rules {
    /// Every group that is named.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        [&self.allow_groups, &self.deny_groups, &self.admin_groups, &self.operator_groups]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Whether the lists say who has which role.
    pub fn give_roles(&self) -> bool {
        !(self.admin_groups.is_empty() && self.operator_groups.is_empty())
    }

    /// Whether members of these groups may sign in; `Err` says why not.
    pub fn may_enter(&self, groups: &[Group]) -> Result<(), &'static str> {
        if is_in(groups, &self.deny_groups) {
            return Err("is in a group of deny_groups");
        }
        if self.allow_groups.iter().any(|group| group == "*") || is_in(groups, &self.allow_groups) {
            return Ok(());
        }
        Err("is not in any group of allow_groups")
    }

    pub fn role(&self, groups: &[Group]) -> Role {
        if is_in(groups, &self.admin_groups) {
            Role::Admin
        } else if is_in(groups, &self.operator_groups) {
            Role::Operator
        } else {
            Role::User
        }
    }
}

fn is_in(groups: &[Group], wanted: &[String]) -> bool {
    wanted.iter().any(|wanted| {
        let dn = normalise(wanted);
        groups.iter().any(|group| group.name.eq_ignore_ascii_case(wanted) || group.subject == dn)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_groups_make_of_somebody() {
        let group = |name: &str| Group { subject: format!("cn={name},ou=groups"), name: name.to_owned() };
        let groups = [group("admins"), group("lab")];
        let may_enter = |groups: &[Group], allow: &[&str], deny: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let rules = Rules { allow_groups: owned(allow), deny_groups: owned(deny), ..Rules::default() };
            rules.may_enter(groups).is_ok()
        };
        assert!(may_enter(&groups, &["*"], &[]));
        assert!(may_enter(&[], &["*"], &[]));
        assert!(may_enter(&groups, &["LAB"], &[]));
        assert!(may_enter(&groups, &["CN=Lab, OU=Groups"], &[]));
        assert!(!may_enter(&groups, &["other"], &[]));
        assert!(!may_enter(&groups, &["*"], &["lab"]));
        let role = |admins: &str| Rules { admin_groups: vec![admins.to_owned()], ..Rules::default() }.role(&groups);
        assert_eq!(role("Admins"), Role::Admin);
        assert_eq!(role("*"), Role::User, "nobody makes everybody an administrator");
    }
}
