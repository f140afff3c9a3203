//! Colours and line widths for counts.

/// From a count to a place between 0 (never) and 1 (the most), on a logarithmic scale: counts in a kernel differ by
/// many orders of magnitude.
#[must_use]
pub fn heat(count: u64, most: u64) -> f64 {
    if count == 0 || most == 0 {
        return 0.0;
    }
    let scale = ((most as f64).log2() + 1.0).max(1.0);
    (((count as f64).log2() + 1.0) / scale).clamp(0.0, 1.0)
}

/// The colour of a heat: from white over yellow to red.
#[must_use]
pub fn colour(heat: f64) -> String {
    const STOPS: [(f64, f64, f64); 4] = [
        (255.0, 255.0, 255.0),
        (255.0, 237.0, 160.0),
        (254.0, 178.0, 76.0),
        (240.0, 59.0, 32.0),
    ];
    let at = heat.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let from = (at as usize).min(STOPS.len() - 2);
    let part = at - from as f64;
    let (Some(a), Some(b)) = (STOPS.get(from), STOPS.get(from + 1)) else {
        return "#ffffff".into();
    };
    let mix = |a: f64, b: f64| (a + (b - a) * part).round() as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        mix(a.0, b.0),
        mix(a.1, b.1),
        mix(a.2, b.2)
    )
}

/// 1234567 as `1,234,567`.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours() {
        assert_eq!(colour(heat(0, 100)), "#ffffff");
        assert_eq!(colour(heat(100, 100)), "#f03b20");
        assert_eq!(heat(u64::MAX, 1), 1.0);
        assert!(heat(10, 1000) < heat(100, 1000));
    }

    #[test]
    fn groups_of_three() {
        for (n, want) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(n), want);
        }
    }
}
