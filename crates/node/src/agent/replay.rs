//! What a terminal has shown so far, fit to be shown again. An emulator that reads a question
//! (which device are you, where is the cursor, which colour is this) types the answer into
//! the shell; so questions must reach exactly one emulator, once. [`Filter`] takes them out
//! of a stream, [`Scrollback`] keeps the last of what remains.

use std::collections::VecDeque;

/// What is kept for replay, in bytes.
const SCROLLBACK: usize = 256 * 1024;

/// So much more may gather before the oldest goes, so that it goes in large pieces.
const SLACK: usize = 64 * 1024;

/// The longest sequence that is kept whole; longer ones (pictures, mostly) are left out.
const MAX_SEQUENCE_LENGTH: usize = 8 * 1024;

/// The last bytes of a filtered stream.
#[derive(Default)]
pub(super) struct Scrollback {
    bytes: VecDeque<u8>,
}

impl Scrollback {
    /// Appends whole sequences; the oldest lines go when it is full.
    pub fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if SCROLLBACK + SLACK < self.bytes.len() {
            self.bytes.drain(..self.bytes.len() - SCROLLBACK);
            // A line's start is no part of a sequence; without a line nearby, start anywhere.
            if let Some(end) = self.bytes.iter().take(MAX_SEQUENCE_LENGTH).position(|byte| *byte == b'\n') {
                self.bytes.drain(..=end);
            }
        }
    }

    pub fn replay(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

/// Takes out of a terminal's output what an emulator would answer, chunk by chunk. A sequence
/// that is not complete yet is held back until it is.
#[derive(Default)]
pub(super) struct Filter {
    state: State,
    pending: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After 0xC2, which may start the UTF-8 form of a C1 control.
    Lead,
    Escape,
    /// `ESC` and intermediates, up to a final byte: character sets and the like.
    EscapeMore,
    /// `CSI` up to its final byte.
    Control,
    /// `OSC` up to BEL or ST.
    Command,
    /// `DCS`, `SOS`, `PM`, `APC` up to ST: never replayed.
    Text2End,
    /// An `ESC` inside a string; a `\` ends it.
    CommandEscape,
    Text2EndEscape,
}

impl Filter {
    /// What of these bytes, and of those held back before, may be shown to everybody.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.step(byte, &mut shown);
        }
        shown
    }

    /// The start of a sequence that is not complete yet.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    fn step(&mut self, byte: u8, shown: &mut Vec<u8>) {
        if self.state == State::Text {
            match byte {
                0x1b => self.hold(byte, State::Escape),
                0xc2 => self.hold(byte, State::Lead),
                // ENQ asks for the answerback string.
                0x05 => {}
                _ => shown.push(byte),
            }
            return;
        }
        // CAN and SUB abandon any sequence.
        if matches!(byte, 0x18 | 0x1a) {
            self.pending.clear();
            self.state = State::Text;
            return;
        }
        if self.pending.len() < MAX_SEQUENCE_LENGTH {
            self.pending.push(byte);
        }
        match self.state {
            State::Text => {}
            State::Lead => self.introduce(
                match byte {
                    0x90 => b'P',
                    0x98 => b'X',
                    0x9a => b'Z',
                    0x9b => b'[',
                    0x9d => b']',
                    0x9e => b'^',
                    0x9f => b'_',
                    _ => return self.end(true, shown),
                },
                shown,
            ),
            State::Escape => self.introduce(byte, shown),
            State::EscapeMore => match byte {
                0x20..=0x2f => {}
                0x1b => self.restart(),
                _ => self.end(true, shown),
            },
            State::Control => match byte {
                0x40..=0x7e => {
                    let harmless = !asks(&self.pending);
                    self.end(harmless, shown);
                }
                0x1b => self.restart(),
                _ => {}
            },
            State::Command | State::CommandEscape => self.string(byte, State::Command, shown),
            State::Text2End | State::Text2EndEscape => self.string(byte, State::Text2End, shown),
        }
    }

    /// `ESC` came, or its C1 form; this byte says what kind of sequence it is.
    fn introduce(&mut self, byte: u8, shown: &mut Vec<u8>) {
        match byte {
            b'[' => self.state = State::Control,
            b']' => self.state = State::Command,
            b'P' | b'X' | b'^' | b'_' => self.state = State::Text2End,
            // DECID: which device are you.
            b'Z' => self.end(false, shown),
            0x20..=0x2f => self.state = State::EscapeMore,
            0x1b => self.restart(),
            _ => self.end(true, shown),
        }
    }

    fn string(&mut self, byte: u8, inside: State, shown: &mut Vec<u8>) {
        let is_command = inside == State::Command;
        let after_escape = self.state != inside;
        let ended_by_c1 =
            byte == 0x9c && self.pending.len() < MAX_SEQUENCE_LENGTH && self.pending.ends_with(&[0xc2, 0x9c]);
        if (after_escape && byte == b'\\') || (is_command && byte == 0x07) || ended_by_c1 {
            let keep = is_command && self.pending.len() < MAX_SEQUENCE_LENGTH && !asks_command(&self.pending);
            self.end(keep, shown);
        } else if after_escape && byte != 0x1b {
            // The string was cut off by another sequence, which begins with that `ESC`.
            self.pending = vec![0x1b, byte];
            self.introduce(byte, shown);
        } else if byte == 0x1b {
            self.state = if is_command { State::CommandEscape } else { State::Text2EndEscape };
        } else {
            self.state = inside;
        }
    }

    fn hold(&mut self, byte: u8, state: State) {
        self.pending.push(byte);
        self.state = state;
    }

    /// An `ESC` inside a sequence abandons it and begins another.
    fn restart(&mut self) {
        self.pending = vec![0x1b];
        self.state = State::Escape;
    }

    fn end(&mut self, keep: bool, shown: &mut Vec<u8>) {
        if keep && self.pending.len() < MAX_SEQUENCE_LENGTH {
            shown.append(&mut self.pending);
        }
        self.pending.clear();
        self.state = State::Text;
    }
}

/// Whether a control sequence makes an emulator answer: device attributes (`c`), status and
/// cursor reports (`n`), the window's measures (`t`), modes (`$p`), checksums (`*y`), terminal
/// parameters (`x`), state reports (`$w`), version (`>q`), keyboard protocol (`?u`).
fn asks(sequence: &[u8]) -> bool {
    let Some((&last, rest)) = sequence.split_last() else { return false };
    let start = if sequence.first() == Some(&0xc2) || sequence.first() == Some(&0x1b) { 2 } else { 0 };
    let parameters = rest.get(start..).unwrap_or_default();
    match last {
        b'c' | b'n' | b't' | b'x' => true,
        b'p' | b'w' => parameters.contains(&b'$'),
        b'y' => parameters.contains(&b'*'),
        b'q' => parameters.starts_with(b">"),
        b'u' => parameters.starts_with(b"?"),
        _ => false,
    }
}

/// Whether an operating-system command asks (a parameter `?`) or touches the clipboard (52).
fn asks_command(sequence: &[u8]) -> bool {
    let body: Vec<u8> = sequence.iter().skip(2).copied().take_while(|byte| !matches!(byte, 0x07 | 0x1b)).collect();
    let mut parameters = body.split(|byte| *byte == b';');
    parameters.next() == Some(b"52") || parameters.any(|parameter| parameter.starts_with(b"?") && parameter.len() <= 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filtered(text: &[u8]) -> Vec<u8> {
        Filter::default().pass(text)
    }

    #[test]
    fn questions_go() {
        for question in [
            "\u{1b}[c",
            "\u{1b}[>c",
            "\u{1b}[=0c",
            "\u{1b}[6n",
            "\u{1b}[?6n",
            "\u{1b}[5n",
            "\u{1b}[18t",
            "\u{1b}[?2026$p",
            "\u{1b}[>q",
            "\u{1b}[?u",
            "\u{1b}[0x",
            "\u{1b}[1;1;1;1;2;2*y",
            "\u{1b}Z",
            "\u{5}",
            "\u{9b}6n",
            "\u{1b}]10;?\u{7}",
            "\u{1b}]11;?\u{1b}\\",
            "\u{1b}]4;1;?\u{1b}\\",
            "\u{1b}]52;c;aGk=\u{7}",
            "\u{9d}11;?\u{9c}",
            "\u{1b}P$qm\u{1b}\\",
            "\u{1b}P+q544e\u{1b}\\",
            "\u{1b}_Gi=31,s=1,v=1,a=q;AAAA\u{1b}\\",
        ] {
            let text = format!("a{question}b");
            assert_eq!(filtered(text.as_bytes()), b"ab", "{question:?}");
        }
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "plain\r\n",
            "\u{1b}[31mred\u{1b}[0m",
            "\u{1b}[2J\u{1b}[1;1H",
            "\u{1b}[?1049h",
            "\u{1b}]0;title?\u{7}",
            "\u{1b}]8;;http://x/?a=b\u{1b}\\link\u{1b}]8;;\u{1b}\\",
            "\u{1b}(B\u{1b}=\u{1b}7",
            "\u{1b}[3 q",
            "\u{1b}[!p",
            "\u{1b}[u",
            "Größe — 日本 \u{a0}\u{e9}",
        ] {
            assert_eq!(filtered(text.as_bytes()), text.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn a_sequence_under_way_is_held_back() {
        let mut filter = Filter::default();
        assert_eq!(filter.pass(b"a\x1b[3"), b"a");
        assert_eq!(filter.pending(), b"\x1b[3");
        assert_eq!(filter.pass(b"1mb"), b"\x1b[31mb");
        assert_eq!(filter.pending(), b"");
        assert_eq!(filter.pass(b"\x1b[31\x18x"), b"x", "CAN abandons a sequence");
    }

    #[test]
    fn an_endless_string_holds_no_memory() {
        let mut filter = Filter::default();
        filter.pass(b"\x1b]1337;File=:");
        for _ in 0..1000 {
            filter.pass(&[b'A'; 1024]);
        }
        assert!(filter.pending().len() <= MAX_SEQUENCE_LENGTH);
        assert_eq!(filter.pass(b"\x07after"), b"after");
    }

    #[test]
    fn scrollback_starts_with_a_line() {
        let mut scrollback = Scrollback::default();
        for number in 0..60_000 {
            scrollback.append(format!("line {number}\n").as_bytes());
        }
        let replay = String::from_utf8(scrollback.replay()).unwrap();
        assert!((SCROLLBACK - 64..=SCROLLBACK + SLACK).contains(&replay.len()));
        assert!(replay.starts_with("line ") && replay.ends_with("line 59999\n"));
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(bytes in arbitrary_output(), cut in 0_usize..64) {
            let whole = filtered(&bytes);
            let mut filter = Filter::default();
            let cut = cut.min(bytes.len());
            let mut pieces = filter.pass(&bytes[..cut]);
            pieces.extend(filter.pass(&bytes[cut..]));
            prop_assert_eq!(pieces, whole);
        }

        #[test]
        fn filtered_once_is_filtered(bytes in arbitrary_output()) {
            let once = filtered(&bytes);
            prop_assert_eq!(filtered(&once), once);
        }
    }

    fn arbitrary_output() -> impl Strategy<Value = Vec<u8>> {
        let alphabet = b"\x1b\x1b\x1b[[]P\\;?$>cn6mq\x07\x05\x18\xc2\x9b\x9d\x9cx ".to_vec();
        proptest::collection::vec(proptest::sample::select(alphabet), 0..64)
    }
}
