//! The part of a form in which somebody chooses where on a Slurm cluster something runs: one field for each option
//! that they may choose, with what is filled in.

use crate::model::{SlurmChoices, SlurmOptions, slurm::Choice};

/// The fields, in the order of the form. None of them where nothing can be chosen.
#[derive(Clone, Debug, Default)]
pub struct SlurmFields(pub Vec<SlurmField>);

/// One option of Slurm's.
#[derive(Clone, Debug)]
pub struct SlurmField {
    pub name: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub value: String,
    /// What can be chosen; a text is typed where this is empty.
    pub values: Vec<String>,
    /// Values are expressions of these: they are suggested.
    pub is_expression: bool,
}

/// The options by name, label and hint.
const OPTIONS: [(&str, &str, &str); 5] = [
    ("partition", "Partition", "where it waits and runs"),
    ("account", "Slurm account", "charged by Slurm"),
    ("qos", "QOS", "quality of service: priority and limits"),
    ("reservation", "Reservation", "nodes that are kept for you or your account"),
    ("constraint", "Node features", "required of each node, such as a100&nvlink"),
];

impl SlurmFields {
    pub fn new(choices: Option<&SlurmChoices>, chosen: &SlurmOptions) -> Self {
        let Some(choices) = choices else { return Self::default() };
        let chosen: Vec<(&str, Option<&str>)> = chosen.entries().into();
        let field = |(name, label, hint): (&'static str, &'static str, &'static str)| {
            let value = chosen.iter().find(|(option, _)| *option == name).and_then(|(_, value)| *value);
            let mut values = choices.of(name).values().to_vec();
            // What can no longer be chosen stands there with its error; so does what nobody can say anything of.
            if values.is_empty() && value.is_none() && *choices.of(name) != Choice::Unknown {
                return None;
            }
            let is_expression = name == "constraint";
            if let Some(value) =
                value.filter(|value| !is_expression && !values.is_empty() && !values.iter().any(|one| one == value))
            {
                values.push(value.to_owned());
            }
            let value = value.unwrap_or_default().to_owned();
            Some(SlurmField { name, label, hint, value, values, is_expression })
        };
        Self(OPTIONS.into_iter().filter_map(field).collect())
    }

    /// What is chosen, for the line that unfolds the fields.
    pub fn summary(&self) -> String {
        let chosen = self.0.iter().filter(|field| !field.value.is_empty());
        chosen.map(|field| field.value.as_str()).collect::<Vec<_>>().join(" · ")
    }

    /// Returns the label of an option.
    pub fn label(name: &str) -> Option<&'static str> {
        OPTIONS.iter().find(|(option, ..)| *option == name).map(|(_, label, _)| *label)
    }
}

/// What was chosen, as facts of a session or job.
pub fn slurm_facts(chosen: &SlurmOptions) -> impl Iterator<Item = (&'static str, Option<String>)> {
    let label = |name: &str| SlurmFields::label(name).unwrap_or_default();
    chosen.entries().map(|(name, value)| (label(name), value.map(str::to_owned))).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_can_be_chosen() {
        let one_of = |names: &[&str]| Choice::OneOf(names.iter().map(|name| (*name).to_owned()).collect());
        let choices = SlurmChoices {
            partition: one_of(&["debug", "gpu"]),
            account: Choice::Fixed("no"),
            qos: Choice::Unknown,
            reservation: one_of(&[]),
            constraint: one_of(&["a100"]),
            ..SlurmChoices::default()
        };
        let chosen = SlurmOptions {
            partition: Some("gone".to_owned()),
            constraint: Some("a100&x".to_owned()),
            ..SlurmOptions::default()
        };
        let fields = SlurmFields::new(Some(&choices), &chosen);
        let told: Vec<_> = fields.0.iter().map(|field| format!("{}={:?}", field.name, field.values)).collect();
        assert_eq!(told, ["partition=[\"debug\", \"gpu\", \"gone\"]", "qos=[]", "constraint=[\"a100\"]"]);
        assert_eq!(fields.summary(), "gone · a100&x");
        assert!(SlurmFields::new(None, &chosen).0.is_empty());
    }
}
