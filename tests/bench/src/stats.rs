//! Medians and percentiles of measurements.

/// Measurements, sorted.
#[derive(Clone, Debug)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// At least one.
    pub fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value that this share of them does not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        let place = (share * self.0.len() as f64).ceil() as usize;
        self.0[place.clamp(1, self.0.len()) - 1]
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.percentile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let sample = Sample::new((1..=200).rev().map(f64::from).collect());
        assert_eq!((sample.median(), sample.percentile(0.99), sample.percentile(1.0)), (100.0, 198.0, 200.0));
    }
}
