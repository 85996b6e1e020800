//! How Slurm writes amounts: memory, time, GPUs, ranges of nodes. Each is a pure function of the
//! text and answers `None` for what cannot be counted.

use lyceum_model::{
    export,
    size::{MIB, parse_size},
};

/// The largest count of anything.
pub(super) const MAX_COUNT: i64 = 1_000_000;

/// Time as a script asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Seconds(i64),
    /// As long as the partition allows.
    Unlimited,
}

/// A number from 1 on.
pub(super) fn count(text: &str) -> Option<i64> {
    text.parse().ok().filter(|count| (1..=MAX_COUNT).contains(count))
}

/// `2`, `1-4`
pub(super) fn nodes(text: &str) -> Option<(i64, i64)> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let range = (count(least)?, count(most)?);
    (range.0 <= range.1).then_some(range)
}

/// `2`, `a100:2`, `a100`
pub(super) fn gpus(text: &str) -> Option<(Option<String>, i64)> {
    let is_model = |model: &str| {
        model.starts_with(|first: char| first.is_ascii_alphanumeric())
            && model.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let count = |text: &str| text.parse::<i64>().ok().filter(|count| (0..=MAX_COUNT).contains(count));
    match text.split_once(':') {
        Some((model, number)) => Some((Some(model.to_owned()).filter(|model| is_model(model))?.into(), count(number)?)),
        None => match count(text) {
            Some(count) => Some((None, count)),
            None => is_model(text).then(|| (Some(text.to_owned()), 1)),
        },
    }
}

/// `gpu`, `gpu:2`, `gpu:a100:2`, `none`; other resources are not counted here.
pub(super) fn gres(text: &str) -> Option<(Option<String>, i64)> {
    if text.eq_ignore_ascii_case("none") {
        return Some((None, 0));
    }
    let text = text.strip_prefix("gres:").or_else(|| text.strip_prefix("gres/")).unwrap_or(text);
    match text.strip_prefix("gpu")? {
        "" => Some((None, 1)),
        rest => gpus(rest.strip_prefix(':')?),
    }
}

/// `512`, `4G`: a bare number is megabytes, and 0 is all of a node.
pub(super) fn memory(text: &str) -> Option<i64> {
    let bytes = match text.parse::<i64>() {
        Ok(megabytes) => megabytes.checked_mul(MIB),
        Err(_) => parse_size(text),
    };
    bytes.filter(|bytes| *bytes >= 0)
}

/// `30`, `30:00`, `2:00:00`, `1-12`, `1-12:30`, `1-12:30:00`, `UNLIMITED`; nothing at all is no limit either.
pub(super) fn time(text: &str) -> Option<Time> {
    if ["unlimited", "infinite", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Some(Time::Unlimited);
    }
    let numbers = |text: &str| {
        let part = |part: &str| part.parse::<i64>().ok().filter(|number| (0..=MAX_COUNT).contains(number));
        text.split(':').map(part).collect::<Option<Vec<i64>>>()
    };
    let seconds = match text.split_once('-') {
        Some((days, clock)) => {
            let days = numbers(days).filter(|days| days.len() == 1)?[0];
            let clock = numbers(clock)?;
            let (hours, minutes, seconds) = match clock[..] {
                [hours] => (hours, 0, 0),
                [hours, minutes] => (hours, minutes, 0),
                [hours, minutes, seconds] => (hours, minutes, seconds),
                _ => return None,
            };
            days * 86_400 + hours * 3600 + minutes * 60 + seconds
        }
        None => match numbers(text)?[..] {
            [minutes] => minutes * 60,
            [minutes, seconds] => minutes * 60 + seconds,
            [hours, minutes, seconds] => hours * 3600 + minutes * 60 + seconds,
            _ => return None,
        },
    };
    // Slurm counts whole minutes, upwards.
    Some(if seconds == 0 {
        Time::Unlimited
    } else {
        Time::Seconds(seconds.div_euclid(60) * 60 + if seconds % 60 == 0 { 0 } else { 60 })
    })
}

/// `ALL`, `NONE`, `NIL`, `A,B=1`, `ALL,A='x,y'`: the variables that are given values. An error says what cannot be read.
pub(super) fn given(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut given = Vec::new();
    for part in export::parts(text).ok_or("`--export` contains a quotation mark that is not closed")? {
        match part.split_once('=') {
            Some((name, value)) if lyceum_node::apps::is_variable(name) => {
                given.push((name.to_owned(), value.to_owned()));
            }
            None if lyceum_node::apps::is_variable(&part) => {}
            _ => return Err(format!("`--export`: `{part}` is not a variable")),
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::size::GIB;

    #[test]
    fn times() {
        for (text, wanted) in [
            ("30", 1800),
            ("1:30", 120),
            ("2:00:00", 7200),
            ("1-0", 86_400),
            ("1-1:1", 90_060),
            ("00:00:30", 60),
            ("0-0:0:5", 60),
        ] {
            assert_eq!(time(text), Some(Time::Seconds(wanted)), "{text}");
        }
        for text in ["0", "UNLIMITED", "infinite", "00:00:00"] {
            assert_eq!(time(text), Some(Time::Unlimited), "{text}");
        }
        for text in ["", "-5", "1:2:3:4", "1-2-3", "tomorrow", "99999999999999999999"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn amounts() {
        assert_eq!((nodes("2"), nodes("1-4"), nodes("4-1"), nodes("0")), (Some((2, 2)), Some((1, 4)), None, None));
        assert_eq!(
            (memory("512"), memory("4G"), memory("0"), memory("-1")),
            (Some(512 * MIB), Some(4 * GIB), Some(0), None)
        );
        for (text, wanted) in [
            ("gpu", Some((None, 1))),
            ("none", Some((None, 0))),
            ("gpu:a100:2", Some((Some("a100".to_owned()), 2))),
            ("gres:gpu:2", Some((None, 2))),
            ("gpus:2", None),
            ("shard:1", None),
            ("gpu:1,nic:1", None),
        ] {
            assert_eq!(gres(text), wanted, "{text}");
        }
    }

    #[test]
    fn exports() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(given("HOME,A=1,B=\"x,y\"").unwrap(), [pair("A", "1"), pair("B", "\"x,y\"")]);
        assert_eq!(given("ALL").unwrap(), []);
        assert!(given("A='x").is_err() && given("1A=2").is_err() && given("a b").is_err());
    }
}
