//! Whether canonical JSON keeps everything that a text says.
//!
//! RFC 8785 writes every number as a double, every string as Unicode, and
//! every member once. A text that says more than that has no canonical form.

/// Whether canonicalisation of the JSON text would lose nothing. The text must
/// be valid JSON.
pub(crate) fn is_lossless(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => match skip_string(bytes, at + 1) {
                Some(end) => at = end,
                None => return false,
            },
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..]
                    .iter()
                    .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
                    .map_or(bytes.len(), |n| at + n);
                if !number_survives(&text[at..end]) {
                    return false;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    true
}

/// The index behind a string's closing quote; `None` for a lone surrogate.
fn skip_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if bytes.get(at + 1) == Some(&b'u') => {
                let first = code_unit(bytes, at + 2)?;
                at += 6;
                if (0xDC00..=0xDFFF).contains(&first) {
                    return None;
                }
                if (0xD800..=0xDBFF).contains(&first) {
                    if bytes.get(at..at + 2) != Some(b"\\u") {
                        return None;
                    }
                    let second = code_unit(bytes, at + 2)?;
                    if !(0xDC00..=0xDFFF).contains(&second) {
                        return None;
                    }
                    at += 6;
                }
            }
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn code_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

/// Significant decimal digits and exponent: `digits × 10^exponent`, without
/// leading or trailing zeros.
fn decimal(token: &str) -> Option<(String, i64)> {
    let token = token.strip_prefix('-').unwrap_or(token);
    let (mantissa, exponent) = match token.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (token, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let mut exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    exponent = exponent.checked_add(i64::try_from(digits.len() - trimmed.len()).ok()?)?;
    if trimmed.is_empty() {
        return Some((String::new(), 0));
    }
    Some((trimmed.to_owned(), exponent))
}

/// Whether a double, written in its shortest form, is the number of the token.
///
/// The shortest form decides, not the exact value of the double: canonical text
/// must itself be canonical. So `295147905179352830000` survives, as RFC 8785
/// writes 2^68, and `295147905179352825856`, which is 2^68, does not.
fn number_survives(token: &str) -> bool {
    // Most numbers are small integers, and 15 digits always survive.
    if token.len() <= 15 && !token.contains(['.', 'e', 'E']) {
        return true;
    }
    let Ok(double) = token.parse::<f64>() else {
        return false;
    };
    if !double.is_finite() {
        return false;
    }
    // Two shortest forms may be equally near; the RFC's choice decides.
    serde_json_canonicalizer::to_string(&double)
        .is_ok_and(|written| decimal(token) == decimal(&written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_double_holds_survive() {
        for token in [
            "0",
            "-0",
            "1",
            "1.0",
            "1e0",
            "10",
            "0.1",
            "1e20",
            "1E+20",
            "1e-7",
            "123.456",
            "9007199254740992",
            "9007199254740994",
            "5e-324",
            "1.7976931348623157e308",
            "0.0",
            "100000000000000000000",
            "-123456789012345",
            "295147905179352830000",
        ] {
            assert!(number_survives(token), "{token}");
        }
    }

    #[test]
    fn numbers_that_a_double_changes_do_not() {
        for token in [
            "9007199254740993",
            "1e400",
            "0.1000000000000000055511151231257827",
            "123456789012345678901",
            "1e-400",
            "1.00000000000000000001",
            "-9007199254740993",
            "9223372036854775807",
            "18446744073709551615",
            "295147905179352825856",
            "0.30000000000000001",
        ] {
            assert!(!number_survives(token), "{token}");
        }
    }

    #[test]
    fn lone_and_reversed_surrogates_are_found() {
        assert!(is_lossless(r#"{"a":"\ud83d\ude00"}"#));
        assert!(is_lossless(r#"{"a":"\\ud83d"}"#));
        assert!(!is_lossless(r#"{"a":"\ud83d"}"#));
        assert!(!is_lossless(r#"{"a":"\ude00\ud83d"}"#));
        assert!(!is_lossless(r#"{"\udc00":1}"#));
    }

    #[test]
    fn digits_in_strings_are_not_numbers() {
        assert!(is_lossless(r#"{"a":"9007199254740993"}"#));
        assert!(!is_lossless(r#"{"a":9007199254740993}"#));
    }
}
