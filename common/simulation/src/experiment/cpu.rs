//! Processor time of this process, on systems that report it (Linux).

/// User and system time so far, of all threads, in seconds; `None` where it is not known.
#[must_use]
pub fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in parentheses and may hold anything; utime and stime are fields 14 and 15, in ticks of 1/100 s
    // (USER_HZ, the same on every Linux).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
    Some(f64::from(ticks(14)? + ticks(15)?) / 100.0)
}
