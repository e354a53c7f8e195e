//! Texts between the ends of a connection: goodbyes and refusals.

/// Longest text of a goodbye or a refusal, in bytes: enough for a sentence, too little to matter.
pub const TEXT_BYTES_MAX: usize = 512;

/// As much of `text` as fits `bytes_max`, at a character boundary.
pub fn cut_text(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A peer's text, fit for a log line: no control characters.
pub fn clean_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut_text("aé", 2), "a");
        assert_eq!(cut_text("aé", 3), "aé");
    }

    #[test]
    fn a_text_has_one_line() {
        assert_eq!(clean_text(b"one\r\ntwo\xff"), "one  two\u{fffd}");
    }
}
