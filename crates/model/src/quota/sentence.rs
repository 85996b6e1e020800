//! How a reason is said: one sentence or two, what is in the way and what would change it.
//! The numbers beside it are data; pages, API and log show the same words.

use super::{Code, Field, Holder, Period, Reason, Rule, Source, TotalScope, hours};
use crate::time::human_duration;

/// What the time is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TimePurpose {
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

    fn reason(&self, code: Code, source: Source, hint: String) -> Reason {
        let Self { used, requested, limit, .. } = *self;
        let over_by = used.saturating_add(requested).saturating_sub(limit).max(0);
        Reason { code, source, used, requested, limit, over_by, hint }
    }

    /// “and 2 are in use”, without the words around.
    fn in_use(&self) -> String {
        format!("{} {} in use", self.field.number(self.used), if self.used == 1 { "is" } else { "are" })
    }

    /// What would fit now, where it is less than what was asked for.
    fn fitting(&self) -> Option<String> {
        let left = self.limit - self.used;
        (left > 0 && self.requested != 1).then(|| self.field.amount(left))
    }
}

pub(super) fn too_much(amount: &Amount<'_>, source: &Source) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let hint = match limit {
        0 => format!("Your limit is {} ({source}). Ask an administrator to raise it.", field.amount(0)),
        _ => format!(
            "This asks for {}; your limit is {} ({source}). Ask for at most {}.",
            field.amount(amount.requested),
            field.amount(limit),
            field.amount(limit)
        ),
    };
    Amount { used: 0, ..*amount }.reason(Code::limit(field, Holder::User), source.clone(), hint)
}

pub(super) fn in_the_way(amount: &Amount<'_>, source: &Source, own: &[(String, i64)]) -> Reason {
    let holders: Vec<&(String, i64)> = match amount.field {
        Field::Gpus | Field::GpusOf(_) => own.iter().filter(|(_, gpus)| *gpus > 0).collect(),
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
    amount.reason(Code::limit(amount.field, Holder::User), source.clone(), hint)
}

pub(super) fn too_much_together(amount: &Amount<'_>, whose: &TotalScope) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let who = all_of(whose);
    let hint = match (limit, whose) {
        (0, TotalScope::Group { is_charged: true, .. }) => format!(
            "{} cannot use any {}. Ask an administrator, or choose another group.",
            capital(&who),
            field.plural()
        ),
        (0, TotalScope::Group { .. }) => {
            format!("{} cannot use any {}, and you are in it. Ask an administrator.", capital(&who), field.plural())
        }
        (0, TotalScope::Cluster) => {
            format!("{} cannot use any {} now. Ask an administrator.", capital(&who), field.plural())
        }
        _ => format!(
            "This asks for {}; {who} may use {} together. Ask for at most {}.",
            field.amount(amount.requested),
            field.amount(limit),
            field.amount(limit)
        ),
    };
    Amount { used: 0, ..*amount }.reason(Code::limit(field, whose.into()), Source::of_total(whose), hint)
}

pub(super) fn in_the_way_together(amount: &Amount<'_>, whose: &TotalScope) -> Reason {
    let ends = match whose {
        TotalScope::Group { is_charged: true, .. } => "one of its sessions ends",
        TotalScope::Group { .. } => "a workload of its members ends",
        TotalScope::Cluster => "something ends",
    };
    let way_out = match amount.fitting() {
        Some(fitting) => format!("Ask for at most {fitting}, or wait until {ends}."),
        None => format!("This starts when {ends}."),
    };
    let (who, limit) = (capital(&all_of(whose)), amount.field.amount(amount.limit));
    let hint = format!("{who} may use {limit} together and {}. {way_out}", amount.in_use());
    amount.reason(Code::limit(amount.field, whose.into()), Source::of_total(whose), hint)
}

/// Hours would run over. The reason's numbers are whole hours, rounded up.
pub(super) fn hours_over(
    amount: &Amount<'_>,
    whose: Option<&TotalScope>,
    source: &Source,
    period: &Period,
    what: TimePurpose,
) -> Reason {
    let (field, limit) = (amount.field, amount.limit);
    let left = limit.saturating_mul(3600).saturating_sub(amount.used).max(0);
    let (time, fewer) = if *field == Field::GpuHours { ("GPU time", "GPUs") } else { ("core time", "cores") };
    let (of, from) = match whose {
        None => ("your".to_owned(), format!(" ({source})")),
        Some(whose) => (format!("{}'s", all_of(whose)), String::new()),
    };
    let way_out = match what {
        TimePurpose::Start => format!("Ask for less time or fewer {fewer}."),
        TimePurpose::Extension => "Ask for less time.".to_owned(),
    };
    let hint = format!(
        "This could use {} of {time}; of {of} {} {period}{from} {} are left, counting running workloads to their end. \
         {way_out}",
        human_duration(amount.requested),
        field.amount(limit),
        human_duration(left)
    );
    let over_by = hours(amount.used.saturating_add(amount.requested).saturating_sub(limit.saturating_mul(3600)));
    let rounded = Amount { used: hours(amount.used), requested: hours(amount.requested), ..*amount };
    let reason = rounded.reason(Code::limit(field, whose.map_or(Holder::User, Holder::from)), source.clone(), hint);
    Reason { over_by, ..reason }
}

pub(super) fn extended_often(extensions: i64, limit: i64, source: &Source) -> Reason {
    let hint = match limit {
        0 => format!("Sessions cannot be extended ({source}). Start another one when this has ended."),
        1 => format!(
            "It was already extended once, which is the limit ({source}). Start another one when this has ended."
        ),
        _ => format!(
            "It was already extended {extensions} times, which is the limit ({source}). Start another one when this \
             has ended."
        ),
    };
    let amount = Amount { field: &Field::MaxExtensions, used: extensions, requested: 1, limit };
    amount.reason(Code::limit(&Field::MaxExtensions, Holder::User), source.clone(), hint)
}

pub(super) fn extends_too_far(amount: &Amount<'_>, source: &Source) -> Reason {
    let (asked, limit) = (human_duration(amount.requested), human_duration(amount.limit));
    let hint = match amount.limit {
        0 => format!("Sessions cannot be extended ({source}). Start another one when this has ended."),
        _ => format!("This asks for {asked} more; you may ask for at most {limit} at once ({source})."),
    };
    amount.reason(Code::limit(amount.field, Holder::User), source.clone(), hint)
}

/// Others lack room for what a session holds that wants more time.
pub(super) fn others_wait(count: usize) -> Reason {
    let who = if count == 1 {
        "A request of another user waits".to_owned()
    } else {
        format!("{count} requests of other users wait")
    };
    let hint = format!(
        "{who} for the resources of this session. The session runs to its end, and can be extended when no request \
         waits for them."
    );
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Reason {
        code: Code::Rule(Rule::OthersWait),
        source: Source::Queue,
        used: count,
        requested: 1,
        limit: 0,
        over_by: count,
        hint,
    }
}

pub(super) fn too_many_wait(pending: i64, limit: i64, source: &Source) -> Reason {
    let hint = format!(
        "This would have to wait, and {pending} of your requests already wait, which is the limit. Cancel one, or try \
         again when one has started."
    );
    let amount = Amount { field: &Field::Pending, used: pending, requested: 1, limit };
    amount.reason(Code::limit(&Field::Pending, Holder::User), source.clone(), hint)
}

pub(super) fn machine_too_small(amount: &Amount<'_>) -> Reason {
    let (asked, has) = (amount.field.amount(amount.requested), amount.field.amount(amount.limit));
    let hint = match amount.limit {
        0 => format!("This asks for {asked}; the machine has none."),
        _ => format!("This asks for {asked}; the machine has {has}. Ask for at most that."),
    };
    Amount { used: 0, ..*amount }.reason(Code::Capacity(amount.field.clone()), Source::Machine, hint)
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
    amount.reason(Code::Capacity(amount.field.clone()), Source::Machine, hint)
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
        code: Code::Rule(Rule::Order),
        source: Source::Queue,
        used: ahead,
        requested: 1,
        limit: 0,
        over_by: ahead,
        hint,
    }
}

fn all_of(whose: &TotalScope) -> String {
    match whose {
        TotalScope::Cluster => "all users".to_owned(),
        TotalScope::Group { name, .. } => format!("group ‘{name}’"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
