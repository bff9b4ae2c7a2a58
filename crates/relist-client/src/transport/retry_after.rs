//! `Retry-After`: seconds, or a date.
//!
//! RFC 9110, section 10.2.3.

use std::time::{Duration, SystemTime};

/// The longest wait that is believed.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads the header; `None` when it is neither form. A date in the past is no
/// wait at all.
pub(crate) fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(LONGEST));
    }
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(http_date(value)?);
    Some(until.duration_since(now).unwrap_or_default().min(LONGEST))
}

/// An IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`, as seconds since the
/// epoch. The two obsolete forms are not read.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_weekday, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|m| *m == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':');
    let mut two = |limit: u64| -> Option<u64> {
        let n: u64 = clock.next()?.parse().ok()?;
        (n < limit).then_some(n)
    };
    let (hour, minute, second) = (two(24)?, two(60)?, two(61)?);
    if words.next() != Some("GMT") || !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since the epoch, counted from March so that the leap day comes last.
    let y = if month <= 2 { year - 1 } else { year };
    let m = (month + 9) % 12;
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1;
    let epoch = 719_468;
    Some(days.checked_sub(epoch)? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(parse("120", at(0)), Some(Duration::from_secs(120)));
        // RFC 9110's own example, one minute before.
        assert_eq!(
            parse("Sun, 06 Nov 1994 08:49:37 GMT", at(784_111_717)),
            Some(Duration::from_secs(60))
        );
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            http_date("Tue, 29 Feb 2028 12:00:00 GMT"),
            Some(1_835_438_400)
        );
    }

    #[test]
    fn the_past_is_no_wait_and_a_year_is_a_day() {
        assert_eq!(
            parse("Sun, 06 Nov 1994 08:49:37 GMT", at(1_800_000_000)),
            Some(Duration::ZERO)
        );
        assert_eq!(parse("31536000", at(0)), Some(LONGEST));
        assert_eq!(parse("99999999999999999999999", at(0)), Some(LONGEST));
    }

    #[test]
    fn nonsense_is_no_header() {
        for text in ["", "soon", "-1", "1.5", "Sun, 06 Foo 1994 08:49:37 GMT"] {
            assert_eq!(parse(text, at(0)), None, "{text}");
        }
    }
}
