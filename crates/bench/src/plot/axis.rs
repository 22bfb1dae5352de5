//! A vertical axis: the heights of values, and the ticks.

use crate::number::number;

/// Values from bottom to top, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

/// Room above the largest value, as a share of the axis.
const HEADROOM: f64 = 0.15;

impl Axis {
    /// An axis for these values; a logarithmic one ignores values that are not above 0.
    pub fn of(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> Axis {
        let values = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let high = values.clone().fold(0.0, f64::max);
        if !is_log {
            let high = if high > 0.0 { high } else { 1.0 };
            return Axis { low: 0.0, high: high * (1.0 + HEADROOM), is_log };
        }
        let high = if high > 0.0 { high } else { 10.0 };
        let smallest = values.fold(high, f64::min);
        // Bars of the smallest value must be visible.
        let low = 10f64.powf((smallest.log10() - 0.2).floor());
        let high = low * (high / low).powf(1.0 + HEADROOM).max(10.0);
        Axis { low, high, is_log }
    }

    /// The height of a value, 0 to 1.
    pub fn height(&self, value: f64) -> f64 {
        let share = match self.is_log {
            false => (value - self.low) / (self.high - self.low),
            true => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        // A value of 0 has no logarithm: it is at the bottom.
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// The values of the ticks, and their texts.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let values = if self.is_log { self.log_ticks() } else { self.even_ticks() };
        values.into_iter().map(|value| (value, tick_text(value))).collect()
    }

    fn even_ticks(&self) -> Vec<f64> {
        let step = nice_step(self.high / 8.0);
        (0..).map(|index| f64::from(index) * step).take_while(|value| *value <= self.high).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.low.log10().round() as i32;
        let all = (0..=decades.floor() as i32)
            .flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(first + decade)));
        all.filter(|value| *value <= self.high * 1.000_001).collect()
    }
}

/// 1, 2 or 5 of a power of ten, at least `least`.
pub fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * 0.999_999);
    digit.unwrap_or(10.0) * power
}

/// The text of a round number.
pub fn tick_text(value: f64) -> String {
    let text = number(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn even_axes_begin_at_zero_and_have_round_marks() {
        let axis = Axis::of([80_000.0, 123_456.0].into_iter(), false);
        assert_eq!(
            texts(&axis),
            ["0", "20,000", "40,000", "60,000", "80,000", "100,000", "120,000", "140,000"]
        );
        assert_eq!((axis.height(0.0), axis.height(f64::INFINITY)), (0.0, 1.0));
        let small = Axis::of([0.8].into_iter(), false);
        assert_eq!(texts(&small), ["0", "0.2", "0.4", "0.6", "0.8"]);
    }

    #[test]
    fn logarithmic_axes_have_powers_of_ten() {
        let axis = Axis::of([0.0, 30.0, 2_000_000.0].into_iter(), true);
        assert_eq!(texts(&axis), ["10", "100", "1,000", "10,000", "100,000", "1,000,000", "10,000,000"]);
        assert_eq!((axis.height(0.0), axis.height(10.0)), (0.0, 0.0));
        assert!(axis.height(2_000_000.0) > 0.8);
        let narrow = Axis::of([20.0, 40.0].into_iter(), true);
        assert_eq!(texts(&narrow), ["10", "20", "50", "100"]);
    }

    #[test]
    fn without_values_there_is_an_axis_all_the_same() {
        for is_log in [false, true] {
            assert!(!Axis::of([f64::NAN].into_iter(), is_log).ticks().is_empty());
        }
    }
}
