//! Who has a lease: a process, in words that another one can compare with what it sees.

use std::fs;
use std::sync::OnceLock;

/// A form that others may not read gets another number.
const HEAD: &str = "brambling lease 1";

/// A process: its host, the host's start, the space of its process numbers, its number, and its start. No two are the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeaseHolder {
    host: String,
    boot: String,
    /// Processes of two containers may have one number.
    numbers: String,
    process: u32,
    /// In ticks since the host's start: numbers are used again.
    started: u64,
}

impl LeaseHolder {
    /// This process.
    pub(super) fn of_this_process() -> LeaseHolder {
        static HOST: OnceLock<(String, String)> = OnceLock::new();
        let (host, boot) = HOST.get_or_init(|| {
            let host = rustix::system::uname();
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let host = host.nodename().to_string_lossy().replace(['\n', '\r'], "-");
            (host, boot.trim().to_owned())
        });
        let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let process = std::process::id();
        LeaseHolder {
            host: host.clone(),
            boot: boot.clone(),
            numbers: numbers.display().to_string(),
            process,
            started: started(process).unwrap_or_default(),
        }
    }

    /// As it is written.
    pub(super) fn to_text(&self) -> String {
        let LeaseHolder {
            host,
            boot,
            numbers,
            process,
            started,
        } = self;
        format!(
            "{HEAD}\nhost {host}\nboot {boot}\nnumbers {numbers}\nprocess {process}\nstarted {started}\n"
        )
    }

    /// None for what is no holder, or of a newer form.
    pub(super) fn from_text(text: &str) -> Option<LeaseHolder> {
        let mut lines = text.lines();
        (lines.next()? == HEAD).then_some(())?;
        let mut field = |name: &str| {
            let line = lines.next()?;
            let value = line.strip_prefix(name)?.strip_prefix(' ')?;
            Some(value.to_owned())
        };
        Some(LeaseHolder {
            host: field("host")?,
            boot: field("boot")?,
            numbers: field("numbers")?,
            process: field("process")?.parse().ok()?,
            started: field("started")?.parse().ok()?,
        })
    }

    /// Whether it lives, if that can be seen from here: its number means the same process here only on one host, since one start, in one space.
    pub(super) fn is_alive(&self) -> Option<bool> {
        let here = LeaseHolder::of_this_process();
        let is_here = (&self.host, &self.boot, &self.numbers)
            == (&here.host, &here.boot, &here.numbers)
            && !self.boot.is_empty()
            && !self.numbers.is_empty();
        is_here.then(|| started(self.process) == Some(self.started))
    }

    /// Its host, for people.
    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

/// When a process was started; none for one that is not there, or is dead and not yet taken off the list.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may hold anything, stands in parentheses before.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    let started = fields.nth(18)?.parse().ok()?;
    (!is_dead).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_newer_forms_are_not() {
        let own = LeaseHolder::of_this_process();
        assert_eq!(LeaseHolder::from_text(&own.to_text()).as_ref(), Some(&own));
        // Leases of this form were written once.
        let old =
            "brambling lease 1\nhost a b\nboot 7-c\nnumbers pid:[4]\nprocess 17\nstarted 99\n";
        let old = LeaseHolder::from_text(old).unwrap();
        assert_eq!((old.host(), old.process, old.started), ("a b", 17, 99));
        for text in [
            "",
            "brambling lease 2\nhost a\n",
            "brambling lease 1\nhost a\n",
        ] {
            assert_eq!(LeaseHolder::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_start_as_well() {
        let own = LeaseHolder::of_this_process();
        assert_eq!(own.is_alive(), Some(true));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let process = ended.id();
        let started = started(process).unwrap_or(1);
        let its = LeaseHolder {
            process,
            started,
            ..own.clone()
        };
        // Ended, and nobody has asked for its end: it is as dead.
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(its.is_alive(), Some(false));
        ended.wait().unwrap();
        assert_eq!(its.is_alive(), Some(false));
        // Another process has the number now.
        let later = LeaseHolder {
            started: own.started + 1,
            ..own.clone()
        };
        assert_eq!(later.is_alive(), Some(false));
        let elsewhere = LeaseHolder {
            numbers: "pid:[1]".into(),
            ..own
        };
        assert_eq!(elsewhere.is_alive(), None);
    }
}
