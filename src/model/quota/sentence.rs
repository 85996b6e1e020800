//! How a reason is said: one sentence or two, what is in the way and what would change it.
//! The numbers beside it are data; pages, API and log show the same words.

use super::{Field, MACHINE, ORDER, Period, Reason, Whose, hours};
use crate::model::time::human_duration;

/// What the time is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Something new.
    Start,
    /// What runs already, and cannot do with less than it has.
    Extension,
}

/// What is asked for, measured against a limit. Hours are given in seconds here, their limit
/// in hours.
#[derive(Clone, Copy)]
pub(super) struct Amount<'a> {
    pub field: &'a Field,
    pub used: i64,
    pub requested: i64,
    pub limit: i64,
}

impl Amount<'_> {
    pub(super) fn never_fits(&self) -> bool {
        self.limit < self.requested
    }

    pub(super) fn is_over(&self) -> bool {
        self.limit < self.used.saturating_add(self.requested)
    }

    fn reason(&self, code: String, scope: String, hint: String) -> Reason {
        let Self { used, requested, limit, .. } = *self;
        let over_by = used.saturating_add(requested).saturating_sub(limit).max(0);
        Reason { code, scope, used, requested, limit, over_by, hint }
    }

    /// “and 2 are in use”, without the words around.
    fn in_use(&self) -> String {
        format!("{} {} in use", self.field.number(self.used), if self.used == 1 { "is" } else { "are" })
    }

    /// What would fit now, where it is less than what was asked for.
    fn fitting(&self) -> Option<String> {
        let left = self.limit - self.used;
        (0 < left && self.requested != 1).then(|| self.field.amount(left))
    }
}

/// `default`, `override` … for one person's limit; of totals, whose they are.
pub(super) fn scope(whose: &Whose) -> String {
    match whose {
        Whose::Cluster => "cluster".to_owned(),
        Whose::Group { name, .. } => format!("group {name}"),
    }
}

pub(super) fn too_much(amount: &Amount<'_>, source: &str) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let hint = match limit {
        0 => format!("Your limit is no {} at all ({source}). Ask an administrator for some.", field.plural()),
        _ => format!(
            "This asks for {}; your limit is {} ({source}). Ask for at most {}.",
            field.amount(amount.requested),
            field.amount(limit),
            field.amount(limit)
        ),
    };
    Amount { used: 0, ..*amount }.reason(quota_code(field, "user"), source.to_owned(), hint)
}

pub(super) fn in_the_way(amount: &Amount<'_>, source: &str, own: &[(String, i64)]) -> Reason {
    let holders: Vec<&(String, i64)> = match amount.field {
        Field::Gpus | Field::GpusOf(_) => own.iter().filter(|(_, gpus)| 0 < *gpus).collect(),
        _ => own.iter().collect(),
    };
    let by = match holders.as_slice() {
        [] => String::new(),
        [(name, _)] => format!(" by ‘{name}’"),
        [(first, _), (second, _)] => format!(" by ‘{first}’ and ‘{second}’"),
        [(first, _), ..] => format!(" by ‘{first}’ and {} more", holders.len() - 1),
    };
    let which = if holders.len() == 1 { "it" } else { "one" };
    let way_out = match amount.fitting() {
        Some(fitting) => format!("Stop {which}, or ask for at most {fitting}."),
        None => format!("Stop {which} to make room."),
    };
    let hint = format!("Your limit is {} and {}{by}. {way_out}", amount.field.amount(amount.limit), amount.in_use());
    amount.reason(quota_code(amount.field, "user"), source.to_owned(), hint)
}

pub(super) fn too_much_together(amount: &Amount<'_>, whose: &Whose) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let who = all_of(whose);
    let hint = match (limit, whose) {
        (0, Whose::Group { is_charged: true, .. }) => format!(
            "{} may use no {} at all. Ask an administrator, or choose another group.",
            capital(&who),
            field.plural()
        ),
        (0, Whose::Group { .. }) => {
            format!("{} may use no {} at all, and you are in it. Ask an administrator.", capital(&who), field.plural())
        }
        (0, Whose::Cluster) => {
            format!("{} may use no {} at all now. Ask an administrator.", capital(&who), field.plural())
        }
        _ => format!(
            "This asks for {}; {who} may use {} together. Ask for at most {}.",
            field.amount(amount.requested),
            field.amount(limit),
            field.amount(limit)
        ),
    };
    Amount { used: 0, ..*amount }.reason(quota_code(field, kind(whose)), scope(whose), hint)
}

pub(super) fn in_the_way_together(amount: &Amount<'_>, whose: &Whose) -> Reason {
    let ends = match whose {
        Whose::Group { is_charged: true, .. } => "one of its sessions ends",
        Whose::Group { .. } => "something that its members run ends",
        Whose::Cluster => "something ends",
    };
    let way_out = match amount.fitting() {
        Some(fitting) => format!("Ask for at most {fitting}, or wait until {ends}."),
        None => format!("This starts when {ends}."),
    };
    let (who, limit) = (capital(&all_of(whose)), amount.field.amount(amount.limit));
    let hint = format!("{who} may use {limit} together and {}. {way_out}", amount.in_use());
    amount.reason(quota_code(amount.field, kind(whose)), scope(whose), hint)
}

/// Hours would run over. The reason's numbers are whole hours, rounded up.
pub(super) fn hours_over(
    amount: &Amount<'_>,
    whose: Option<&Whose>,
    source: &str,
    period: &Period,
    what: What,
) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let left = limit.saturating_mul(3600).saturating_sub(amount.used).max(0);
    let (time, fewer) = if *field == Field::GpuHours { ("GPU time", "GPUs") } else { ("core time", "cores") };
    let (of, from) = match whose {
        None => ("your".to_owned(), format!(" ({source})")),
        Some(whose) => (format!("{}'s", all_of(whose)), String::new()),
    };
    let way_out = match what {
        What::Start => format!("Ask for less time or fewer {fewer}."),
        What::Extension => "Ask for less time.".to_owned(),
    };
    let hint = format!(
        "This could use {} of {time}; of {of} {} {period}{from} {} are left, with what runs counted to its end. {way_out}",
        human_duration(amount.requested),
        field.amount(limit),
        human_duration(left)
    );
    let over_by = hours(amount.used.saturating_add(amount.requested).saturating_sub(limit.saturating_mul(3600)));
    let rounded = Amount { used: hours(amount.used), requested: hours(amount.requested), ..*amount };
    let reason = rounded.reason(quota_code(field, whose.map_or("user", kind)), source.to_owned(), hint);
    Reason { over_by, ..reason }
}

pub(super) fn extended_often(extensions: i64, limit: i64, source: &str) -> Reason {
    let hint = match limit {
        0 => format!("Sessions cannot be extended ({source}). Start another one when this has ended."),
        1 => format!("It was extended once, as often as is allowed ({source}). Start another one when this has ended."),
        _ => format!(
            "It was extended {extensions} times, as often as is allowed ({source}). Start another one when this has ended."
        ),
    };
    let amount = Amount { field: &Field::MaxExtensions, used: extensions, requested: 1, limit };
    amount.reason(quota_code(&Field::MaxExtensions, "user"), source.to_owned(), hint)
}

pub(super) fn extends_too_far(amount: &Amount<'_>, source: &str) -> Reason {
    let (asked, limit) = (human_duration(amount.requested), human_duration(amount.limit));
    let hint = match amount.limit {
        0 => format!("Sessions cannot be extended ({source}). Start another one when this has ended."),
        _ => format!("This asks for {asked} more; you may ask for at most {limit} at once ({source})."),
    };
    amount.reason(quota_code(amount.field, "user"), source.to_owned(), hint)
}

/// Others lack room for what a session holds that wants more time.
pub(super) fn others_wait(count: usize) -> Reason {
    let who = if count == 1 {
        "A request of somebody else waits".to_owned()
    } else {
        format!("{count} requests of others wait")
    };
    let hint =
        format!("{who} for what this session holds. It runs to its end, and can be extended when nobody waits for it.");
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Reason {
        code: "queue.others".to_owned(),
        scope: "queue".to_owned(),
        used: count,
        requested: 1,
        limit: 0,
        over_by: count,
        hint,
    }
}

pub(super) fn too_many_wait(pending: i64, limit: i64, source: &str) -> Reason {
    let hint = format!(
        "This would have to wait, and {pending} of yours wait already, as many as may. Cancel one, or ask again when \
         one has started."
    );
    let amount = Amount { field: &Field::Pending, used: pending, requested: 1, limit };
    amount.reason(quota_code(&Field::Pending, "user"), source.to_owned(), hint)
}

pub(super) fn machine_too_small(amount: &Amount<'_>) -> Reason {
    let (asked, has) = (amount.field.amount(amount.requested), amount.field.amount(amount.limit));
    let hint = match amount.limit {
        0 => format!("This asks for {asked}; the machine has none."),
        _ => format!("This asks for {asked}; the machine has {has}. Ask for at most that."),
    };
    Amount { used: 0, ..*amount }.reason(format!("capacity.{}", word(amount.field)), MACHINE.to_owned(), hint)
}

pub(super) fn machine_full(amount: &Amount<'_>) -> Reason {
    let has = amount.field.amount(amount.limit);
    let hint = match (amount.limit - amount.used).max(0) {
        0 => format!("All of the machine's {has} are in use. This starts when something ends."),
        free => format!(
            "This asks for {}; {} of the machine's {has} {} free now. It starts when something ends.",
            amount.field.amount(amount.requested),
            amount.field.number(free),
            if free == 1 { "is" } else { "are" },
        ),
    };
    amount.reason(format!("capacity.{}", word(amount.field)), MACHINE.to_owned(), hint)
}

/// Others, asked for earlier or by people who used less, would be delayed.
pub(super) fn behind_others(ahead: usize, ends_in_time: Option<i64>) -> Reason {
    let requests = if ahead == 1 { "A larger request is".to_owned() } else { format!("{ahead} larger requests are") };
    let way_out = match ends_in_time {
        Some(seconds) => format!(", or ask for at most {}", human_duration(seconds)),
        None => String::new(),
    };
    let hint =
        format!("{requests} ahead of this one and would start later if this went first. Wait for that{way_out}.");
    let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
    Reason {
        code: ORDER.to_owned(),
        scope: "queue".to_owned(),
        used: ahead,
        requested: 1,
        limit: 0,
        over_by: ahead,
        hint,
    }
}

fn quota_code(field: &Field, whose: &str) -> String {
    format!("quota.{}.{whose}", word(field))
}

fn kind(whose: &Whose) -> &'static str {
    match whose {
        Whose::Cluster => "cluster",
        Whose::Group { .. } => "group",
    }
}

/// The middle of a code: the field's name, shorter where only one thing can be meant.
fn word(field: &Field) -> String {
    match field {
        Field::MemoryBytes => "memory".to_owned(),
        Field::MaxSessionSeconds => "duration".to_owned(),
        Field::GpusOf(_) => "gpus".to_owned(),
        other => other.name().into_owned(),
    }
}

fn all_of(whose: &Whose) -> String {
    match whose {
        Whose::Cluster => "all people".to_owned(),
        Whose::Group { name, .. } => format!("group ‘{name}’"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
