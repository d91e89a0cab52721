use super::*;

fn words_of<T: FromStr + Copy + PartialEq + fmt::Debug>(all: &[T], as_str: fn(T) -> &'static str) -> Vec<&'static str> {
    let words: Vec<_> = all.iter().map(|value| as_str(*value)).collect();
    for (value, word) in all.iter().zip(&words) {
        assert_eq!(word.parse().ok(), Some(*value));
        assert!(word.to_uppercase().parse::<T>().is_err());
    }
    words
}

/// Files and annotations have these; a running library and an older daemon read them.
#[test]
fn terms_have_these_words() {
    assert_eq!(words_of(Tier::ALL, Tier::as_str), ["accounting", "shim", "mps", "mig"]);
    assert_eq!(words_of(Compute::ALL, Compute::as_str), ["cap", "burst"]);
    assert_eq!(words_of(Priority::ALL, Priority::as_str), ["high", "low"]);
    assert_eq!("normal".parse::<Priority>().expect_err("no word").to_string(), "high or low");
    assert_eq!(Tier::WORDS.to_string(), "accounting, shim, mps or mig");
    assert_eq!(Words(&["only"]).to_string(), "only");
}

#[test]
fn tiers_are_ordered_by_strength() {
    assert!(Tier::ALL.is_sorted() && Tier::default() == Tier::ALL[0]);
    assert!(Tier::Mps.serves(Tier::Shim, || false) && !Tier::Shim.serves(Tier::Mps, || true));
    assert!(Tier::Shim.serves(Tier::Mig, || true) && !Tier::Shim.serves(Tier::Mig, || false));
}

#[test]
fn compute_limit_is_a_percentage() {
    assert_eq!([0, 1, 100, 101].map(|percent| ComputeLimit::new(percent).is_some()), [false, true, true, false]);
}
