//! Texts that people bring: UTF-8 with or without its mark, UTF-16 as Windows saves it, lines
//! that end in any way. What cannot be shown in a list is made harmless here too.

/// A text, or why it is none.
pub fn decode(bytes: &[u8]) -> Result<String, String> {
    let wide = |from: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes[2..].as_chunks::<2>();
        let text = String::from_utf16(&pairs.iter().map(|pair| from(*pair)).collect::<Vec<_>>());
        text.ok()
            .filter(|_| rest.is_empty())
            .ok_or_else(|| "the file starts like UTF-16 but is not valid UTF-16".to_owned())
    };
    match bytes {
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
                Err(format!("line {line} is neither UTF-8 nor UTF-16"))
            }
        },
    }
}

/// The lines that say something, with their numbers from 1.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    all_lines(text).filter(|(_, line)| !line.starts_with('#'))
}

/// The same with the lines that begin with `#`, which are names like any other.
pub fn all_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split(['\n', '\r']).zip(line_numbers(text));
    lines.map(|(line, number)| (number, line.trim())).filter(|(_, line)| !line.is_empty())
}

/// The number of each piece between line feeds and carriage returns; both together end one line.
fn line_numbers(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let ends = (0..bytes.len()).filter(move |&at| matches!(bytes[at], b'\n' | b'\r'));
    std::iter::once(1).chain(ends.scan(1, move |number, at| {
        *number += usize::from(!(bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n')));
        Some(*number)
    }))
}

/// A message of somebody else's code, for a line of a list.
pub fn short(message: &str) -> String {
    let visible: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    visible.trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, to: fn(u16) -> [u8; 2]) -> Vec<u8> {
        std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(to).collect()
    }

    #[test]
    fn texts_of_every_system() {
        let text = "Bär Eis.png 1\r\n";
        assert_eq!(decode(text.as_bytes()).unwrap(), text);
        assert_eq!(decode(&[b"\xEF\xBB\xBF", text.as_bytes()].concat()).unwrap(), text);
        assert_eq!(decode(&utf16(text, u16::to_le_bytes)).unwrap(), text);
        assert_eq!(decode(&utf16(text, u16::to_be_bytes)).unwrap(), text);
        assert!(decode(b"ok\nB\xE4r").unwrap_err().contains("line 2"));
        assert!(decode(b"\xFF\xFEa").is_err());
    }

    #[test]
    fn lines_end_in_any_way_and_keep_their_numbers() {
        let found: Vec<_> = lines("a\r\n\r\n  b \n# no\rc").collect();
        assert_eq!(found, [(1, "a"), (3, "b"), (5, "c")]);
        assert_eq!(lines("").count(), 0);
        let names: Vec<_> = all_lines("#hashtag\r\ncup\n\nplate").collect();
        assert_eq!(names, [(1, "#hashtag"), (2, "cup"), (4, "plate")]);
    }

    #[test]
    fn messages_stay_on_a_line() {
        assert_eq!(short("a\nb\u{1b}[31m"), "a b [31m");
        assert_eq!(short(&"x".repeat(500)).len(), 200);
    }
}
