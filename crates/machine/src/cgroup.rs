//! The CPU quota and the memory limit of this process's control groups, versions 1 and 2.
//!
//! A limit may sit on any level of the hierarchy; the tightest one binds. Parsing is pure, so that
//! the odd layouts of container runtimes can stand in tests as text.

use std::path::{Path, PathBuf};

/// At most `quota_us` of CPU time in every `period_us`, over all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// CPU time per period, in microseconds.
    pub quota_us: u64,
    /// Length of a period, in microseconds.
    pub period_us: u64,
}

impl CpuQuota {
    /// The quota in whole CPUs, rounded up; at least one.
    pub fn cpus(self) -> usize {
        (self.quota_us.div_ceil(self.period_us.max(1)) as usize).max(1)
    }

    fn is_tighter_than(self, other: CpuQuota) -> bool {
        let (ours, theirs) = (u128::from(self.quota_us), u128::from(other.quota_us));
        ours * u128::from(other.period_us) < theirs * u128::from(self.period_us)
    }
}

/// What the control groups of a process allow it. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// The tightest CPU quota.
    pub cpu_quota: Option<CpuQuota>,
    /// The tightest limit on resident memory, in bytes.
    pub memory_bytes: Option<u64>,
}

impl CgroupLimits {
    /// The limits of the current process. Files that are missing or unreadable set no limit.
    pub fn of_this_process() -> CgroupLimits {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let text = |path| read(Path::new(path)).unwrap_or_default();
        limits(
            &text("/proc/self/cgroup"),
            &text("/proc/self/mountinfo"),
            read,
        )
    }
}

/// The limits of a process whose `/proc/self/cgroup` and `/proc/self/mountinfo` have the texts
/// given, where `read` reads a file of the control-group file systems.
pub fn limits(
    self_cgroup: &str,
    mountinfo: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> CgroupLimits {
    let groups: Vec<Group> = self_cgroup.lines().filter_map(parse_group).collect();
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(parse_mount).collect();
    let mut limits = CgroupLimits::default();
    for level in levels(&groups, &mounts, "cpu") {
        let quota = match level.version {
            Version::V2 => read(&level.path.join("cpu.max"))
                .as_deref()
                .and_then(parse_cpu_max),
            Version::V1 => parse_cfs(
                read(&level.path.join("cpu.cfs_quota_us")).as_deref(),
                read(&level.path.join("cpu.cfs_period_us")).as_deref(),
            ),
        };
        if let Some(quota) = quota
            && limits
                .cpu_quota
                .is_none_or(|tightest| quota.is_tighter_than(tightest))
        {
            limits.cpu_quota = Some(quota);
        }
    }
    for level in levels(&groups, &mounts, "memory") {
        let file = match level.version {
            Version::V2 => "memory.max",
            Version::V1 => "memory.limit_in_bytes",
        };
        let bytes = read(&level.path.join(file))
            .as_deref()
            .and_then(parse_memory);
        limits.memory_bytes = limits.memory_bytes.into_iter().chain(bytes).min();
    }
    limits
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A line of `/proc/self/cgroup`. No controllers: the version 2 hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Group<'t> {
    controllers: Vec<&'t str>,
    path: &'t str,
}

/// A control-group file system of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'t> {
    version: Version,
    /// Which directory of the hierarchy is mounted.
    root: String,
    point: PathBuf,
    /// Super-block options; those of version 1 name its controllers.
    options: Vec<&'t str>,
}

/// A directory whose files may hold a limit.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    version: Version,
    path: PathBuf,
}

fn parse_group(line: &str) -> Option<Group<'_>> {
    let mut fields = line.splitn(3, ':');
    let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let controllers = controllers
        .split(',')
        .filter(|name| !name.is_empty())
        .collect();
    Some(Group { controllers, path })
}

// `36 35 98:0 /root /point rw,noatime [optional…] - type source options`
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let version = match after.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = after.nth(1)?.split(',').collect();
    let mut before = before.split(' ').skip(3);
    let (root, point) = (unescape(before.next()?), unescape(before.next()?).into());
    Some(Mount {
        version,
        root,
        point,
        options,
    })
}

// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// The directories of `controller`, from the process's own up to the mount point. Where version 1
/// has the controller it is not in version 2.
fn levels(groups: &[Group], mounts: &[Mount], controller: &str) -> Vec<Level> {
    let v1 = mounts
        .iter()
        .find(|mount| mount.version == Version::V1 && mount.options.contains(&controller))
        .zip(
            groups
                .iter()
                .find(|group| group.controllers.contains(&controller)),
        );
    let v2 = || {
        mounts
            .iter()
            .find(|mount| mount.version == Version::V2)
            .zip(groups.iter().find(|group| group.controllers.is_empty()))
    };
    let Some((mount, group)) = v1.or_else(v2) else {
        return Vec::new();
    };
    // In a namespace the group's path need not lie below the mounted root; then the mount point is
    // the best we can see.
    let below = Path::new(group.path)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    let below = if below.components().any(|part| part.as_os_str() == "..") {
        Path::new("")
    } else {
        below
    };
    below
        .ancestors()
        .map(|part| Level {
            version: mount.version,
            path: mount.point.join(part),
        })
        .collect()
}

// `max 100000` or `150000 100000`.
fn parse_cpu_max(text: &str) -> Option<CpuQuota> {
    let mut fields = text.split_whitespace();
    let quota_us = fields.next()?.parse().ok()?;
    let period_us = fields
        .next()
        .map_or(Some(100_000), |field| field.parse().ok())?;
    (period_us > 0).then_some(CpuQuota {
        quota_us,
        period_us,
    })
}

// A quota of −1 is none.
fn parse_cfs(quota: Option<&str>, period: Option<&str>) -> Option<CpuQuota> {
    let quota_us = quota?.trim().parse().ok()?;
    let period_us = period?.trim().parse().ok()?;
    (period_us > 0).then_some(CpuQuota {
        quota_us,
        period_us,
    })
}

// Version 2 writes `max` where there is no limit, version 1 the largest number of whole pages.
fn parse_memory(text: &str) -> Option<u64> {
    let bytes: u64 = text.trim().parse().ok()?;
    (bytes < 1 << 60).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(self_cgroup: &str, mountinfo: &str, files: &[(&str, &str)], expected: CgroupLimits) {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(limits(self_cgroup, mountinfo, read), expected);
    }

    fn quota(quota_us: u64, period_us: u64) -> Option<CpuQuota> {
        Some(CpuQuota {
            quota_us,
            period_us,
        })
    }

    const V2: &str = "25 30 0:22 / /sys rw - sysfs sysfs rw\n\
        31 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "33 25 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
        34 25 0:30 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

    #[test]
    fn a_quota_is_rounded_up_to_whole_cpus() {
        let cpus = |quota_us, period_us| {
            CpuQuota {
                quota_us,
                period_us,
            }
            .cpus()
        };
        assert_eq!(cpus(150_000, 100_000), 2);
        assert_eq!(cpus(200_000, 100_000), 2);
        assert_eq!(cpus(1_000, 100_000), 1);
        assert_eq!(cpus(0, 100_000), 1);
    }

    #[test]
    fn version_2_takes_the_tightest_level() {
        check(
            "0::/jobs/one\n",
            V2,
            &[
                ("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n"),
                ("/sys/fs/cgroup/jobs/one/memory.max", "8589934592\n"),
                ("/sys/fs/cgroup/jobs/cpu.max", "150000 100000\n"),
                ("/sys/fs/cgroup/jobs/memory.max", "4294967296\n"),
                ("/sys/fs/cgroup/cpu.max", "800000 50000\n"),
            ],
            CgroupLimits {
                cpu_quota: quota(150_000, 100_000),
                memory_bytes: Some(1 << 32),
            },
        );
    }

    #[test]
    fn version_2_in_a_container_sees_its_own_root() {
        let files = [
            ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
        ];
        let expected = CgroupLimits {
            cpu_quota: quota(50_000, 100_000),
            memory_bytes: None,
        };
        check("0::/\n", V2, &files, expected);
        // Seen from outside the namespace that the process was moved into.
        check("0::/../../other\n", V2, &files, expected);
    }

    #[test]
    fn version_1_strips_the_mounted_root() {
        check(
            "5:cpu,cpuacct:/docker/ab/inner\n4:memory:/docker/ab\n1:name=systemd:/docker/ab\n",
            V1,
            &[
                ("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "-1\n"),
                (
                    "/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us",
                    "100000\n",
                ),
                ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"),
                ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                (
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
            ],
            CgroupLimits {
                cpu_quota: quota(250_000, 100_000),
                memory_bytes: None,
            },
        );
    }

    #[test]
    fn a_hybrid_takes_each_controller_where_it_lives() {
        let mountinfo =
            format!("{V2}35 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
        check(
            "4:memory:/job\n0::/job\n",
            &mountinfo,
            &[
                ("/sys/fs/cgroup/job/cpu.max", "100000 100000\n"),
                (
                    "/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                    "1073741824\n",
                ),
                ("/sys/fs/cgroup/job/memory.max", "7\n"),
            ],
            CgroupLimits {
                cpu_quota: quota(100_000, 100_000),
                memory_bytes: Some(1 << 30),
            },
        );
    }

    #[test]
    fn no_control_groups_no_limits() {
        check("", "", &[], CgroupLimits::default());
        check(
            "nonsense\n0::/a\n",
            "nonsense\n1 2 3 - cgroup2\n",
            &[],
            CgroupLimits::default(),
        );
    }

    #[test]
    fn escaped_mount_points_are_decoded() {
        let line = r"31 25 0:26 / /mnt/a\040b\134c rw - cgroup2 cgroup2 rw";
        assert_eq!(parse_mount(line).unwrap().point, Path::new(r"/mnt/a b\c"));
    }
}
