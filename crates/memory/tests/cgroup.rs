//! Sample texts from real machines.

use brambling_memory::cgroup::*;
use std::fs;

#[test]
fn a_group_of_version_2() {
    let groups = parse_proc_cgroup("0::/user.slice/user-1000.slice/session-4.scope\n");
    assert_eq!(
        groups.unified.as_deref(),
        Some("/user.slice/user-1000.slice/session-4.scope")
    );
    assert_eq!((groups.memory, groups.cpu), (None, None));
}

#[test]
fn groups_of_version_1_with_shared_controllers() {
    let text = "12:cpuset:/\n9:memory:/docker/3f2a\n4:cpu,cpuacct:/docker/3f2a\n1:name=systemd:/x:y\n0::/z\n";
    let groups = parse_proc_cgroup(text);
    assert_eq!(groups.memory.as_deref(), Some("/docker/3f2a"));
    assert_eq!(groups.cpu.as_deref(), Some("/docker/3f2a"));
    assert_eq!(groups.unified.as_deref(), Some("/z"));
}

#[test]
fn nonsense_is_no_limit() {
    for text in [
        "",
        "max\n",
        "\n",
        "-1",
        "0x10",
        "99999999999999999999999",
        "1 2 3",
        "\u{0}",
    ] {
        assert_eq!(parse_memory_max(text), None, "{text:?}");
        assert_eq!(parse_limit_in_bytes(text), None, "{text:?}");
        assert_eq!(parse_meminfo(text), None, "{text:?}");
        assert_eq!(parse_cpu_max(text), None, "{text:?}");
        assert_eq!(parse_proc_cgroup(text), Groups::default(), "{text:?}");
    }
    assert_eq!(parse_cpu_max("100000 0"), None);
    assert_eq!(parse_cfs("-1\n", "100000\n"), None);
    assert_eq!(parse_limit_in_bytes("9223372036854771712\n"), None);
}

#[test]
fn limits_as_the_kernel_writes_them() {
    assert_eq!(parse_memory_max("4294967296\n"), Some(4 << 30));
    assert_eq!(parse_limit_in_bytes("2147483648\n"), Some(2 << 30));
    assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
    assert_eq!(parse_cpu_max("max 100000\n"), None);
    assert_eq!(parse_cfs("400000\n", "100000\n"), Some(4.0));
    let meminfo = "MemTotal:       16384256 kB\nMemFree:          512000 kB\n";
    assert_eq!(parse_meminfo(meminfo), Some(16_384_256 * 1024));
}

#[test]
fn the_tightest_ancestor_decides() {
    let root = std::env::temp_dir().join(format!("brambling-cgroup-{}", std::process::id()));
    let group = root.join("sys/fs/cgroup/a/b");
    fs::create_dir_all(&group).unwrap();
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::write(root.join("proc/self/cgroup"), "0::/a/b\n").unwrap();
    fs::write(root.join("proc/meminfo"), "MemTotal: 1000 kB\n").unwrap();
    fs::write(group.join("memory.max"), "max\n").unwrap();
    fs::write(group.parent().unwrap().join("memory.max"), "1000\n").unwrap();
    fs::write(group.join("cpu.max"), "50000 100000\n").unwrap();
    fs::write(group.parent().unwrap().join("cpu.max"), "200000 100000\n").unwrap();
    let limits = MemoryLimits::under(&root);
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(limits.cgroup_bytes, Some(1000));
    assert_eq!(limits.cpu_quota, Some(0.5));
    assert_eq!(limits.physical_bytes, Some(1_024_000));
    assert_eq!(limits.default_budget_bytes(), Some(700));
}

#[test]
fn a_group_that_is_not_mounted_here_falls_back_to_the_mount() {
    let root = std::env::temp_dir().join(format!("brambling-cgroup-ns-{}", std::process::id()));
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::create_dir_all(root.join("sys/fs/cgroup")).unwrap();
    for path in ["0::/../../host/group\n", "0::/not/here\n"] {
        fs::write(root.join("proc/self/cgroup"), path).unwrap();
        fs::write(root.join("sys/fs/cgroup/memory.max"), "77\n").unwrap();
        assert_eq!(MemoryLimits::under(&root).cgroup_bytes, Some(77), "{path}");
    }
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn this_machine_has_memory() {
    if cfg!(target_os = "linux") {
        assert!(
            MemoryLimits::of_this_process()
                .default_budget_bytes()
                .unwrap()
                > 0
        );
    }
}

#[test]
fn what_the_system_has_killed_for_want_of_memory() {
    let events = "low 0\nhigh 12\nmax 44\noom 3\noom_kill 2\noom_group_kill 0\n";
    assert_eq!(parse_oom_kill(events), Some(2));
    assert_eq!(
        parse_oom_kill("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
        Some(5)
    );
    for text in ["", "oom 3\n", "oom_kill x\n"] {
        assert_eq!(parse_oom_kill(text), None, "{text:?}");
    }
}

/// Its own group says first, then those above it, then the machine.
#[test]
fn who_counts_them() {
    let root = std::env::temp_dir().join(format!("brambling-cgroup-oom-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    assert_eq!(oom_kills_under(&root), None);
    write("proc/vmstat", "nr_free_pages 7\noom_kill 9\n");
    write("proc/self/cgroup", "0::/a/b\n");
    assert_eq!(oom_kills_under(&root), Some(9));
    write("sys/fs/cgroup/a/memory.events", "oom 4\noom_kill 4\n");
    assert_eq!(oom_kills_under(&root), Some(4));
    write("sys/fs/cgroup/a/b/memory.events", "oom 1\noom_kill 1\n");
    assert_eq!(oom_kills_under(&root), Some(1));
    fs::remove_dir_all(&root).unwrap();
}
