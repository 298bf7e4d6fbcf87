//! What the kernel tells of this process; without `/proc` there are no such metrics.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::exposition::Exposition;
use super::families as family;

pub(super) fn process(out: &mut Exposition, started: i64) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse) {
        #[allow(clippy::cast_precision_loss)]
        let seconds = stat.ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        out.family(&family::PROCESS_CPU).add(&[], seconds);
        let resident = stat.resident_pages.saturating_mul(rustix::param::page_size() as u64);
        out.family(&family::PROCESS_RESIDENT).add(&[], resident);
        out.family(&family::PROCESS_VIRTUAL).add(&[], stat.virtual_bytes);
        out.family(&family::PROCESS_THREADS).add(&[], stat.threads);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The folder being read is one of them.
        out.family(&family::PROCESS_FDS).add(&[], open.count().saturating_sub(1));
    }
    // Without a limit there is no number to tell.
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        out.family(&family::PROCESS_MAX_FDS).add(&[], limit);
    }
    out.family(&family::PROCESS_START).add(&[], started);
}

/// Fields of proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Processor time in user and kernel mode, in clock ticks.
    ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the program comes second, in parentheses; it may itself contain those and spaces.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            ticks: field(14)? + field(15)?,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_may_be_odd() {
        let text = "7 (a) b (c) S 1 1 1 0 -1 4194560 10 0 0 0 14 15 0 0 20 0 4 0 99 2300 24 1844";
        let expected = Stat { ticks: 29, threads: 4, virtual_bytes: 2300, resident_pages: 24 };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }
}
