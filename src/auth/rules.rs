//! What groups make of somebody, wherever the groups come from: who may sign in, who is an
//! administrator or an operator. Pure; a group is named by its name or by its whole DN.

use super::ldap::normalise;
use crate::{db::directory::Group, model::Role};

/// The lists of a configuration, with the names of its keys.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// `*` is everybody.
    pub allow_groups: &'a [String],
    /// Goes before the others.
    pub deny_groups: &'a [String],
    pub admin_groups: &'a [String],
    pub operator_groups: &'a [String],
}

impl Rules<'_> {
    /// Whether members of these groups may sign in; `Err` says why not.
    pub fn may_enter(&self, groups: &[Group]) -> Result<(), &'static str> {
        if is_in(groups, self.deny_groups) {
            return Err("is in one of deny_groups");
        }
        if self.allow_groups.iter().any(|group| group == "*") || is_in(groups, self.allow_groups) {
            return Ok(());
        }
        Err("is in none of allow_groups")
    }

    pub fn role(&self, groups: &[Group]) -> Role {
        if is_in(groups, self.admin_groups) {
            Role::Admin
        } else if is_in(groups, self.operator_groups) {
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
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (allow, deny) = (owned(allow), owned(deny));
            let rules = Rules { allow_groups: &allow, deny_groups: &deny, admin_groups: &[], operator_groups: &[] };
            rules.may_enter(groups).is_ok()
        };
        assert!(may_enter(&groups, &["*"], &[]));
        assert!(may_enter(&[], &["*"], &[]));
        assert!(may_enter(&groups, &["LAB"], &[]));
        assert!(may_enter(&groups, &["CN=Lab, OU=Groups"], &[]));
        assert!(!may_enter(&groups, &["other"], &[]));
        assert!(!may_enter(&groups, &["*"], &["lab"]));
        let role = |admins: &str| {
            let admins = [admins.to_owned()];
            let rules = Rules { allow_groups: &[], deny_groups: &[], admin_groups: &admins, operator_groups: &[] };
            rules.role(&groups)
        };
        assert_eq!(role("Admins"), Role::Admin);
        assert_eq!(role("*"), Role::User, "nobody makes everybody an administrator");
    }
}
