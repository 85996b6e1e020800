//! Names of environment modules, as people may give them: `gcc/13.2`, `cuda`. A name reaches
//! `module load` as an argument of its own; what could be an option, a path of somebody's
//! choice, or a word of the shell's is none.

/// The most that one workload may load.
pub const MAX_MODULES: usize = 32;

/// The longest name (bytes).
const MAX_NAME_LENGTH: usize = 128;

/// Whether this is the name of a module, with or without its version.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_LENGTH
        && name.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.+-@=~".contains(&byte))
        })
}

/// The names that stand in a line, apart by blanks or commas.
#[must_use]
pub fn of_line(line: &str) -> Vec<String> {
    let words = line.split(|c: char| c.is_whitespace() || c == ',');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["gcc", "gcc/13.2", "intel-oneapi/2024.1+mkl", "lang/python/3.11", "R", "a_b@1=x"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(129);
        for bad in [
            "",
            "-x",
            "--help",
            "gcc;id",
            "gcc\nid",
            "$(id)",
            "`id`",
            "a b",
            "/etc/passwd",
            "../x",
            "a//b",
            "a/",
            "~/x",
            "a/../b",
            "a/-b",
            "a\0",
            "a'b",
            "a\"b",
            "a*",
            "é",
            &long,
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert_eq!(of_line(" gcc/13,  cuda\topenmpi "), ["gcc/13", "cuda", "openmpi"]);
        assert_eq!(of_line("gcc;id"), ["gcc;id"], "what is no name stays to be refused");
    }
}
