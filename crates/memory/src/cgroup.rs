//! What the machine and its control group allow: memory and CPU quota, cgroup v1 and v2.
//!
//! The parsers are pure; [`MemoryLimits::of_this_process`] is the only function that reads files. What
//! cannot be read or understood counts as no limit: a wrong guess would refuse a job that fits.

use std::path::{Path, PathBuf};

/// Of the memory there is the default budget has so many tenths. The rest is for what no budget counts:
/// the system, other processes, an interpreter and what was allocated before it was charged.
const BUDGET_TENTHS: u64 = 7;

/// What this process may use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MemoryLimits {
    /// Memory of the machine.
    pub physical_bytes: Option<u64>,
    /// The tightest memory limit among the control group and its ancestors.
    pub cgroup_bytes: Option<u64>,
    /// The tightest CPU quota among them, in CPUs.
    pub cpu_quota: Option<f64>,
}

impl MemoryLimits {
    /// Reads them for this process.
    pub fn of_this_process() -> MemoryLimits {
        MemoryLimits::under(Path::new("/"))
    }

    /// Reads them with all paths under `root`.
    pub fn under(root: &Path) -> MemoryLimits {
        let read = |path: PathBuf| std::fs::read_to_string(path).ok();
        let meminfo = read(root.join("proc/meminfo")).unwrap_or_default();
        let groups = parse_proc_cgroup(&read(root.join("proc/self/cgroup")).unwrap_or_default());
        let mount = root.join("sys/fs/cgroup");
        let mut limits = MemoryLimits {
            physical_bytes: parse_meminfo(&meminfo),
            ..MemoryLimits::default()
        };
        let mut tighten = |bytes: Option<u64>, cpus: Option<f64>| {
            limits.cgroup_bytes = limits.cgroup_bytes.into_iter().chain(bytes).min();
            limits.cpu_quota = limits.cpu_quota.into_iter().chain(cpus).reduce(f64::min);
        };
        for dir in groups
            .unified
            .iter()
            .flat_map(|group| ancestors(&mount, group))
        {
            let bytes = read(dir.join("memory.max")).and_then(|text| parse_memory_max(&text));
            let cpus = read(dir.join("cpu.max")).and_then(|text| parse_cpu_max(&text));
            tighten(bytes, cpus);
        }
        for dir in groups
            .memory
            .iter()
            .flat_map(|group| ancestors(&mount.join("memory"), group))
        {
            let text = read(dir.join("memory.limit_in_bytes"));
            tighten(text.and_then(|text| parse_limit_in_bytes(&text)), None);
        }
        for dir in groups
            .cpu
            .iter()
            .flat_map(|group| ancestors(&mount.join("cpu"), group))
        {
            let quota = read(dir.join("cpu.cfs_quota_us")).unwrap_or_default();
            let period = read(dir.join("cpu.cfs_period_us")).unwrap_or_default();
            tighten(None, parse_cfs(&quota, &period));
        }
        limits
    }

    /// The memory there is: the control group's limit or the machine's, whichever is less.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.cgroup_bytes
            .into_iter()
            .chain(self.physical_bytes)
            .min()
    }

    /// The default budget: 70 % of the memory there is.
    pub fn default_budget_bytes(&self) -> Option<u64> {
        self.memory_bytes()
            .map(|bytes| bytes / 10 * BUDGET_TENTHS + bytes % 10 * BUDGET_TENTHS / 10)
    }
}

/// How many processes of this process's control group the system has killed because memory ran out; where the group does not count, of the machine. None: nobody
/// says.
pub fn oom_kills() -> Option<u64> {
    oom_kills_under(Path::new("/"))
}

/// Reads it with all paths under `root`.
pub fn oom_kills_under(root: &Path) -> Option<u64> {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let groups = parse_proc_cgroup(&read(root.join("proc/self/cgroup")).unwrap_or_default());
    let mount = root.join("sys/fs/cgroup");
    let unified = groups.unified.iter();
    let unified = unified.flat_map(|group| ancestors(&mount, group));
    let unified = unified.map(|dir| dir.join("memory.events"));
    let memory = groups.memory.iter();
    let memory = memory.flat_map(|group| ancestors(&mount.join("memory"), group));
    let memory = memory.map(|dir| dir.join("memory.oom_control"));
    let mut texts = unified.chain(memory).chain([root.join("proc/vmstat")]);
    texts.find_map(|path| parse_oom_kill(&read(path)?))
}

/// Reads the count of `memory.events` (cgroup v2), `memory.oom_control` (cgroup v1) or `/proc/vmstat`.
pub fn parse_oom_kill(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The control groups of a process, as paths below the mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// In the hierarchy of cgroup v2.
    pub unified: Option<String>,
    /// In the memory hierarchy of cgroup v1.
    pub memory: Option<String>,
    /// In the cpu hierarchy of cgroup v1.
    pub cpu: Option<String>,
}

/// Reads the text of `/proc/self/cgroup`.
pub fn parse_proc_cgroup(text: &str) -> Groups {
    let mut groups = Groups::default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            groups.unified = Some(path.to_owned());
        }
        for controller in controllers.split(',') {
            match controller {
                "memory" => groups.memory = Some(path.to_owned()),
                "cpu" => groups.cpu = Some(path.to_owned()),
                _ => {}
            }
        }
    }
    groups
}

/// Reads the text of `/proc/meminfo`: the memory of the machine.
pub fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Reads the text of `memory.max` (cgroup v2).
pub fn parse_memory_max(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Reads the text of `memory.limit_in_bytes` (cgroup v1), where "no limit" is the largest
/// multiple of the page size.
pub fn parse_limit_in_bytes(text: &str) -> Option<u64> {
    text.trim()
        .parse()
        .ok()
        .filter(|&bytes: &u64| bytes < i64::MAX as u64 - 65536)
}

/// Reads the text of `cpu.max` (cgroup v2): quota and period.
pub fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    parse_cfs(quota, period)
}

/// Reads `cpu.cfs_quota_us` and `cpu.cfs_period_us` (cgroup v1), where a quota of −1 is none.
pub fn parse_cfs(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok().filter(|&us| us > 0)?;
    let period: u64 = period.trim().parse().ok().filter(|&us| us > 0)?;
    Some(quota as f64 / period as f64)
}

/// The group's directory and those above it, up to the mount. Inside a container the path may name
/// a directory of the host that is not there; then only the mount itself answers.
fn ancestors(mount: &Path, group: &str) -> Vec<PathBuf> {
    let below = Path::new(group.trim_start_matches('/'));
    // A group outside this cgroup namespace shows as a path that climbs.
    if below
        .components()
        .any(|part| part == std::path::Component::ParentDir)
    {
        return vec![mount.to_owned()];
    }
    below.ancestors().map(|part| mount.join(part)).collect()
}
