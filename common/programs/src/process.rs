//! What programs of a federation ask of the system about processes: before they read a key about their own, and of another one that is to end.

use std::io;
use std::process::Child;

use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, set_dumpable_behavior, setrlimit};

/// Keeps keys out of core files: the limit on them becomes 0, and the process is marked as one that may not be dumped, so that a
/// core pattern that pipes to a program (which looks at no limit) gets nothing either, and no other process of the user may trace it.
///
/// # Errors
/// The system refuses. A program may go on: the two barriers are independent of everything else.
pub fn forbid_core_dumps() -> io::Result<()> {
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(limited?)
}

/// Raises the number of files and connections that this process may have open to the most that the system allows it. Returns that number.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is: the caller divides what there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether this process was told to live on when its terminal closes, as `nohup` does: then it must not listen for that signal. Where the system does
/// not say, it was not.
#[must_use]
pub fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| hangup_is_ignored(&status))
}

/// Bit 0 of the mask of ignored signals is SIGHUP, which is signal 1.
fn hangup_is_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The group of processes that a child leads, which was started with `process_group(0)`.
#[derive(Debug, Clone, Copy)]
pub struct Group(Pid);

impl Group {
    /// The group of a child.
    #[must_use]
    pub fn of(child: &Child) -> Self {
        Self(Pid::from_child(child))
    }

    /// Ends the child and what it started, at once. Anyone who waits for the child hears of it.
    ///
    /// # Errors
    /// The system refuses, or the group has ended.
    pub fn end(self) -> io::Result<()> {
        Ok(kill_process_group(self.0, Signal::KILL)?)
    }
}

/// Whether an error of the system passes when someone else gives something back: file descriptors, memory, room on a disk. The work is
/// tried again later; it is no reason to end.
#[must_use]
pub fn is_resource_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC, Errno::DQUOT, Errno::AGAIN, Errno::INTR, Errno::TIMEDOUT];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::hangup_is_ignored;

    #[test]
    fn an_ignored_hangup_is_read_from_what_the_system_says() {
        assert!(hangup_is_ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!hangup_is_ignored("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!hangup_is_ignored("") && !hangup_is_ignored("SigIgn:\tno number"));
    }

    use super::*;

    #[test]
    fn a_process_that_holds_keys_leaves_no_core() {
        forbid_core_dumps().unwrap();
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }

    #[test]
    fn exhausted_resources_pass_and_other_errors_do_not() {
        use rustix::io::Errno;
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC] {
            assert!(is_resource_exhaustion(&errno.into()));
        }
        for errno in [Errno::NOENT, Errno::IO, Errno::ACCESS, Errno::ROFS] {
            assert!(!is_resource_exhaustion(&errno.into()));
        }
        assert!(!is_resource_exhaustion(&io::Error::other("anything")));
    }
}
