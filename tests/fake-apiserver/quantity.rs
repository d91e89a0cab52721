//! Quantities in the form in which the API server hands them out, whatever form they came in.

use serde_json::Value;

/// What is counted in here.
const NANO: i128 = 1_000_000_000;
/// Suffixes, each with its power of ten in billionths.
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Rewrites the quantities of an object; what is none stays as it is.
pub(crate) fn canonicalize(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::Object(amounts)
                        if matches!(field.as_str(), "limits" | "requests" | "capacity" | "allocatable") =>
                    {
                        amounts.values_mut().for_each(rewrite);
                    }
                    // Arbitrary text lives here, and nothing that is a quantity.
                    _ if matches!(field.as_str(), "metadata" | "data" | "managedFields") => {}
                    inner => canonicalize(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(canonicalize),
        _ => {}
    }
}

fn rewrite(value: &mut Value) {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Some(canonical) = canonical(&text) {
        *value = canonical.into();
    }
}

/// The one form of an amount: no fraction, the largest suffix of its family that allows it.
fn canonical(text: &str) -> Option<String> {
    let (nanos, binary) = read(text)?;
    let whole = nanos / NANO;
    // Below 1024 the binary family has no suffix to offer.
    if binary && nanos % NANO == 0 && whole.abs() >= 1024 {
        let power = (0..=6).rev().find(|power| whole % (1 << (10 * power)) == 0).unwrap_or(0);
        let suffix = if power == 0 { "" } else { BINARY[power - 1] };
        return Some(format!("{}{suffix}", whole >> (10 * power)));
    }
    Some(decimal(nanos))
}

/// An amount in billionths.
pub fn parse(text: &str) -> Option<i128> {
    read(text).map(|(nanos, _)| nanos)
}

/// An amount in billionths, and whether its suffix is a binary one.
fn read(text: &str) -> Option<(i128, bool)> {
    let end = text.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    if let Some(power) = BINARY.iter().position(|own| *own == suffix) {
        return Some((nanos(digits)?.checked_mul(1 << (10 * (power + 1)))?, true));
    }
    let power = match suffix.strip_prefix(['e', 'E']) {
        Some(exponent) if !exponent.is_empty() => exponent.parse::<u32>().ok()?.checked_add(9)?,
        _ => DECIMAL.iter().find(|(own, _)| *own == suffix)?.1,
    };
    Some((nanos(digits)?.checked_mul(10_i128.checked_pow(power)?)? / NANO, false))
}

fn decimal(nanos: i128) -> String {
    let fits = |power: u32| nanos % 10_i128.pow(power) == 0 && (nanos != 0 || power == 9);
    let (suffix, power) = DECIMAL.iter().rev().find(|(_, power)| fits(*power)).unwrap_or(&DECIMAL[0]);
    format!("{}{suffix}", nanos / 10_i128.pow(*power))
}

/// Digits with an optional sign and fraction, in billionths; finer ones are dropped.
fn nanos(digits: &str) -> Option<i128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let negative = whole.starts_with('-');
    let whole: i128 = if matches!(whole, "" | "+" | "-") { 0 } else { whole.parse().ok()? };
    let kept: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let fraction: i128 = if fraction.chars().all(|c| c.is_ascii_digit()) { kept.parse().ok()? } else { return None };
    let whole = whole.checked_mul(NANO)?;
    if negative { whole.checked_sub(fraction) } else { whole.checked_add(fraction) }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_come_back_in_the_servers_own_form() {
        let cases = [
            ("80000", "80k"),
            ("800", "800"),
            ("0", "0"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1k"),
            ("-80000", "-80k"),
            ("1000000000000", "1T"),
        ];
        for (given, wanted) in cases {
            assert_eq!(canonical(given).as_deref(), Some(wanted), "{given}");
        }
        assert_eq!(canonical("eight"), None);
        assert_eq!(canonical("8Gb"), None);
        assert_eq!(canonical("99999999999999999999999999999999999999999"), None);
    }
}
