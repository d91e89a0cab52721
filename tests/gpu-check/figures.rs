//! What many measurements come to.

use std::time::Duration;

/// The middle one; 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50.0)
}

/// The one that so many percent are not above; 0 of none.
pub(crate) fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * percent / 100.0).round() as usize).copied().unwrap_or(0.0)
}

/// From the least to the greatest.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (greatest - least).max(0.0)
}

/// The arithmetic mean; 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample; 0 of fewer than two.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// `CLOCK_MONOTONIC`, by which processes understand each other, ns.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a time. This clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Sleeps until [`now`] is so late.
pub(crate) fn sleep_until(then: u64) {
    std::thread::sleep(Duration::from_nanos(then.saturating_sub(now())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn no_measurements_come_to_nothing() {
        assert!([median(&mut []), mean(&[]), deviation(&[]), spread(&[])].iter().all(|figure| *figure == 0.0));
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert!((percentile(&mut values, 99.0) - 99.0).abs() < 1e-9);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert!((deviation(&[1.0, 3.0]) - 2.0_f64.sqrt()).abs() < 1e-9);
    }
}
