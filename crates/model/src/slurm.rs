//! What a user chooses of a Slurm cluster for one session or job (partition, account, QOS, reservation and
//! constraint), what they may choose, and the check of one against the other. All of it is pure: who lists the
//! choices is the scheduler's business.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::FieldError;

/// Where on the Slurm cluster something runs. What is left out is as the site has set it, else as Slurm decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmOptions {
    /// The partition, or several separated by commas.
    pub partition: Option<String>,
    /// Slurm's account that is charged.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// The reservation whose nodes are used.
    pub reservation: Option<String>,
    /// The features that each node must have, such as `a100&nvlink`.
    pub constraint: Option<String>,
}

/// The longest value (bytes).
const MAX_LENGTH: usize = 256;

impl SlurmOptions {
    /// Each with the option of `sbatch` that it becomes, which is its field too.
    pub fn entries(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("partition", self.partition.as_deref()),
            ("account", self.account.as_deref()),
            ("qos", self.qos.as_deref()),
            ("reservation", self.reservation.as_deref()),
            ("constraint", self.constraint.as_deref()),
        ]
    }

    /// Those that were chosen.
    pub fn chosen(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.entries().into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    pub fn is_empty(&self) -> bool {
        self.chosen().next().is_none()
    }

    /// Returns the options without blanks around them; an empty one is none.
    #[must_use]
    pub fn trimmed(self) -> Self {
        let trimmed =
            |value: Option<String>| value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let Self { partition, account, qos, reservation, constraint } = self;
        Self {
            partition: trimmed(partition),
            account: trimmed(account),
            qos: trimmed(qos),
            reservation: trimmed(reservation),
            constraint: trimmed(constraint),
        }
    }
}

/// What one user may choose for one of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Slurm has not answered: it decides itself when it gets the job.
    #[default]
    Unknown,
    /// Nothing can be chosen; why.
    Fixed(&'static str),
    /// One of these.
    OneOf(Vec<String>),
}

impl Choice {
    /// The values to offer.
    pub fn values(&self) -> &[String] {
        match self {
            Self::OneOf(values) => values,
            Self::Unknown | Self::Fixed(_) => &[],
        }
    }
}

/// What one user may choose on the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmChoices {
    pub partition: Choice,
    pub account: Choice,
    pub qos: Choice,
    pub reservation: Choice,
    pub constraint: Choice,
    /// The QOS of each account that the user has.
    pub qos_of: Vec<(String, BTreeSet<String>)>,
    /// The options whose values the site lists: they bind the lines of Slurm scripts too.
    pub listed: Vec<&'static str>,
}

impl SlurmChoices {
    pub fn of(&self, option: &str) -> &Choice {
        match option {
            "partition" => &self.partition,
            "account" => &self.account,
            "qos" => &self.qos,
            "reservation" => &self.reservation,
            _constraint => &self.constraint,
        }
    }

    /// Everything that cannot be chosen, each with its field.
    #[must_use]
    pub fn faults(&self, options: &SlurmOptions) -> Vec<FieldError> {
        let fault =
            |name: &str, (code, message): (&str, String)| FieldError::new(format!("slurm.{name}"), code, message);
        let mut faults: Vec<FieldError> =
            options.chosen().filter_map(|(name, value)| Some(fault(name, self.objection(name, value)?))).collect();
        if let (Some(account), Some(qos)) = (&options.account, &options.qos)
            && faults.is_empty()
            && let Some((_, allowed)) = self.qos_of.iter().find(|(name, _)| name.eq_ignore_ascii_case(account))
            && !allowed.contains(&qos.to_ascii_lowercase())
        {
            let message = format!("the account `{account}` may not use `{qos}`; it may use {}", list(allowed.iter()));
            faults.push(fault("qos", ("not_allowed", message)));
        }
        faults
    }

    /// Why a value cannot be chosen: a code and a sentence.
    #[must_use]
    pub fn objection(&self, option: &str, value: &str) -> Option<(&'static str, String)> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:+@".contains(c);
        let is_expression = |c: char| is_plain(c) || (option == "constraint" && "&|*()[]!".contains(c));
        if value.len() > MAX_LENGTH || value.starts_with('-') || !value.chars().all(is_expression) {
            return Some(("characters", "contains a character that Slurm does not accept here".to_owned()));
        }
        let known = match self.of(option) {
            Choice::Unknown => return None,
            Choice::Fixed(why) => return Some(("not_available", (*why).to_owned())),
            Choice::OneOf(known) => known,
        };
        let bad = words(option, value).find(|word| !known.iter().any(|one| one.eq_ignore_ascii_case(word)))?;
        let message = match known[..] {
            [] => format!("`{bad}` is not available to you; omit this field"),
            _ => format!("`{bad}` is not available to you; you can choose {}", list(known.iter())),
        };
        Some(("not_allowed", message))
    }
}

/// The names that a value holds: a constraint is an expression, partitions and reservations may be several.
fn words<'a>(option: &str, value: &'a str) -> impl Iterator<Item = &'a str> {
    let is_constraint = option == "constraint";
    let is_count = move |word: &&str| !(is_constraint && word.bytes().all(|b| b.is_ascii_digit()));
    let separates = move |c: char| c == ',' || (is_constraint && "&|*()[]!".contains(c));
    value.split(separates).filter(|word| !word.is_empty()).filter(is_count)
}

/// The first of them, for a sentence.
fn list<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const SHOWN: usize = 12;
    let rest = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if rest > 0 { format!("{shown} and {rest} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> SlurmChoices {
        let some = |names: &[&str]| Choice::OneOf(names.iter().map(|name| (*name).to_owned()).collect());
        SlurmChoices {
            partition: some(&["debug", "gpu"]),
            account: some(&["lab"]),
            qos: some(&["normal", "long"]),
            reservation: some(&[]),
            constraint: some(&["a100", "nvlink"]),
            qos_of: vec![("lab".to_owned(), ["normal".to_owned()].into())],
            listed: Vec::new(),
        }
    }

    fn faults(options: &SlurmOptions) -> Vec<String> {
        choices().faults(options).into_iter().map(|fault| format!("{} {}", fault.field, fault.code)).collect()
    }

    #[test]
    fn what_may_be_chosen_is_accepted() {
        let options = SlurmOptions {
            partition: Some("gpu,debug".to_owned()),
            account: Some("LAB".to_owned()),
            qos: Some("normal".to_owned()),
            constraint: Some("[a100|nvlink*2]&a100".to_owned()),
            ..SlurmOptions::default()
        };
        assert_eq!(faults(&options), [""; 0]);
        assert!(
            SlurmChoices::default().faults(&SlurmOptions { qos: Some("x".to_owned()), ..options }).is_empty(),
            "unknown"
        );
    }

    #[test]
    fn each_fault_has_its_field() {
        let options = SlurmOptions {
            partition: Some("gpu,secret".to_owned()),
            account: Some("other lab".to_owned()),
            qos: Some("--uid=0".to_owned()),
            reservation: Some("course".to_owned()),
            constraint: Some("h100".to_owned()),
        };
        assert_eq!(
            faults(&options),
            [
                "slurm.partition not_allowed",
                "slurm.account characters",
                "slurm.qos characters",
                "slurm.reservation not_allowed",
                "slurm.constraint not_allowed"
            ]
        );
        let message = choices().objection("partition", "secret").unwrap().1;
        assert_eq!(message, "`secret` is not available to you; you can choose `debug`, `gpu`");
        let fixed = SlurmChoices { account: Choice::Fixed("the charged group decides"), ..choices() };
        assert_eq!(fixed.objection("account", "lab"), Some(("not_available", "the charged group decides".to_owned())));
        let options =
            SlurmOptions { account: Some("lab".to_owned()), qos: Some("long".to_owned()), ..SlurmOptions::default() };
        assert_eq!(faults(&options), ["slurm.qos not_allowed"], "of another account");
    }

    #[test]
    fn blanks_are_nothing() {
        let options =
            SlurmOptions { partition: Some(" gpu ".to_owned()), qos: Some("  ".to_owned()), ..SlurmOptions::default() }
                .trimmed();
        assert_eq!(options.chosen().collect::<Vec<_>>(), [("partition", "gpu")]);
        assert!(SlurmOptions::default().is_empty());
    }
}
