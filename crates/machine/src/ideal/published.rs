//! The cases and figures that the paper prints, beside the model's.
//!
//! The expected values are those of the paper's §4 to §7. Rounding of what it prints is what these
//! tests allow, so they cannot tell a model that errs by less than half of a last digit.

use super::*;

/// A published benchmark of §4.
struct Case {
    name: &'static str,
    setup: Setup,
    took_s: f64,
    /// As the paper prints them.
    ideal_s: f64,
    percent: f64,
    nodes_printed: u64,
    /// The smallest number by Table 3.
    nodes: u64,
    /// ⌈n · ideal ÷ took⌉.
    nodes_by_proportion: u64,
}

fn cases() -> [Case; 5] {
    let petasort = Setup {
        external: true,
        backup: true,
        ..Setup::sort(1e15, 780e6, 110e6)
    };
    [
        Case {
            name: "TeraSort on Hadoop",
            setup: Setup {
                nodes: 1460,
                ..Setup::sort(1e12, 260e6, 110e6)
            },
            took_s: 62.0,
            ideal_s: 8.86,
            percent: 14.3,
            nodes: 208,
            nodes_by_proportion: 209,
            nodes_printed: 209,
        },
        Case {
            name: "TeraSort on MapReduce",
            setup: Setup {
                nodes: 1000,
                ..Setup::sort(1e12, 780e6, 110e6)
            },
            took_s: 68.0,
            ideal_s: 10.4,
            percent: 15.2,
            nodes: 152,
            nodes_by_proportion: 153,
            nodes_printed: 153,
        },
        Case {
            name: "PetaSort on MapReduce",
            setup: Setup {
                nodes: 4000,
                replication: 3,
                ..petasort
            },
            took_s: 21_720.0,
            ideal_s: 6818.0,
            percent: 31.4,
            nodes: 1256,
            nodes_by_proportion: 1256,
            nodes_printed: 1256,
        },
        Case {
            name: "PetaSort on Hadoop",
            setup: Setup {
                nodes: 3658,
                replication: 2,
                disk_read_bytes_per_s: 260e6,
                disk_write_bytes_per_s: 260e6,
                ..petasort
            },
            took_s: 58_500.0,
            ideal_s: 6308.0,
            percent: 10.8,
            nodes: 395,
            nodes_by_proportion: 395,
            // 3658 · 6308 ÷ 58500 is 394.4: the paper has rounded up to a hundred.
            nodes_printed: 400,
        },
        Case {
            name: "grep on MapReduce",
            setup: grep(),
            took_s: 90.0,
            ideal_s: 6.94,
            percent: 7.7,
            nodes: 139,
            nodes_by_proportion: 139,
            nodes_printed: 139,
        },
    ]
}

fn grep() -> Setup {
    Setup {
        nodes: 1800,
        map_ratio: 0.0,
        ..Setup::sort(1e12, 80e6, 110e6)
    }
}

/// The cluster of §5, sorting 4 GB a node.
fn measured(nodes: u64, network_bytes_per_s: f64) -> Setup {
    Setup {
        nodes,
        disk_write_bytes_per_s: 97e6,
        ..Setup::sort(4e9 * nodes as f64, 108e6, network_bytes_per_s)
    }
}

fn ideal(setup: Setup) -> f64 {
    setup.ideal_time(None).unwrap().ideal_seconds
}

#[track_caller]
fn prints(value: f64, printed: f64, half_of_last_digit: f64) {
    let off = (value - printed).abs();
    assert!(off <= half_of_last_digit, "{value} is not {printed}");
}

#[test]
fn published_ideal_times() {
    for case in cases() {
        let ideal = ideal(case.setup);
        let off = (ideal / case.ideal_s - 1.0).abs();
        assert!(
            off < 0.01,
            "{}: {ideal} s, not {} s",
            case.name,
            case.ideal_s
        );
    }
}

#[test]
fn published_ideal_times_follow_from_the_short_equations() {
    // Equation 1, of a grep.
    assert_eq!(ideal(grep()), 1e12 / (1800.0 * 80e6));
    // Equation 2, of a sort in memory.
    let (n, r, i, d, network) = (1000.0, 3.0, 1e12, 780e6, 110e6);
    let t_sort = i / n
        * (f64::max(1.0 / d, (n - 1.0) / (n * network)) + f64::max(r / d, (r - 1.0) / network));
    let setup = Setup {
        nodes: 1000,
        replication: 3,
        ..Setup::sort(i, d, network)
    };
    prints(ideal(setup), t_sort, 1e-12 * t_sort);
}

#[test]
fn published_ideal_times_of_all_four_variants() {
    // Table 3, written out: its per-byte times with speeds that are no multiples of each other.
    let (n, dr, dw, network, r, i, em, er) = (7.0, 190e6, 130e6, 70e6, 2.0, 3e11, 0.8, 0.5);
    let sent = (n - 1.0) / n * em / network;
    let replicas = em * er * (r - 1.0) / network;
    let stored = r * em * er / dw;
    let (read, written) = (1.0 / dr, em / dw);
    let table = [
        (false, false, read, stored),
        (false, true, read + written, stored),
        (true, false, read + written, em / dr + stored),
        (true, true, read + 2.0 * written, em / dr + stored),
    ];
    for (external, backup, map_disk, reduce_disk) in table {
        for slower in [1.0, 0.1] {
            let setup = Setup {
                nodes: 7,
                disk_read_bytes_per_s: dr,
                disk_write_bytes_per_s: dw,
                network_bytes_per_s: network * slower,
                replication: 2,
                input_bytes: i,
                map_ratio: em,
                reduce_ratio: er,
                external,
                backup,
            };
            let expected = i / n
                * (f64::max(map_disk, sent / slower) + f64::max(reduce_disk, replicas / slower));
            prints(ideal(setup), expected, 1e-12 * expected);
        }
    }
}

#[test]
fn published_node_counts() {
    for case in cases() {
        let answer = case.setup.ideal_time(Some(case.took_s)).unwrap();
        assert_eq!(answer.nodes_for, Some(case.nodes), "{}", case.name);
        let nodes = nodes_by_proportion(case.setup.nodes, answer.ideal_seconds, case.took_s);
        assert_eq!(nodes, case.nodes_by_proportion, "{}", case.name);
        // The paper's own rule gives what it prints, but for one.
        let is_rounded = case.nodes_printed == nodes.next_multiple_of(100);
        assert!(nodes == case.nodes_printed || is_rounded, "{}", case.name);
    }
    // With the minute that it took to start.
    let answer = grep().ideal_time(Some(150.0)).unwrap();
    assert_eq!(answer.nodes_for, Some(84));
    assert_eq!(grep().ideal_time(None).unwrap().nodes_for, None);
}

#[test]
fn published_figures_2_share_of_the_ideal() {
    for case in cases() {
        prints(100.0 * ideal(case.setup) / case.took_s, case.percent, 0.05);
    }
    prints(100.0 * ideal(grep()) / 150.0, 4.6, 0.05);
}

#[test]
fn published_figures_3_and_5_lines_of_the_ideal() {
    for nodes in [1, 2, 4, 16, 25] {
        let setup = measured(nodes, 110e6);
        prints(ideal(setup), 78.3, 0.05);
        let with_backup = ideal(Setup {
            backup: true,
            ..setup
        });
        prints(with_backup, 119.5, 0.05);
        // The paper says 39 s, which would be 103 MB/s; at the 97 MB/s that it gives it is 41.2.
        prints(with_backup - ideal(setup), 41.2, 0.05);
    }
}

#[test]
fn published_figures_6_line_of_the_ideal_at_100_mbps() {
    // The paper prints no speed of this network; in proportion to its 110 MB/s of a gigabit it is
    // 11 MB/s. One node sends nothing.
    prints(ideal(measured(1, 11e6)), 78.3, 0.05);
    let line = [2, 4, 8, 16, 25].map(|nodes| ideal(measured(nodes, 11e6)));
    for (value, expected) in line.into_iter().zip([223.1, 314.0, 359.4, 382.1, 390.3]) {
        prints(value, expected, 0.05);
    }
    // It converges.
    prints(
        ideal(measured(1_000_000, 11e6)),
        4000.0 / 11.0 + 4000.0 / 97.0,
        0.01,
    );
}

#[test]
fn published_figures_of_disks_that_could_be_absent() {
    let [_, _, petasort, _, _] = cases();
    let spare = petasort.setup.ideal_time(None).unwrap().over_provisioned;
    let enough = 780.0 * (1.0 - spare.disk);
    prints(enough, 330.0, 0.5);
    assert_eq!((enough / 65.0).ceil(), 6.0);
    assert_eq!(spare.network, 0.0);
    // With as much the ideal is the same, and with less it is not.
    let with = |factor: f64| {
        ideal(Setup {
            disk_read_bytes_per_s: 780e6 * factor,
            disk_write_bytes_per_s: 780e6 * factor,
            ..petasort.setup
        })
    };
    prints(with(1.0 - spare.disk), with(1.0), 1e-9);
    assert!(with((1.0 - spare.disk) * 0.999) > with(1.0) + 1.0);
}
