//! The language in which rows of the table of results are picked: `lr < 0.01 and (optimizer = adam or
//! not name ~ test)`. Here it is read and evaluated, and a fault is told with its place. Which columns
//! there are is the table's to say. The page of compared runs knows the same language
//! (`static/curves/expression.js`); `tests/browser/expressions.json` holds both to one meaning.

use std::fmt;

/// A fault, with the place of the character where it is, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: usize,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (character {})", self.message, self.at)
    }
}

/// What picks rows. `C` says what a column is called by: a name as it was typed, or the column itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression<C> {
    /// Every row.
    Everything,
    /// Rows whose name holds this, in whatever case.
    Named(String),
    Compare {
        column: C,
        sign: Sign,
        value: Value,
    },
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// A column as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `last`, `best`, `min`, `max`, `param` or `metric`, as in `last(val/loss)`.
    pub which: Option<Statistic>,
    pub text: String,
    pub at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    Last,
    Best,
    Min,
    Max,
    Param,
    Metric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Holds,
    HoldsNot,
}

/// What a column is compared with. A number is compared as text too, with columns of text.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `none`: the row has nothing there.
    Nothing,
    Number {
        number: f64,
        typed: String,
    },
    Text(String),
}

/// What a row has in a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// It was not looked up yet.
    Unknown,
    Nothing,
    Number(f64),
    Text(String),
}

/// So deep may parentheses and `not` stand in one another.
const MAX_DEPTH: usize = 50;

/// Longer ones nobody types (characters).
pub const MAX_LENGTH: usize = 2000;

/// Reads an expression.
pub fn parse(text: &str) -> Result<Expression<Name>, Fault> {
    if text.chars().count() > MAX_LENGTH {
        return Err(Fault { at: MAX_LENGTH + 1, message: format!("Longer than {MAX_LENGTH} characters.") });
    }
    let mut reader = Reader { tokens: tokens(text)?, next: 0, depth: 0 };
    if reader.peek() == &Token::End {
        return Ok(Expression::Everything);
    }
    let read = reader.any()?;
    match reader.peek() {
        Token::End => Ok(read),
        token => Err(reader.fault(format!("Unexpected {token}; join conditions with “and” or “or”."))),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Open,
    Close,
    Sign(Sign),
    /// `,` and `;` are short for “and”.
    And,
    Or,
    Not,
    /// A bare word; quoted ones are never keywords.
    Word(String),
    Quoted(String),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => write!(f, "“(”"),
            Self::Close => write!(f, "“)”"),
            Self::Sign(sign) => write!(f, "“{}”", sign.as_str()),
            Self::And => write!(f, "“and”"),
            Self::Or => write!(f, "“or”"),
            Self::Not => write!(f, "“not”"),
            Self::Word(word) | Self::Quoted(word) => write!(f, "“{word}”"),
            Self::End => write!(f, "end"),
        }
    }
}

impl Sign {
    /// The longest first, as they are looked for.
    const ALL: [(&'static str, Self); 9] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::MoreOrEqual),
        ("!=", Self::Unequal),
        ("==", Self::Equal),
        ("!~", Self::HoldsNot),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::More),
        ("~", Self::Holds),
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::More => ">",
            Self::MoreOrEqual => ">=",
            Self::Holds => "~",
            Self::HoldsNot => "!~",
        }
    }
}

/// Cuts text into tokens, each with its place.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let characters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = characters.get(at) {
        let place = at + 1;
        let rest = &characters[at..];
        let sign =
            Sign::ALL.iter().find(|(sign, _)| sign.chars().zip(rest).filter(|(a, b)| a == *b).count() == sign.len());
        if c.is_whitespace() {
            at += 1;
        } else if let Some((text, sign)) = sign {
            found.push((place, Token::Sign(*sign)));
            at += text.len();
        } else if let Some(token) = match c {
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            ',' | ';' => Some(Token::And),
            _ => None,
        } {
            found.push((place, token));
            at += 1;
        } else if matches!(c, '"' | '\'' | '`') {
            let Some(length) = rest[1..].iter().position(|other| *other == c) else {
                return Err(Fault { at: place, message: format!("The quotation mark {c} is not closed.") });
            };
            found.push((place, Token::Quoted(rest[1..=length].iter().collect())));
            at += length + 2;
        } else {
            let ends = |c: &char| c.is_whitespace() || "()<>=!~,;\"'`".contains(*c);
            let length = rest.iter().position(ends).unwrap_or(rest.len());
            if length == 0 {
                return Err(Fault { at: place, message: format!("Unexpected character “{c}”.") });
            }
            let word: String = rest[..length].iter().collect();
            found.push((
                place,
                match word.to_ascii_lowercase().as_str() {
                    "and" => Token::And,
                    "or" => Token::Or,
                    "not" => Token::Not,
                    _ => Token::Word(word),
                },
            ));
            at += length;
        }
    }
    found.push((characters.len() + 1, Token::End));
    Ok(found)
}

struct Reader {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Reader {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |(at, _)| *at)
    }

    fn fault(&self, message: String) -> Fault {
        Fault { at: self.at(), message }
    }

    fn any(&mut self) -> Result<Expression<Name>, Fault> {
        let mut left = self.every()?;
        while self.peek() == &Token::Or {
            self.next += 1;
            left = Expression::Or(Box::new(left), Box::new(self.every()?));
        }
        Ok(left)
    }

    fn every(&mut self) -> Result<Expression<Name>, Fault> {
        let mut left = self.one()?;
        while self.peek() == &Token::And {
            self.next += 1;
            left = Expression::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Expression<Name>, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault("Too many nested parentheses.".to_owned()));
        }
        let read = match self.peek() {
            Token::Not => {
                self.next += 1;
                Expression::Not(Box::new(self.one()?))
            }
            Token::Open => {
                self.next += 1;
                let inner = self.any()?;
                if self.peek() != &Token::Close {
                    return Err(self.fault("A closing parenthesis is missing here.".to_owned()));
                }
                self.next += 1;
                inner
            }
            _ => self.condition()?,
        };
        self.depth -= 1;
        Ok(read)
    }

    /// A comparison, or a part of a name.
    fn condition(&mut self) -> Result<Expression<Name>, Fault> {
        let at = self.at();
        let (Token::Word(text) | Token::Quoted(text)) = self.peek().clone() else {
            return Err(self.fault(format!("Unexpected {}; expected a column or a part of a name.", self.peek())));
        };
        let is_bare = matches!(self.peek(), Token::Word(_));
        self.next += 1;
        let column = match which(&text).filter(|_| is_bare && self.peek() == &Token::Open) {
            Some(which) => {
                self.next += 1;
                let at = self.at();
                let (Token::Word(text) | Token::Quoted(text)) = self.peek().clone() else {
                    return Err(self.fault("A column is missing here.".to_owned()));
                };
                self.next += 1;
                if self.peek() != &Token::Close {
                    return Err(self.fault("A closing parenthesis is missing here.".to_owned()));
                }
                self.next += 1;
                Name { which: Some(which), text, at }
            }
            None => Name { which: None, text, at },
        };
        let Token::Sign(sign) = *self.peek() else {
            if column.which.is_some() {
                return Err(self.fault("A comparison is missing here.".to_owned()));
            }
            return Ok(Expression::Named(column.text.to_lowercase()));
        };
        self.next += 1;
        let value = match self.peek().clone() {
            Token::Quoted(text) => Value::Text(text),
            Token::Word(word) if word.eq_ignore_ascii_case("none") => Value::Nothing,
            Token::Word(word) => match word.parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Number { number, typed: word },
                _ => Value::Text(word),
            },
            _ => return Err(self.fault(format!("A value is missing after “{}”.", sign.as_str()))),
        };
        if value == Value::Nothing && !matches!(sign, Sign::Equal | Sign::Unequal) {
            return Err(self.fault("“none” can only be compared with = or !=.".to_owned()));
        }
        self.next += 1;
        Ok(Expression::Compare { column, sign, value })
    }
}

fn which(word: &str) -> Option<Statistic> {
    Some(match word.to_ascii_lowercase().as_str() {
        "last" => Statistic::Last,
        "best" => Statistic::Best,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "param" => Statistic::Param,
        "metric" => Statistic::Metric,
        _ => return None,
    })
}

impl<C> Expression<C> {
    /// The same with columns found for their names, or the first that cannot be.
    pub fn bind<D, E>(&self, find: &mut impl FnMut(&C) -> Result<D, E>) -> Result<Expression<D>, E> {
        Ok(match self {
            Self::Everything => Expression::Everything,
            Self::Named(part) => Expression::Named(part.clone()),
            Self::Compare { column, sign, value } => {
                Expression::Compare { column: find(column)?, sign: *sign, value: value.clone() }
            }
            Self::Not(inner) => Expression::Not(Box::new(inner.bind(find)?)),
            Self::And(left, right) => Expression::And(Box::new(left.bind(find)?), Box::new(right.bind(find)?)),
            Self::Or(left, right) => Expression::Or(Box::new(left.bind(find)?), Box::new(right.bind(find)?)),
        })
    }

    /// Whether a row is picked; `None` where that depends on what is not known yet.
    pub fn picks(&self, name: &str, cell: &impl Fn(&C) -> Cell) -> Option<bool> {
        match self {
            Self::Everything => Some(true),
            Self::Named(part) => Some(name.to_lowercase().contains(part)),
            Self::Compare { column, sign, value } => compare(&cell(column), *sign, value),
            Self::Not(inner) => inner.picks(name, cell).map(|picked| !picked),
            Self::And(left, right) => match (left.picks(name, cell), right.picks(name, cell)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (left, right) => left.zip(right).map(|(left, right)| left && right),
            },
            Self::Or(left, right) => match (left.picks(name, cell), right.picks(name, cell)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (left, right) => left.zip(right).map(|(left, right)| left || right),
            },
        }
    }
}

/// What is missing is unequal to everything but `none`, and holds nothing.
fn compare(cell: &Cell, sign: Sign, value: &Value) -> Option<bool> {
    let is_missing = match cell {
        Cell::Unknown => return None,
        cell => *cell == Cell::Nothing,
    };
    if *value == Value::Nothing || is_missing {
        let are_both = is_missing && *value == Value::Nothing;
        return Some(match sign {
            Sign::Equal => are_both,
            Sign::Unequal | Sign::HoldsNot => !are_both,
            _ => false,
        });
    }
    if let (Cell::Number(one), Value::Number { number: other, .. }) = (cell, value)
        && !matches!(sign, Sign::Holds | Sign::HoldsNot)
    {
        let order = one.partial_cmp(other)?;
        return Some(match sign {
            Sign::Equal => order.is_eq(),
            Sign::Unequal => order.is_ne(),
            Sign::Less => order.is_lt(),
            Sign::LessOrEqual => order.is_le(),
            Sign::More => order.is_gt(),
            _ => order.is_ge(),
        });
    }
    let one = match cell {
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => text.to_lowercase(),
        Cell::Unknown | Cell::Nothing => return None,
    };
    let other = match value {
        Value::Number { typed, .. } => typed.to_lowercase(),
        Value::Text(text) => text.to_lowercase(),
        Value::Nothing => return None,
    };
    Some(match sign {
        Sign::Equal => one == other,
        Sign::Unequal => one != other,
        Sign::Less => one < other,
        Sign::LessOrEqual => one <= other,
        Sign::More => one > other,
        Sign::MoreOrEqual => one >= other,
        Sign::Holds => one.contains(&other),
        Sign::HoldsNot => !one.contains(&other),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// The cases that the browser's reader is held to as well.
    #[derive(Deserialize)]
    struct Cases {
        rows: Vec<(String, BTreeMap<String, serde_json::Value>)>,
        picked: Vec<(String, Vec<String>)>,
        wrong: Vec<(String, usize)>,
    }

    fn cases() -> Cases {
        serde_json::from_str(include_str!("../../../../../tests/browser/expressions.json")).unwrap()
    }

    #[test]
    fn rows_are_picked_as_the_cases_say() {
        let Cases { rows, picked, .. } = cases();
        for (text, expected) in picked {
            let expression = parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            let found: Vec<String> = rows
                .iter()
                .filter(|(name, cells)| {
                    let cell = |column: &Name| match cells.get(&column.text) {
                        Some(serde_json::Value::Number(number)) => Cell::Number(number.as_f64().unwrap()),
                        Some(serde_json::Value::String(text)) => Cell::Text(text.clone()),
                        Some(serde_json::Value::Bool(is)) => Cell::Text(is.to_string()),
                        _ => Cell::Nothing,
                    };
                    expression.picks(name, &cell).unwrap()
                })
                .map(|(name, _)| name.clone())
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn faults_have_their_place() {
        for (text, at) in cases().wrong {
            assert_eq!(parse(&text).unwrap_err().at, at, "{text}");
        }
        assert_eq!(parse(&"(".repeat(500)).unwrap_err().at, 51);
        assert_eq!(parse(&"not ".repeat(60)).unwrap_err().message, "Too many nested parentheses.");
        assert_eq!(parse(&"x".repeat(2001)).unwrap_err().at, 2001);
        let fault = parse("lr < ").unwrap_err();
        assert_eq!(fault.to_string(), "A value is missing after “<”. (character 6)");
    }

    #[test]
    fn what_is_not_known_leaves_a_row_open() {
        let open = |text: &str| {
            parse(text).unwrap().picks("a", &|column: &Name| match column.text.as_str() {
                "x" => Cell::Unknown,
                _ => Cell::Number(1.0),
            })
        };
        assert_eq!(open("x > 1"), None);
        assert_eq!(open("x > 1 and y = 2"), Some(false));
        assert_eq!(open("x > 1 or y = 1"), Some(true));
        assert_eq!(open("not x > 1"), None);
        assert_eq!(open("x > 1 and y = 1"), None);
    }

    #[test]
    fn a_column_may_say_which_value_is_meant() {
        let Expression::Compare { column, .. } = parse("last(`train: loss`) < 2").unwrap() else { panic!() };
        assert_eq!((column.which, column.text.as_str()), (Some(Statistic::Last), "train: loss"));
        // `best` is a name like any other where no parenthesis follows.
        let Expression::Compare { column, .. } = parse("best = 2").unwrap() else { panic!() };
        assert_eq!((column.which, column.text.as_str()), (None, "best"));
    }
}
